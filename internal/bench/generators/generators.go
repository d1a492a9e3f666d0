package generators

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"levee/internal/bench"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/gen"
	"levee/internal/quantity"
	"levee/internal/usage"
)

// Options of a comparison. The zero value measures all, in about four minutes.
type Options struct {
	bench.Options
	Only  []string  // generators by name, empty for all
	Rates []float64 // packets a second besides as fast as it goes; nil for defaultRates
	// Bursts count the live frames of a paced run that go at once, Copies the times in a row that a
	// frame from user space goes: if some are given, only levee's paths with each of them are
	// measured.
	Bursts, Copies []int
}

// defaultRates are the requested rates, packets a second.
var defaultRates = []float64{1e3, 1e4, 1e5, 5e5, 1e6, 2e6}

const (
	warmup  = 300 * time.Millisecond // from when the first packet arrives
	startup = 5 * time.Second        // within which it must
	// maxImbalance is the largest distance of the counts of levee's paths from the device's, as a
	// share.
	maxImbalance = 0.001
)

// One round gives no figure, but tells whether the generators run.
var usual = bench.Usual{
	Rounds: 6, FewestRounds: 1, MostRounds: 100,
	Window: time.Second, QuickWindow: 300 * time.Millisecond, Shortest: 100 * time.Millisecond,
	Longest: time.Minute,
}

func (o *Options) complete() error {
	if o.Rates == nil {
		o.Rates = defaultRates
		if o.Quick {
			o.Rates = []float64{1e4, 1e5, 1e6}
		}
	}
	for _, r := range o.Rates {
		if !(r >= 100 && r <= 1e8) {
			return usage.Wrongf("a rate of %.0f/s: 100 to 100 million packets a second", r)
		}
	}
	for _, n := range o.Bursts {
		if n < 1 || n > gen.MaxBurst || n&(n-1) != 0 {
			return usage.Wrongf("a burst of %d: a power of two up to %d", n, gen.MaxBurst)
		}
	}
	for _, n := range o.Copies {
		if n < 1 || n > gen.MaxCopies {
			return usage.Wrongf("%d copies: 1 to %d", n, gen.MaxCopies)
		}
	}
	return o.Options.Complete(usual)
}

// comparison is one under way.
type comparison struct {
	Options
	lab    *lab.Lab
	cpu    int    // of the generators
	device string // that they send on
	dir    string // for files of the peers
	told   *gen.Report
}

// Run compares. A generator that has no figure says why in the report; the report of an interrupted
// run has what was measured until then.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	chosen, wrong := bench.Choose("generator", o.Only, generators, nameOf)
	if len(o.Bursts)+len(o.Copies) > 0 {
		if chosen = o.swept(chosen); len(chosen) == 0 && wrong == nil {
			wrong = usage.Wrongf("bursts are of levee live, copies of levee's other paths")
		}
	}
	if err := bench.Ready("gen", o.complete(), wrong); err != nil {
		return nil, err
	}
	l, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	c := &comparison{Options: o, lab: l}
	world := l.Host(lab.World).Devices[0]
	c.device, c.cpu = world.Name, max(world.CPU, 0)
	if c.dir, err = os.MkdirTemp("", "levee-gen"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(c.dir)
	lower, err := first(l.Host(lab.Server).Devices[0].NAPI)
	if err != nil {
		return nil, err
	}
	defer lower()
	r := &Report{Head: o.Head(c.cpu, caveats...), WindowMS: o.Window.Milliseconds()}
	r.WarnOfQuick()
	for _, g := range chosen {
		e := &Entry{Name: g.name, What: g.what, Path: g.path, Burst: g.burst, Copies: g.copies}
		r.Generators = append(r.Generators, e)
		if g.needs != "" {
			if _, err := exec.LookPath(g.needs); err != nil {
				e.Missing = g.needs + " is not installed"
			}
		}
	}
	err = c.rounds(ctx, chosen, r)
	r.summarise()
	return bench.Ended(ctx, r, &r.Head, err)
}

// rounds goes through generators and rates. It ends early only if ctx does.
func (c *comparison) rounds(ctx context.Context, chosen []generator, r *Report) error {
	type pair struct {
		g    generator
		e    *Entry
		rate float64
	}
	var pairs []pair
	for i, g := range chosen {
		if r.Generators[i].Missing == "" {
			for _, rate := range append([]float64{0}, c.Rates...) {
				if rate == 0 && g.burst > 0 {
					continue // only a paced run has bursts
				}
				pairs = append(pairs, pair{g, r.Generators[i], rate})
			}
		}
	}
	for round := range c.Rounds {
		for n, i := range bench.InTurn(round, len(pairs)) {
			p := pairs[i]
			doing := p.g.name + ", as fast as it goes"
			if p.rate > 0 {
				doing = fmt.Sprintf("%s, %s", p.g.name, quantity.Print(p.rate, "packets/s"))
			}
			c.Tell(doing, round*len(pairs)+n, c.Rounds*len(pairs))
			w, err := c.window(ctx, p.g, p.rate)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				w.Invalid = err.Error()
			}
			w.Round = round
			p.e.add(p.rate, w)
		}
	}
	return nil
}

