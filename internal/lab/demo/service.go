package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"levee/examples"
	"levee/internal/bench/option"
	"levee/internal/host"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/contender"
	"levee/internal/lab/gen"
)

// ServiceOptions of Service. Self is required; the zero value of the rest takes three minutes.
type ServiceOptions struct {
	Self                  []string // the command line that calls Role, to which its arguments are added
	Floods                []string // kinds, empty for all of FloodNames
	Defences              []string // names, empty for all of DefenceNames
	Before, During, After time.Duration
	Rate                  float64 // of the flood in packets a second, 0 for 2.5 million
	Requests              float64 // of the visitors a second, 0 for 200
	Seed                  uint64
	Command               string // to repeat it, for the report
	Progress              func(doing string, done, total int)
}

// floodKinds are the floods that a service is measured under, by name.
var floodKinds = []struct {
	name, what string
	flood      gen.Flood
}{
	{"udp", "UDP to all ports", gen.Flood{Kind: gen.UDP, Ports: gen.PortRange(1, 65535)}},
	{"syn", "bare TCP SYN to the service", gen.Flood{Kind: gen.SYN, Ports: []uint16{servicePort}}},
	{"ack", "TCP ACK to the service", gen.Flood{Kind: gen.ACK, Ports: []uint16{servicePort}}},
	{"icmp", "ICMP echo requests", gen.Flood{Kind: gen.ICMPEcho}},
	{"fragment", "IP fragments that are not the first", gen.Flood{Kind: gen.Fragment}},
}

// FloodNames are the kinds of floods.
func FloodNames() (names []string) {
	for _, k := range floodKinds {
		names = append(names, k.name)
	}
	return names
}

func defences() []contender.Defence {
	return []contender.Defence{contender.Nothing(), contender.IPTables(), contender.NFT(), contender.Levee(examples.DemoName, examples.Demo)}
}

// DefenceNames are the names of the defences.
func DefenceNames() (names []string) {
	for _, d := range defences() {
		names = append(names, d.Name())
	}
	return names
}

func (o *ServiceOptions) complete() error {
	for _, p := range []struct {
		d     *time.Duration
		usual time.Duration
	}{{&o.Before, 2 * time.Second}, {&o.During, 4 * time.Second}, {&o.After, 3 * time.Second}} {
		if *p.d == 0 {
			*p.d = p.usual
		}
		if *p.d < bucket || *p.d > time.Minute {
			return option.Wrongf("%v before, during or after the flood: each lasts %v to 1m", *p.d, bucket)
		}
	}
	if o.Rate == 0 {
		o.Rate = defaultRate
	}
	if o.Requests == 0 {
		o.Requests = perSecond
	}
	if !(o.Rate >= 1000 && o.Rate <= 20e6) {
		return option.Wrongf("a flood of %.0f packets a second: 1000 to 20 million", o.Rate)
	}
	if !(o.Requests >= 1 && o.Requests <= 5000) {
		return option.Wrongf("%.0f requests a second: 1 to 5000", o.Requests)
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	return errors.Join(option.Known("flood", o.Floods, FloodNames()), option.Known("defence", o.Defences, DefenceNames()))
}

// bucket is the time over which requests are gathered in a curve.
const bucket = 500 * time.Millisecond

// ServiceReport is the outcome.
type ServiceReport struct {
	ServiceOptions
	Started    time.Time
	Incomplete bool
	Machine    host.Info
	Runs       []*ServiceRun
}

// ServiceRun is the service under one flood behind one defence.
type ServiceRun struct {
	Flood, What string
	Defence     string
	Missing     string // why it could not be measured
	Requests    []Outcome
	Sent        float64 // packets a second of the flood
	// From and To are when the flood began and ended, in seconds from the beginning of the run: loading the generator takes
	// a while, which is no flood.
	From, To float64
}

// Outcome is one request: when it was due, in seconds from the beginning of the run, and how long it took, in
// seconds from then to the last byte; 0 for none within the visitor's patience.
type Outcome struct{ Due, Took float64 }

// Service measures what visitors of a web service get before, during and after each kind of flood, behind each
// defence. It needs root and two cores. An error means that there is no report, except when ctx ends: then
// the report has what was measured until then.
func Service(ctx context.Context, o ServiceOptions) (r *ServiceReport, err error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root: sudo levee bench service")
	}
	// The lab stays for the tidying up after an interruption; Close removes it.
	l, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	s := &stage{Options: Options{Self: o.Self, Out: io.Discard}, lab: l, server: l.Host(lab.Server), world: l.Host(lab.World)}
	r = &ServiceReport{ServiceOptions: o, Started: time.Now().UTC().Truncate(time.Second), Machine: host.Fingerprint(core(s.server.Devices[0]))}
	c := &clerk{}
	err = s.populated(ctx, o.Requests, c.enter, func() error { return r.measure(ctx, s, c) })
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	if ctx.Err() != nil {
		r.Incomplete = true
		err = errors.Join(fmt.Errorf("bench: interrupted: %w", ctx.Err()), err)
	}
	return r, err
}

