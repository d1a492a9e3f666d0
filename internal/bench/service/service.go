// Package service measures what the visitors of a web service get before, during and after a flood,
// under each kind of flood and behind each defence.
//
// In go Options, out comes a Report with the requests of each run. Service, visitors and their lab
// are those of package demo; each request counts from when it was due.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"levee/examples"
	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/demo"
	"levee/internal/lab/gen"
	"levee/internal/packet"
	"levee/internal/usage"
)

// Options of a measurement, of which there are no windows. Self is required; the zero value of the
// rest takes fifteen minutes: one round.
type Options struct {
	bench.Options
	// the command line that calls demo.Role, to which its arguments are added
	Self                  []string
	Floods                []string        // kinds, empty for all of FloodNames
	Defences              []string        // names, empty for all of DefenceNames
	Families              []packet.Family // of flood and visitors; empty for IPv4
	Before, During, After time.Duration
	// Profiles, if any, are services behind those in the place of the web service; then Floods and
	// Defences are of ForgedNames and ProfileDefenceNames, and the family is IPv4.
	Profiles []string
	Rate     float64 // of the flood in packets a second, 0 for 2.5 million, for profiles 1 million
	// Requests of the visitors a second, 0 for 200; for profiles the joins of one half of the
	// clients, 0 for 25
	Requests float64
	// Patience is after how long a join to a profile's service fails, 0 for a second. Clients of
	// protocols wait longer.
	Patience time.Duration
}

func nameOf(k demo.Kind) string { return k.Name }

// FloodNames returns the kinds of floods.
func FloodNames() []string { return bench.Names(demo.Kinds, nameOf) }

func defences() []contender.Defence {
	return []contender.Defence{contender.Nothing(), contender.IPTables(), contender.NFT(),
		contender.IPTablesStateful(), contender.NFTStateful(),
		contender.Levee(examples.DemoName, examples.Demo),
		contender.LeveeAs("levee-state", examples.ServiceName, examples.Service),
		contender.LeveeAs("foreknown", "a policy that knows all visitors", []byte(foreknown))}
}

// foreknown is the policy of somebody who knew all visitors beforehand: nothing that keeps a flood
// away costs less. It shows what the generator alone takes from visitors and service, whose cores
// it shares.
const foreknown = `
pass from { 198.18.0.0/15, 2001:db8::/32 }
default drop
`

// DefenceNames returns the names of the defences.
func DefenceNames() []string { return bench.Names(defences(), contender.Defence.Name) }

func (o *Options) complete() error {
	for _, p := range []struct {
		d     *time.Duration
		usual time.Duration
	}{{&o.Before, 2 * time.Second}, {&o.During, 4 * time.Second}, {&o.After, 3 * time.Second}} {
		if *p.d == 0 {
			*p.d = p.usual
		}
		if *p.d < bucket || *p.d > time.Minute {
			return usage.Wrongf("%v before, during or after the flood: each lasts %v to 1m", *p.d,
				bucket)
		}
	}
	o.Patience = cmp.Or(o.Patience, demo.Patience)
	if o.Patience < demo.Patience || o.Patience > time.Minute {
		return usage.Wrongf("patience of %v: %v to 1m", o.Patience, demo.Patience)
	}
	if o.Patience > demo.Patience && (len(o.Profiles) == 0 || o.During <= o.Patience) {
		return usage.Wrongf("patience of %v: it is for the services of profiles, under floods "+
			"that last longer", o.Patience)
	}
	if len(o.Families) == 0 {
		o.Families = []packet.Family{packet.IPv4}
	}
	if len(o.Profiles) > 0 {
		o.Rate, o.Requests = cmp.Or(o.Rate, forgedRate), cmp.Or(o.Requests, joinsPerSecond)
		if !slices.Equal(o.Families, []packet.Family{packet.IPv4}) {
			return usage.Wrongf("the clients of profiles come by IPv4 only")
		}
	}
	o.Rate, o.Requests = cmp.Or(o.Rate, demo.DefaultRate), cmp.Or(o.Requests, demo.PerSecond)
	if !flood.SaneRate(o.Rate) {
		return usage.Wrongf("a flood of %.0f packets a second: 1000 to 20 million", o.Rate)
	}
	if !(o.Requests >= 1 && o.Requests <= 5000) {
		return usage.Wrongf("%.0f requests a second: 1 to 5000", o.Requests)
	}
	return o.Options.Complete(bench.Usual{Rounds: 1, FewestRounds: 1, MostRounds: mostRounds})
}

// mostRounds of a measurement that takes ten seconds for each flood and defence in a round.
const mostRounds = 20

// bucket is the time over which requests are gathered in a curve.
const bucket = 500 * time.Millisecond

// Report is the outcome.
type Report struct {
	bench.Head
	Before, During, After time.Duration
	Rate, Requests        float64
	Patience              time.Duration
	Rounds                int
	Runs                  []*Once

	service, requests string // what it is, and what Requests are, in words
	// floodShare is the part of Rate that a flood has to reach: while it pauses, a budget that it
	// takes serves everybody. 0: any, as with rates that are more than generators send.
	floodShare float64
}

// Once is the service under one flood behind one defence, in one round.
type Once struct {
	Round       int // from 0
	Flood, What string
	Family      packet.Family
	Defence     string
	Missing     string // why it could not be measured
	Requests    []Outcome
	Sent        float64 // packets a second of the flood
	// From and To are when the flood began and ended, in seconds from the beginning of the run:
	// loading the generator takes a while, which is no flood.
	From, To float64
}

