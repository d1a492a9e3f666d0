// Package detect measures how a flood becomes a rule: how long it takes from the first packet to
// the drop in XDP, how much of the flood is dropped then, what it costs good clients, and how soon
// the rules are gone.
//
// In go Options with a Defender, by default the agent with a policy that detects; out comes a
// Report. All is measured from outside: by counters of devices, by tallies of the packets of good
// clients behind XDP and where they leave, by what clients are answered, and by what the kernel
// says of rules in force. What the defender says of itself stands beside it. The package must never
// take a defender's word for what it measures.
package detect

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/demo"
	"levee/internal/lab/gen"
	"levee/internal/packet"
	"levee/internal/usage"
)

//go:embed policy.levee
var defaultPolicy []byte

//go:embed service.levee
var servicePolicy []byte

// Options of a measurement, of which there are no rounds and windows. Self and Levee are required,
// or a Defender; the zero value of the rest takes twenty minutes.
type Options struct {
	bench.Options
	Self   []string // the command line that calls demo.Role, to which its arguments are added
	Levee  string   // the program whose agent is measured
	Floods []string // names, empty for all of FloodNames
	Data   string   // a directory with CaptureName, empty for none
	Policy []byte   // with detect statements; nil for one of a host that takes everything
	Rate   float64  // of the floods in packets a second, 0 for 1 million; also the ramp's line
	Before time.Duration
	During time.Duration // of floods that do not change
	// Gone is the time in which rules go, before a row gives them up
	Gone     time.Duration
	Defender Defender // nil for the agent

	six netip.Addr // of the service
}

const (
	defaultRate   = 1e6
	defaultBefore = 20 * time.Second
	defaultDuring = 10 * time.Second
	defaultGone   = 90 * time.Second
)

func (o *Options) complete() error {
	for _, p := range []struct {
		d            *time.Duration
		usual, least time.Duration
	}{
		{&o.Before, defaultBefore, time.Second}, {&o.During, defaultDuring, 3 * time.Second},
		{&o.Gone, defaultGone, time.Second},
	} {
		if *p.d == 0 {
			*p.d = p.usual
		}
		if *p.d < p.least || *p.d > 10*time.Minute {
			return usage.Wrongf("%v before or during a flood, or until rules are gone: it lasts "+
				"%v to 10m", *p.d, p.least)
		}
	}
	if o.Rate == 0 {
		o.Rate = defaultRate
	}
	if !flood.SaneRate(o.Rate) {
		return usage.Wrongf("floods of %.0f packets a second: 1000 to 20 million", o.Rate)
	}
	if o.Policy == nil {
		o.Policy = defaultPolicy
	}
	if o.Defender == nil {
		o.Defender = &agent{levee: o.Levee}
	}
	if o.Data != "" {
		if _, err := os.Stat(filepath.Join(o.Data, CaptureName)); err != nil {
			return usage.Wrongf("--data: %v", err)
		}
	} else if slices.Contains(o.Floods, "capture") {
		return usage.Wrongf("the flood \"capture\" needs --data, a directory with %s", CaptureName)
	}
	return o.Options.Complete(bench.Usual{MostRounds: 1}) // each is measured once
}

// Report is the outcome.
type Report struct {
	bench.Head
	Rate   float64
	During time.Duration
	Policy string
	Rest   *Cost // before the first flood; nil if it was not measured
	Rows   []*Row
}

// Cost is the time and memory that the defender took.
type Cost struct {
	Seconds float64 `json:"seconds"`
	Core    float64 `json:"core"`        // share of one core
	Memory  int64   `json:"rss_bytes"`   // the most that was seen
	Good    float64 `json:"good_pps"`    // packets of clients a second meanwhile
	Flood   float64 `json:"flood_pps"`   // of the flood that XDP took
	Offered float64 `json:"offered_pps"` // that the generator sent
}

// Row is one flood.
type Row struct {
	Flood, What string
	Missing     string // why it has no figures; empty if it has
	Waves       []*Wave
	Incidents   []Incident
	Cost        Cost

	ramp, pulses   bool
	mimics, forges bool
	from, to       time.Duration // of the flood, by the monotonic clock
	began          time.Time     // the same as from
	gone           time.Duration // when its rules were; 0: not within patience
	late           time.Duration // how exactly that is known
	samples        []sample
	requests       []demo.Request
	// before the flood, at its end, and when its rules were gone
	first, end, last sample
}