// window measures one generator at one rate once.
func (c *comparison) window(ctx context.Context, g generator, rate float64) (w Window, err error) {
	s, err := newReceiver(c.lab, receiverOptions{stamp: rate > 0})
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	base, err := refused(c.lab)
	if err != nil {
		return w, err
	}
	c.told = nil
	run, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- g.run(run, c, rate) }()
	werr := c.sample(ctx, s, ended, &w)
	cancel()
	if werr != nil && errors.Is(werr, errEnded) {
		return w, werr
	}
	if err := <-ended; err != nil {
		return w, errors.Join(werr, err)
	}
	if werr != nil {
		return w, werr
	}
	return w, c.balance(s, base)
}

var errEnded = errors.New("the generator ended before its window")

// sample waits for the generator to get going, and takes the counts at both ends of the window.
func (c *comparison) sample(ctx context.Context, s *receiver, ended <-chan error, w *Window) error {
	pause := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return fmt.Errorf("%w: %w", errEnded, err)
		case <-time.After(d):
			return nil
		}
	}
	for began := time.Now(); ; {
		v, err := s.read()
		if err != nil {
			return err
		}
		if v.Packets > 0 {
			break
		}
		if time.Since(began) > startup {
			return fmt.Errorf("nothing arrived for %s", startup)
		}
		if err := pause(10 * time.Millisecond); err != nil {
			return err
		}
	}
	if err := pause(warmup); err != nil {
		return err
	}
	a, err := c.take(s)
	if err != nil {
		return err
	}
	if err := pause(c.Window); err != nil {
		return err
	}
	z, err := c.take(s)
	if err != nil {
		return err
	}
	w.Seconds = (z.at - a.at).Seconds()
	w.Received = z.seen.Packets - a.seen.Packets
	w.Refused = z.refused - a.refused
	w.Offered = w.Received + w.Refused
	if w.Offered == 0 {
		return errors.New("it sent nothing within a window")
	}
	w.PPS = float64(w.Offered) / w.Seconds
	w.ReceivedPPS = float64(w.Received) / w.Seconds
	for i := range z.seen.Gaps {
		z.seen.Gaps[i] -= a.seen.Gaps[i]
	}
	w.gaps = z.seen.Gaps[:]
	return nil
}

// sampled is the counts at one moment.
type sampled struct {
	at      time.Duration // of the monotonic clock
	seen    receiverSeen
	refused uint64
}

// maxSkew is the longest time of taking the counts: 0.02 % of a window of one second.
const maxSkew = 200 * time.Microsecond

// take reads the counts; it tries again when it was interrupted in between.
func (c *comparison) take(s *receiver) (v sampled, err error) {
	for range 20 {
		before := time.Now()
		if v.refused, err = refused(c.lab); err != nil {
			return v, err
		}
		v.at = kernel.Monotonic()
		if v.seen, err = s.read(); err != nil || time.Since(before) <= maxSkew {
			return v, err
		}
	}
	return v, nil
}

// balance compares what a path of levee reports with what was counted at the device and by the
// receiver.
func (c *comparison) balance(s *receiver, base uint64) error {
	if c.told == nil {
		return nil
	}
	want := c.told.Sent - c.told.Refused
	var got uint64
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		v, err := s.read()
		if err != nil {
			return err
		}
		if got = v.Packets; got >= want {
			break
		}
	}
	n, err := refused(c.lab)
	if err != nil {
		return err
	}
	if d := diff(got, want); float64(d) > maxImbalance*float64(want) {
		return fmt.Errorf("packets do not balance: %d sent, %d refused, %d received", c.told.Sent,
			c.told.Refused, got)
	}
	// The device also counts what the kernel itself had no room for, such as its reports of groups.
	if float64(diff(n-base, c.told.Refused)) > maxImbalance*float64(c.told.Sent) &&
		c.told.Path == gen.Live {
		return fmt.Errorf("the device refused %d packets, the generator reports %d", n-base,
			c.told.Refused)
	}
	return nil
}

func diff(a, b uint64) uint64 { return max(a, b) - min(a, b) }