// Outcome is one request: when it was due, in seconds from the beginning of the run, and how long
// it took, in seconds from then to the last byte; 0 for none within the visitor's patience. What is
// what was asked of a service of a profile.
type Outcome struct {
	Due, Took float64
	What      string `json:",omitempty"`
}

// Run measures. It needs root and two cores. An error means that there is no report, except when
// ctx ends: then the report has what was measured until then.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	if len(o.Profiles) > 0 {
		return runProfiles(ctx, o)
	}
	wrong := o.complete()
	floods, wrongFlood := bench.Choose("flood", o.Floods, demo.Kinds, nameOf)
	chosen, wrongDefence := bench.Choose("defence", o.Defences, defences(), contender.Defence.Name)
	if err := bench.Ready("service", wrong, wrongFlood, wrongDefence); err != nil {
		return nil, err
	}
	s, err := demo.Open(ctx, o.Self)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r = &Report{
		Head: o.Head(demo.Core(s.Server.Devices[0]),
			append(slices.Clone(caveats), of(o.Rounds))...),
		service: "a web service", requests: "requests",
		Before: o.Before, During: o.During, After: o.After, Rate: o.Rate, Requests: o.Requests,
		Rounds: o.Rounds, Patience: o.Patience,
	}
	for _, f := range o.Families {
		c := &clerk{}
		err = errors.Join(err, s.Populated(ctx, f, o.Requests, c.enter,
			func() error { return r.measure(ctx, &o, s, c, f, floods, chosen) }))
		if err != nil || ctx.Err() != nil {
			break
		}
	}
	return bench.Ended(ctx, r, &r.Head, errors.Join(bench.Interrupted(ctx), err))
}

// clerk enters requests into the run within which they are due.
type clerk struct {
	mu       sync.Mutex
	run      *Once
	from, to time.Duration // of the monotonic clock
}

func (c *clerk) open(run *Once, from, to time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run, c.from, c.to = run, from, to
}

func (c *clerk) enter(r demo.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := time.Duration(r.Due)
	if c.run == nil || due < c.from || due >= c.to {
		return
	}
	c.run.Requests = append(c.run.Requests,
		Outcome{(due - c.from).Seconds(), time.Duration(r.NS).Seconds(), r.What})
}

// measure has each flood meet each defence once a round, in turn.
func (r *Report) measure(ctx context.Context, o *Options, s *demo.Stage, c *clerk, f packet.Family,
	floods []demo.Kind, chosen []contender.Defence) error {
	each := len(floods) * len(chosen)
	for round := range o.Rounds {
		for _, i := range bench.InTurn(round, each) {
			k, d := floods[i/len(chosen)], chosen[i%len(chosen)]
			o.Tell(fmt.Sprintf("%s, %s flood, %s", f, k.Name, d.Name()), len(r.Runs),
				len(o.Families)*each*o.Rounds)
			run := &Once{Round: round, Flood: k.Name, What: k.What, Family: f,
				Defence: d.Name()}
			r.Runs = append(r.Runs, run)
			err := r.once(ctx, o, s, c, run, d, k.Floods)
			if ctx.Err() != nil {
				return nil // said by Run
			}
			if errors.Is(err, contender.ErrMissing) {
				run.Missing = err.Error()
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// once is a run: defence up, quiet, flood, quiet, defence down.
func (r *Report) once(ctx context.Context, o *Options, s *demo.Stage, c *clerk, run *Once,
	d contender.Defence, sorts []gen.Flood) (err error) {
	site := contender.Site{Host: s.Server, Device: s.Server.Devices[0].Name}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx))) }()
	if err := d.Install(ctx, site); err != nil {
		return err
	}
	out := s.World.Devices[0]
	var floods []gen.Flood
	for _, f := range sorts {
		floods = append(floods, demo.Spoofed(f, s.Service(run.Family).Addr()))
	}
	return r.watched(ctx, c, run, gen.Config{Namespace: s.World.Namespace, Device: out.Name,
		CPU: out.CPU, Rate: r.Rate, Seed: o.Seed, Floods: floods})
}

// watched is quiet, the flood that config says, and quiet, with all requests.
func (r *Report) watched(ctx context.Context, c *clerk, run *Once, config gen.Config) error {
	begin := kernel.Monotonic()
	c.open(run, begin, begin+r.Before+r.During+r.After)
	if err := lab.Sleep(ctx, r.Before); err != nil {
		return err
	}
	began := time.Duration(0)
	config.Duration = r.During
	config.Progress = func(p gen.Progress) {
		if began == 0 {
			began = kernel.Monotonic() - p.Elapsed
		}
	}
	sent, err := demo.SendFirst(ctx, config)
	if err != nil {
		return err
	}
	if began == 0 {
		return errors.New("the generator did not say when it began")
	}
	run.From = (began - begin).Seconds()
	run.To = run.From + r.During.Seconds()
	run.Sent = float64(sent.Sent) / r.During.Seconds()
	// The last visitors' patience ends that much after the run.
	if err := lab.Sleep(ctx, r.After+r.Patience); err != nil {
		return err
	}
	c.open(nil, 0, 0)
	return nil
}