// Wave is a part of a flood that a defender has to notice by itself.
type Wave struct {
	What     string
	Rate     float64 // that was asked for, packets a second; 0: as fast as it goes
	from, to time.Duration
	sent     gen.Report
	replaced bool // the policy was, meanwhile
}

// Run measures. It needs root and two cores. An error means that there is no report, except when
// ctx ends: then the report has what was measured until then.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	wrong := o.complete()
	chosen, wrongFlood := bench.Choose("flood", o.Floods, kinds, nameOf)
	if err := bench.Ready("detect", wrong, wrongFlood); err != nil {
		return nil, err
	}
	chosen = slices.DeleteFunc(chosen, func(k kind) bool {
		return k.name == "capture" && o.Data == ""
	})
	if err := kernel.TCX.Check(); err != nil {
		return nil, err
	}
	s, err := demo.Open(ctx, o.Self)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r = &Report{
		Head: o.Head(demo.Core(s.Server.Devices[0]), caveats...),
		Rate: o.Rate, During: o.During, Policy: string(o.Policy),
	}
	c := &clerk{}
	err = s.Crowded(ctx, c.enter, func() error { return r.measure(ctx, &o, s, c, chosen) })
	return bench.Ended(ctx, r, &r.Head, errors.Join(bench.Interrupted(ctx), err))
}

// clerk keeps the requests of clients.
type clerk struct {
	mu   sync.Mutex
	list []demo.Request
}

func (c *clerk) enter(r demo.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, r)
}

// take gives the requests since the last call.
func (c *clerk) take() []demo.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.list
	c.list = nil
	return out
}

// measure is all rows with one defender.
func (r *Report) measure(ctx context.Context, o *Options, s *demo.Stage, c *clerk,
	chosen []kind) (err error) {
	d := o.Defender
	defer func() { err = errors.Join(err, d.Stop(context.WithoutCancel(ctx))) }()
	if err := d.Start(ctx, s.Server, s.Server.Devices[0].Name, o.Policy); err != nil {
		return err
	}
	w, err := newWatch(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { w.run(ctx) })
	defer watching.Wait()
	defer stop()
	o.Tell("clients come, no flood", 0, len(chosen)+1)
	if r.Rest, err = rest(ctx, o, w); err != nil {
		return interrupted(ctx, err)
	}
	for i, k := range chosen {
		o.Tell(k.name+": "+k.what, i+1, len(chosen)+1)
		row := &Row{Flood: k.name, What: k.what, ramp: k.ramp, pulses: k.pulses,
			mimics: k.mimics, forges: k.forges}
		r.Rows = append(r.Rows, row)
		err := row.measure(ctx, o, s, w, c, k)
		switch {
		case ctx.Err() != nil:
			row.Missing = "interrupted"
			return nil
		case err != nil:
			row.Missing = err.Error()
			// The next flood gets a defender that works, if there is one.
			stopped := d.Stop(ctx)
			if err := d.Start(ctx, s.Server, s.Server.Devices[0].Name, o.Policy); err != nil {
				return errors.Join(stopped, err)
			}
		}
	}
	return nil
}

// interrupted returns an error unless it is one of a measurement that was interrupted, which Run
// says.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// rest returns what the defender takes while clients come and nothing else.
func rest(ctx context.Context, o *Options, w *watch) (*Cost, error) {
	// What it does at its beginning is none of rest.
	if err := lab.Sleep(ctx, o.Before/2); err != nil {
		return nil, err
	}
	if _, err := w.take(); err != nil {
		return nil, err
	}
	m := newMeter(o.Defender.PID())
	if err := m.during(func() error { return lab.Sleep(ctx, o.Before-o.Before/2) }); err != nil {
		return nil, err
	}
	samples, err := w.take()
	return m.cost(samples), err
}

// meter measures the time and memory that a defender takes.
type meter struct {
	pid           int
	from, to      time.Duration
	before, after taken
	most          int64
	err           error
}

