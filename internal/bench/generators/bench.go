package generators

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench/option"
	"levee/internal/host"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/lab/gen"
	"levee/internal/report"
)

// Options of a comparison. The zero value measures all, in about four minutes.
type Options struct {
	Only    []string      // generators by name, empty for all
	Rates   []float64     // packets a second besides as fast as it goes; nil for DefaultRates
	Rounds  int           // 0 for 6, the fewest that give an interval
	Window  time.Duration // 0 for 1 s
	Quick   bool          // short windows and few rates: a look, not a figure to quote
	Seed    uint64
	Command string // for the report
	Steps   func(doing string, done, total int)
}

// DefaultRates are the requested rates, packets a second.
var DefaultRates = []float64{1e3, 1e4, 1e5, 5e5, 1e6, 2e6}

const (
	minRounds = 6
	warmup    = 300 * time.Millisecond // from when the first packet arrives
	startup   = 5 * time.Second        // within which it must
	// maxImbalance is how far the counts of levee's paths may be from the device's, as a share.
	maxImbalance = 0.001
)

func (o *Options) complete() error {
	if err := option.Known("generator", o.Only, Names()); err != nil {
		return err
	}
	if o.Rates == nil {
		o.Rates = DefaultRates
		if o.Quick {
			o.Rates = []float64{1e4, 1e5, 1e6}
		}
	}
	for _, r := range o.Rates {
		if !(r >= 100 && r <= 1e8) {
			return option.Wrongf("a rate of %.0f packets a second: 100 to 100 million", r)
		}
	}
	if o.Rounds == 0 {
		o.Rounds = minRounds
	}
	if o.Rounds < 1 || o.Rounds > 100 {
		return option.Wrongf("%d rounds: there may be 1 to 100", o.Rounds)
	}
	if o.Window == 0 {
		if o.Window = time.Second; o.Quick {
			o.Window = 300 * time.Millisecond
		}
	}
	if err := option.Window(o.Window, 100*time.Millisecond, time.Minute); err != nil {
		return err
	}
	if o.Steps == nil {
		o.Steps = func(string, int, int) {}
	}
	return nil
}

// bench is one run.
type bench struct {
	Options
	lab    *lab.Lab
	cpu    int    // of the generators
	device string // that they send on
	dir    string // for files of the peers
	told   *gen.Report
}

// Run compares. A generator that has no figure says why in the report; the report of an interrupted run has
// what was measured until then.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("bench gen: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root")
	}
	l, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	b := &bench{Options: o, lab: l}
	world := l.Host(lab.World).Devices[0]
	b.device, b.cpu = world.Name, max(world.CPU, 0)
	if b.dir, err = os.MkdirTemp("", "levee-gen"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.dir)
	lower, err := first(l.Host(lab.Server).Devices[0].NAPI)
	if err != nil {
		return nil, err
	}
	defer lower()
	r := &Report{
		Started: time.Now().UTC().Truncate(time.Second), Command: o.Command, Quick: o.Quick, Rounds: o.Rounds,
		WindowMS: o.Window.Milliseconds(), Seed: o.Seed, Machine: host.Fingerprint(b.cpu), Caveats: caveats(o.Quick),
	}
	var chosen []generator
	for _, g := range generators {
		if len(o.Only) > 0 && !slices.Contains(o.Only, g.name) {
			continue
		}
		e := &Entry{Name: g.name, What: g.what}
		r.Generators = append(r.Generators, e)
		chosen = append(chosen, g)
		if g.needs != "" {
			if _, err := exec.LookPath(g.needs); err != nil {
				e.Missing = g.needs + " is not installed"
			}
		}
	}
	if err := b.rounds(ctx, chosen, r); err != nil {
		if ctx.Err() == nil {
			return nil, err
		}
		r.Incomplete = "interrupted"
	}
	r.summarise()
	return r, ctx.Err()
}

// rounds goes through generators and rates, forwards and backwards in turn.
func (b *bench) rounds(ctx context.Context, chosen []generator, r *Report) error {
	type visit struct {
		g    generator
		e    *Entry
		rate float64
	}
	var visits []visit
	for i, g := range chosen {
		if r.Generators[i].Missing == "" {
			for _, rate := range append([]float64{0}, b.Rates...) {
				visits = append(visits, visit{g, r.Generators[i], rate})
			}
		}
	}
	done := 0
	for round := range b.Rounds {
		for _, v := range visits {
			doing := v.g.name + ", as fast as it goes"
			if v.rate > 0 {
				doing = fmt.Sprintf("%s, %s", v.g.name, report.Print(v.rate, "packets/s"))
			}
			b.Steps(doing, done, b.Rounds*len(visits))
			w, err := b.window(ctx, v.g, v.rate)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				w.Invalid = err.Error()
			}
			w.Round = round
			v.e.add(v.rate, w)
			done++
		}
		slices.Reverse(visits)
	}
	return nil
}

// window measures one generator at one rate once.
func (b *bench) window(ctx context.Context, g generator, rate float64) (w Window, err error) {
	s, err := newSink(b.lab, sinkOptions{stamp: rate > 0})
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	base, err := refused(b.lab)
	if err != nil {
		return w, err
	}
	b.told = nil
	run, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- g.run(run, b, rate) }()
	werr := b.sample(ctx, s, ended, &w)
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
	return w, b.balance(s, base)
}

var errEnded = errors.New("the generator ended before its window")

// sample waits for the generator to get going, and takes the counts at both ends of the window.
func (b *bench) sample(ctx context.Context, s *sink, ended <-chan error, w *Window) error {
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
	a, err := b.take(s)
	if err != nil {
		return err
	}
	if err := pause(b.Window); err != nil {
		return err
	}
	z, err := b.take(s)
	if err != nil {
		return err
	}
	w.Seconds = time.Duration(z.at - a.at).Seconds()
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
	at      int64 // ns of the monotonic clock
	seen    sinkSink
	refused uint64
}

// maxSkew is how long taking the counts may last: 0.02 % of a window of one second.
const maxSkew = 200 * time.Microsecond

// take reads the counts; it tries again when it was interrupted in between.
func (b *bench) take(s *sink) (v sampled, err error) {
	for range 20 {
		before := time.Now()
		if v.refused, err = refused(b.lab); err != nil {
			return v, err
		}
		v.at = monotonic()
		if v.seen, err = s.read(); err != nil || time.Since(before) <= maxSkew {
			return v, err
		}
	}
	return v, nil
}

func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail for this clock
	return ts.Nano()
}

// balance compares what a path of levee reports with what was counted at the device and by the receiver.
func (b *bench) balance(s *sink, base uint64) error {
	if b.told == nil {
		return nil
	}
	want := b.told.Sent - b.told.Refused
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
	n, err := refused(b.lab)
	if err != nil {
		return err
	}
	if d := diff(got, want); float64(d) > maxImbalance*float64(want) {
		return fmt.Errorf("packets do not balance: %d sent, %d refused, %d received", b.told.Sent, b.told.Refused, got)
	}
	// The device also counts what the kernel itself had no room for, such as its reports of groups.
	if float64(diff(n-base, b.told.Refused)) > maxImbalance*float64(b.told.Sent) && b.told.Path == gen.Live {
		return fmt.Errorf("the device refused %d packets, the generator reports %d", n-base, b.told.Refused)
	}
	return nil
}

func diff(a, b uint64) uint64 { return max(a, b) - min(a, b) }
