// Package mix measures how many packets a second a place to drop them takes, by the share of them
// that it drops while the rest reaches an application, and how many it takes of what is offered.
//
// In go Options, out comes a Report with a figure for each rung and traffic. The windows are those
// of package flood and keep its rules.
package mix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/lab/contender"
	"levee/internal/usage"
)

// port takes what is not dropped.
const port = flood.Port + 1

// steps is the number of steps of the share of dropped packets: a flood walks through so many
// ports.
const steps = 20

// Options of a measurement. The zero value takes about four minutes.
type Options struct {
	flood.Options
	Rungs []string // names, empty for all
	// of packets that are dropped, in percent: multiples of 5; empty for 0, 25, 50, 75, 90, 95 and
	// 100
	Shares []float64
	// of a flood that is dropped whole, in packets a second; empty for 250 k to 4 M
	Rates []float64
}

// maxPoints is the largest number of shares and rates.
const maxPoints = 40

var usual = flood.Usual{
	Usual: bench.Usual{Rounds: 6, Window: 400 * time.Millisecond,
		QuickWindow: 100 * time.Millisecond},
	Warmup: flood.Many.Warmup, QuickWarmup: flood.Many.QuickWarmup,
}

func (o *Options) complete() error {
	if len(o.Shares) == 0 {
		o.Shares = []float64{0, 25, 50, 75, 90, 95, 100}
	}
	if len(o.Rates) == 0 {
		o.Rates = []float64{250e3, 500e3, 1e6, 2e6, 4e6}
	}
	for _, list := range []*[]float64{&o.Shares, &o.Rates} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	for _, s := range o.Shares {
		if n := s * steps / 100; !(s >= 0 && s <= 100) || n != float64(int(n)) {
			return usage.Wrongf("a share of %g %%: 0 to 100 in steps of %d", s, 100/steps)
		}
	}
	for _, r := range o.Rates {
		if !flood.SaneRate(r) {
			return usage.Wrongf("a rate of %.0f packets a second: %d to %d million", r,
				flood.MinRate, flood.MaxRate/1_000_000)
		}
	}
	if n := len(o.Shares) + len(o.Rates); n > maxPoints {
		return usage.Wrongf("%d shares and rates: %d are enough", n, maxPoints)
	}
	return o.Options.Complete(usual)
}

// defences returns the places that are compared; the application is behind all of them.
func defences() []contender.Defence {
	return []contender.Defence{
		flood.OneRule(), contender.NFTOneRule(flood.Port), contender.IPTablesRaw(flood.Port),
		contender.IPTablesInput(flood.Port),
	}
}

// Names returns the names of the rungs.
func Names() []string { return bench.Names(defences(), contender.Defence.Name) }

// Report is the outcome.
type Report struct {
	bench.Head
	Window time.Duration
	Rungs  []*Rung
}

// Rung is one place to drop.
type Rung struct {
	*flood.Rung
	Shares []*Point // packets a second against the share that is dropped
	Rates  []*Point // processed against offered
}

// Point is a rung under one traffic.
type Point struct {
	At    float64 // the share in percent, or the rate that was asked for
	of    string  // the traffic's name
	inLab *flood.Rung
}

// Run measures. It needs root and two cores. An error means that there is no report, except when
// ctx ends: then the report has what was measured until then.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	l, rungs, err := flood.OpenFor(ctx, "mix", &o.Options, o.complete(), o.Rungs, defences())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.Listen(port, true); err != nil {
		return nil, err
	}
	udp := flood.Floods([]string{"udp"}, flood.IPv4, l.In())[0]
	c := &flood.Comparison{Rungs: rungs, Rounds: o.Rounds, Each: true}
	for _, s := range o.Shares {
		c.Traffic = append(c.Traffic, share(udp, s))
	}
	for _, rate := range o.Rates {
		t := share(udp, 100)
		t.Name, t.Rate = "at "+flood.Rate(rate), rate
		c.Traffic = append(c.Traffic, t)
	}
	r = &Report{Head: o.Head(l.ReceiverCPU, slices.Concat(caveats, l.Circumstances())...),
		Window: o.Window}
	r.WarnOfQuick()
	for _, d := range rungs {
		g := &Rung{Rung: d}
		for i, t := range c.Traffic {
			if i < len(o.Shares) {
				g.Shares = append(g.Shares, &Point{o.Shares[i], t.Name, g.Rung})
			} else {
				g.Rates = append(g.Rates, &Point{t.Rate, t.Name, g.Rung})
			}
		}
		r.Rungs = append(r.Rungs, g)
	}
	return bench.Ended(ctx, r, &r.Head, l.Compare(ctx, c))
}

// share returns a flood of which a share is dropped, in percent.
func share(t flood.Traffic, percent float64) flood.Traffic {
	t.Name, t.Passes = fmt.Sprintf("%g %% dropped", percent), 1-percent/100
	t.Flood.Ports = nil
	drop := int(percent * steps / 100)
	for i := range steps {
		to := uint16(port)
		// Spread evenly, as Bresenham's line: no run of one kind is longer than it must be.
		if (i+1)*drop/steps > i*drop/steps {
			to = flood.Port
		}
		t.Flood.Ports = append(t.Flood.Ports, to)
	}
	return t
}

// valid returns the windows that count.
func (p *Point) valid() (out []*flood.Window) {
	for i := range p.inLab.Windows {
		if w := &p.inLab.Windows[i]; w.Traffic == p.of && len(w.Invalid) == 0 {
			out = append(out, w)
		}
	}
	return out
}

// why there is no figure.
func (p *Point) why() string {
	for _, w := range p.inLab.Windows {
		if w.Traffic == p.of && len(w.Invalid) > 0 {
			return w.Invalid[0]
		}
	}
	return fmt.Sprintf("%d rounds of %d", len(p.valid()), bench.MinRounds)
}