func newMeter(pid int) *meter { return &meter{pid: pid} }

// memoryEvery is the time between two readings of memory.
const memoryEvery = 100 * time.Millisecond

// during measures while f runs.
func (m *meter) during(f func() error) error {
	m.from = kernel.Monotonic()
	if m.before, m.err = takenBy(m.pid); m.err != nil {
		return fmt.Errorf("the defender is gone: %w", m.err)
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for {
		now, err := takenBy(m.pid)
		if err != nil {
			m.err = errors.Join(m.err, err)
		}
		m.most = max(m.most, now.rss)
		select {
		case err := <-done:
			m.to = kernel.Monotonic()
			m.after, m.err = takenBy(m.pid)
			if m.err != nil {
				return errors.Join(err, fmt.Errorf("the defender is gone: %w", m.err))
			}
			return err
		case <-tick.C:
		}
	}
}

func (m *meter) cost(samples []sample) *Cost {
	c := &Cost{Seconds: (m.to - m.from).Seconds(), Memory: m.most}
	c.Core = (m.after.cpu - m.before.cpu).Seconds() / c.Seconds
	if in := within(samples, m.from, m.to); len(in) > 1 {
		a, b := in[0], in[len(in)-1]
		span := (b.at - a.at).Seconds()
		c.Good = float64(b.arrived-a.arrived) / span
		c.Flood = float64(b.flood()-min(a.flood(), b.flood())) / span
	}
	return c
}

// within returns the samples of a span of time.
func within(samples []sample, from, to time.Duration) []sample {
	lo, _ := slices.BinarySearchFunc(samples, from,
		func(s sample, at time.Duration) int { return int(s.at - at) })
	hi, _ := slices.BinarySearchFunc(samples, to,
		func(s sample, at time.Duration) int { return int(s.at - at) })
	return samples[lo:max(lo, hi)]
}

// settling is the time before and behind a flood whose samples say what had been counted.
const settling = 500 * time.Millisecond

// measure is a row: quiet, flood, quiet until the rules are gone.
func (row *Row) measure(ctx context.Context, o *Options, s *demo.Stage, w *watch, c *clerk,
	k kind) (err error) {
	o.six = s.Service(packet.IPv6).Addr()
	waves, err := k.waves(o, s.Service(packet.IPv4).Addr())
	if err != nil {
		return err
	}
	if live, err := o.Defender.Live(ctx); err != nil || len(live) > 0 {
		if err == nil {
			row.Missing = fmt.Sprintf("rules of the flood before were still in force: %v", live)
		}
		return err
	}
	if err := o.Defender.Forget(ctx); err != nil {
		return err
	}
	if k.behind != nil {
		policy := slices.Concat(k.behind, o.Policy)
		if err := o.Defender.Replace(ctx, policy); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.Defender.Replace(ctx, o.Policy)) }()
	}
	begun := time.Now()
	c.take()
	if _, err := w.take(); err != nil {
		return err
	}
	if err := lab.Sleep(ctx, o.Before); err != nil {
		return err
	}
	m := newMeter(o.Defender.PID())
	if err := m.during(func() error { return row.send(ctx, o, s, waves) }); err != nil {
		return err
	}
	if err := row.waitUntilGone(ctx, o); err != nil {
		return err
	}
	if err := lab.Sleep(ctx, settling+demo.Patience); err != nil {
		return err
	}
	all, err := o.Defender.Incidents(ctx)
	if err != nil {
		return err
	}
	for _, i := range all {
		if !i.Detected.Before(begun) {
			row.Incidents = append(row.Incidents, i)
		}
	}
	if row.samples, err = w.take(); err != nil {
		return err
	}
	if k.forges {
		asForged(row.samples)
	}
	for _, v := range row.Waves {
		v.from = firstOf(row.samples, v.from, v.to)
	}
	row.began, row.from = row.began.Add(row.Waves[0].from-row.from), row.Waves[0].from
	row.requests = c.take()
	row.first = median(within(row.samples, row.from-settling, row.from))
	row.end = median(within(row.samples, row.to, row.to+settling))
	row.last = median(row.samples[max(0, len(row.samples)-int(settling/every)):])
	row.Cost = *m.cost(row.samples)
	for _, v := range row.Waves {
		row.Cost.Offered += float64(v.sent.Sent) / row.Cost.Seconds
	}
	return nil
}