// clerk enters requests into the run within which they are due.
type clerk struct {
	mu       sync.Mutex
	run      *ServiceRun
	from, to int64 // ns of the monotonic clock
}

func (c *clerk) open(run *ServiceRun, from, to int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run, c.from, c.to = run, from, to
}

func (c *clerk) enter(r request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil || r.Due < c.from || r.Due >= c.to {
		return
	}
	c.run.Requests = append(c.run.Requests, Outcome{float64(r.Due-c.from) / 1e9, float64(r.NS) / 1e9})
}

func (r *ServiceReport) measure(ctx context.Context, s *stage, c *clerk) error {
	all := defences()
	total, done := 0, 0
	wanted := func(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }
	for _, k := range floodKinds {
		for _, d := range all {
			if wanted(r.Floods, k.name) && wanted(r.Defences, d.Name()) {
				total++
			}
		}
	}
	for _, k := range floodKinds {
		for _, d := range all {
			if !wanted(r.Floods, k.name) || !wanted(r.Defences, d.Name()) {
				continue
			}
			r.Progress(fmt.Sprintf("%s flood, %s", k.name, d.Name()), done, total)
			done++
			run := &ServiceRun{Flood: k.name, What: k.what, Defence: d.Name()}
			r.Runs = append(r.Runs, run)
			err := r.one(ctx, s, c, run, d, k.flood)
			if ctx.Err() != nil {
				return nil // said by Service
			}
			if errors.Is(err, contender.ErrMissing) {
				run.Missing = err.Error()
			} else if err != nil {
				return err
			}
		}
	}
	r.Progress("done", total, total)
	return nil
}

// one is a run: defence up, quiet, flood, quiet, defence down.
func (r *ServiceReport) one(ctx context.Context, s *stage, c *clerk, run *ServiceRun, d contender.Defence, f gen.Flood) (err error) {
	site := contender.Site{Host: s.server, Device: s.server.Devices[0].Name}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx))) }()
	if err := d.Install(ctx, site); err != nil {
		return err
	}
	out := s.world.Devices[0]
	f.To, f.Sources, f.FromPorts = out.Peer.IPv4, []netip.Prefix{netip.MustParsePrefix("16.0.0.0/4")}, gen.PortRange(1024, 65535)
	if f.Kind == gen.ICMPEcho || f.Kind == gen.Fragment {
		f.FromPorts = nil
	}
	begin := monotonic()
	c.open(run, begin, begin+(r.Before+r.During+r.After).Nanoseconds())
	if err := sleep(ctx, r.Before); err != nil {
		return err
	}
	w := wave{name: run.Flood, share: 1, Config: gen.Config{
		Namespace: s.world.Namespace, Device: out.Name, CPU: out.CPU, Rate: r.Rate, Seed: r.Seed, Flood: &f,
	}}
	began := int64(0)
	w.Progress = func(p gen.Progress) {
		if began == 0 {
			began = monotonic() - p.Elapsed.Nanoseconds()
		}
	}
	sent, err := w.send(ctx, r.During)
	if err != nil {
		return err
	}
	if began == 0 {
		return errors.New("the generator did not say when it began")
	}
	run.From = float64(began-begin) / 1e9
	run.To = run.From + r.During.Seconds()
	run.Sent = float64(sent.Sent) / r.During.Seconds()
	// The last visitors' patience ends a second after the run.
	if err := sleep(ctx, r.After+patience); err != nil {
		return err
	}
	c.open(nil, 0, 0)
	return nil
}
