package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"levee/internal/bench/option"
	"levee/internal/host"
	"levee/internal/kernel"
	"levee/internal/lab/contender"
)

// mixPort takes what is not dropped.
const mixPort = floodPort + 1

// steps is how finely the share of dropped packets can be chosen: a flood walks through so many ports.
const steps = 20

// MixOptions of Mix. The zero value takes about four minutes.
type MixOptions struct {
	Rungs  []string  // names, empty for all
	Shares []float64 // of packets that are dropped, in percent: multiples of 5; empty for 0, 25, 50, 75, 90, 95 and 100
	Rates  []float64 // of a flood that is dropped whole, in packets a second; empty for 250 k to 4 M
	Rounds int       // 0 for 6, fewer have no 95 % interval
	Window time.Duration
	Quick  bool
	Seed   uint64
	// Command repeats it, for the report.
	Command  string
	Progress func(doing string, done, total int)
}

func (o *MixOptions) complete() error {
	if len(o.Shares) == 0 {
		o.Shares = []float64{0, 25, 50, 75, 90, 95, 100}
	}
	if len(o.Rates) == 0 {
		o.Rates = []float64{250e3, 500e3, 1e6, 2e6, 4e6}
	}
	if o.Rounds == 0 {
		o.Rounds = minRounds
	}
	if o.Window == 0 {
		o.Window = 400 * time.Millisecond
		if o.Quick {
			o.Window = 100 * time.Millisecond
		}
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	for _, list := range []*[]float64{&o.Shares, &o.Rates} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	for _, s := range o.Shares {
		if n := s * steps / 100; !(s >= 0 && s <= 100) || n != float64(int(n)) {
			return option.Wrongf("a share of %g %%: 0 to 100 in steps of %d", s, 100/steps)
		}
	}
	for _, r := range o.Rates {
		if !(r >= minLoad && r <= maxLoad) {
			return option.Wrongf("a rate of %.0f packets a second: %d to %d million", r, minLoad, maxLoad/1_000_000)
		}
	}
	if n := len(o.Shares) + len(o.Rates); n > 2*maxLoads {
		return option.Wrongf("%d shares and rates: %d are enough", n, 2*maxLoads)
	}
	return errors.Join(option.Rounds(o.Rounds), option.Window(o.Window, MinWindow, MaxWindow))
}

// mixRungs are the places that are compared; the application is behind all of them.
func mixRungs() []contender.Defence {
	return []contender.Defence{
		contender.Levee("one-rule", onePolicy), contender.NFTOneRule(floodPort), contender.IPTablesRaw(floodPort), contender.IPTablesInput(floodPort),
	}
}

// MixNames are the names of the rungs.
func MixNames() []string { return defenceNames(mixRungs()) }

// MixReport is the outcome.
type MixReport struct {
	MixOptions
	Started    time.Time
	Incomplete bool
	Machine    host.Info
	Rungs      []*MixRung
}

// MixRung is one place to drop.
type MixRung struct {
	Name, What string
	Missing    string      // why it could not be measured at all
	Shares     []*MixPoint // packets a second against the share that is dropped
	Rates      []*MixPoint // processed against offered
}

// MixPoint is a rung under one traffic.
type MixPoint struct {
	At      float64 // the share in percent, or the rate that was asked for
	Windows []Window
}

// valid are the windows that count.
func (p *MixPoint) valid() (out []Window) {
	for _, w := range p.Windows {
		if len(w.Invalid) == 0 {
			out = append(out, w)
		}
	}
	return out
}

// Mix measures how many packets a second a rung takes, by the share of them that it drops, and how many it
// takes of what is offered. It needs root and two cores; an error is as that of Ladder.
func Mix(ctx context.Context, o MixOptions) (r *MixReport, err error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	defences, err := chosen(mixRungs(), o.Rungs)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, kernel.Refuse(os.ErrPermission, "measuring needs root: sudo levee bench mix")
	}
	b, leave, err := enter(ctx, Options{Rounds: o.Rounds, Window: o.Window, Seed: o.Seed, Quick: o.Quick}, mixPort, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	r = &MixReport{MixOptions: o, Started: time.Now().UTC().Truncate(time.Second), Machine: host.Fingerprint(b.receiverCPU)}
	for _, d := range defences {
		g := &MixRung{Name: d.Name(), What: d.Describe()}
		for _, s := range o.Shares {
			g.Shares = append(g.Shares, &MixPoint{At: s})
		}
		for _, s := range o.Rates {
			g.Rates = append(g.Rates, &MixPoint{At: s})
		}
		r.Rungs = append(r.Rungs, g)
	}
	err = b.pinned(func() error { return r.measure(ctx, b, defences) })
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	r.Incomplete = err != nil
	return r, err
}

// share is the flood of which a share is dropped, in percent.
func (b *bench) share(percent float64) traffic {
	t := b.mix[0]
	t.name, t.lets = fmt.Sprintf("%g %% dropped", percent), 1-percent/100
	t.flood.Ports = nil
	drop := int(percent * steps / 100)
	for i := range steps {
		port := uint16(mixPort)
		// Spread evenly, as Bresenham's line: no run of one kind is longer than it must be.
		if (i+1)*drop/steps > i*drop/steps {
			port = floodPort
		}
		t.flood.Ports = append(t.flood.Ports, port)
	}
	return t
}

// measure goes through the rungs forwards and backwards in turn.
func (r *MixReport) measure(ctx context.Context, b *bench, defences []contender.Defence) error {
	total := r.Rounds * len(defences)
	for round := range r.Rounds {
		for n := range defences {
			i := n
			if round%2 == 1 {
				i = len(defences) - 1 - n
			}
			g := r.Rungs[i]
			r.Progress(fmt.Sprintf("round %d of %d: %s", round+1, r.Rounds, g.Name), round*len(defences)+n, total)
			if g.Missing != "" {
				continue
			}
			err := r.visit(ctx, b, defences[i], g, round)
			if ctx.Err() != nil {
				return fmt.Errorf("bench: interrupted: %w", ctx.Err())
			}
			if err != nil {
				g.Missing = oneLine(err)
			}
		}
	}
	r.Progress("done", total, total)
	return nil
}

// visit measures a rung once under each traffic.
func (r *MixReport) visit(ctx context.Context, b *bench, d contender.Defence, g *MixRung, round int) (err error) {
	site := contender.Site{Host: b.server, Device: b.device, Sink: b.sink}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx))) }()
	if err := d.Install(ctx, site); err != nil {
		return err
	}
	for _, p := range g.Shares {
		if err := b.mixPoint(ctx, d, b.share(p.At), 0, round, p); err != nil {
			return err
		}
	}
	for _, p := range g.Rates {
		if err := b.mixPoint(ctx, d, b.share(100), p.At, round, p); err != nil {
			return err
		}
	}
	return nil
}

// mixPoint takes one window; a disturbed one is tried again, and kept.
func (b *bench) mixPoint(ctx context.Context, d contender.Defence, t traffic, rate float64, round int, p *MixPoint) error {
	b.rate = rate
	defer func() { b.rate = 0 }()
	for attempt := range maxAttempts {
		w, err := b.window(ctx, d, t)
		if err != nil {
			return err
		}
		w.Round, w.Attempt, w.Traffic, w.Family = round, attempt, t.name, t.family
		p.Windows = append(p.Windows, *w)
		if len(w.Invalid) == 0 {
			break
		}
	}
	return nil
}