// firstOf returns the time at which the first packets of a wave came, by the counters: a generator
// that reads a capture begins before.
func firstOf(samples []sample, from, to time.Duration) time.Duration {
	in := within(samples, from, to)
	for i := 1; i < len(in); i++ {
		if in[i].flood() >= in[0].flood()+fewest {
			return max(from, in[i-1].at)
		}
	}
	return from
}

// median returns the sample whose loss of clients' packets is in the middle: what is under way
// shows in single samples.
func median(list []sample) sample {
	if len(list) == 0 {
		return sample{}
	}
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b sample) int { return int(a.lost() - b.lost()) })
	return sorted[len(sorted)/2]
}

// send sends the waves.
func (row *Row) send(ctx context.Context, o *Options, s *demo.Stage, waves []wave) error {
	out := s.World.Devices[0]
	begin := kernel.Monotonic()
	for i, v := range waves {
		if err := lab.Sleep(ctx, begin+v.at-kernel.Monotonic()); err != nil {
			return err
		}
		wave := &Wave{What: v.what, Rate: cmp.Or(v.rate, v.share*o.Rate),
			replaced: v.replaced > 0}
		replaced := replace(ctx, o, &v)
		sent, err := demo.Send(ctx, gen.Config{
			Namespace: s.World.Namespace, Device: out.Name, CPU: out.CPU, Rate: wave.Rate,
			Seed: o.Seed + uint64(i), Floods: v.floods, Replay: v.replay, Template: v.packets,
			Duration: v.lasts,
			Progress: func(p gen.Progress) {
				if wave.from == 0 {
					wave.from = kernel.Monotonic() - p.Elapsed
				}
			},
		})
		if err := errors.Join(err, replaced()); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if wave.from == 0 {
			return errors.New("the generator did not say when it began")
		}
		wave.to, wave.sent = min(wave.from+v.lasts, kernel.Monotonic()), sent
		row.Waves = append(row.Waves, wave)
	}
	row.from, row.to = row.Waves[0].from, row.Waves[len(row.Waves)-1].to
	row.began = time.Now().Add(row.from - kernel.Monotonic())
	return nil
}

// replace replaces the policy while a wave comes, as often as it says. The function that it returns
// waits for the last time.
func replace(ctx context.Context, o *Options, v *wave) (wait func() error) {
	done := make(chan error, 1)
	go func() {
		var err error
		for i := range v.replaced {
			if err = lab.Sleep(ctx, v.lasts/time.Duration(v.replaced+1)); err != nil {
				break
			}
			text := append(fmt.Appendf(nil, "pass from 192.0.2.%d\n", i+1), o.Policy...)
			if err = o.Defender.Replace(ctx, text); err != nil {
				break
			}
		}
		done <- err
	}()
	return func() error { return <-done }
}

// liveEvery is the interval at which the kernel is asked for rules.
const liveEvery = 250 * time.Millisecond

// goneFor is the time without a rule in force after which rules are gone: they are not while
// another policy has taken their place.
const goneFor = 2 * time.Second

// waitUntilGone waits until no rule of the defender is in force.
func (row *Row) waitUntilGone(ctx context.Context, o *Options) error {
	last := kernel.Monotonic()
	patience := time.Duration(0)
	for _, v := range row.Waves {
		if v.replaced {
			patience = goneFor
		}
	}
	for end := row.to + o.Gone; kernel.Monotonic() < end; {
		live, err := o.Defender.Live(ctx)
		if err != nil {
			return err
		}
		now := kernel.Monotonic()
		switch {
		case len(live) > 0:
			row.gone, last = 0, now
		case row.gone == 0:
			row.gone, row.late = now, now-last
		}
		if row.gone > 0 && now-row.gone >= patience {
			return nil
		}
		if err := lab.Sleep(ctx, liveEvery); err != nil {
			return err
		}
	}
	return nil
}
