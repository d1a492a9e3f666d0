package receive

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/kernel"
	"levee/internal/lab"
	"levee/internal/usage"
)

// Options of a comparison. The zero value measures all, in about six minutes.
type Options struct {
	bench.Options
	Only  []string // ways by name, empty for all
	Sizes []int    // of frames in bytes, without their check sequence; nil for defaultSizes
	// Cores are numbers of cores: 1, which the kernel's receiving thread and the reader share, or
	// 2, where the reader has one of its own. nil for both.
	Cores []int
	Rate  float64 // packets a second that the generator sends, 0 for as fast as it goes
}

// Sizes of frames: the least that Ethernet has, and what an MTU of 1500 allows, both without the
// check sequence.
const (
	shortest = 60
	longest  = 1514
)

// defaultSizes are bytes of frames, without their check sequence.
var defaultSizes = []int{64, 256, 512, 1024, 1500}

const (
	warmup  = 100 * time.Millisecond // from when the first packet is taken
	startup = 5 * time.Second        // within which it must
	settled = 3 * time.Second        // within which what waits must be taken
	attempt = 3                      // windows tried, where one is disturbed
	// maxImbalance is the largest imbalance of packets, as a share.
	maxImbalance = 0.001
)

var usual = bench.Usual{
	Rounds: 6, FewestRounds: 1, MostRounds: 100,
	Window: 400 * time.Millisecond, QuickWindow: 100 * time.Millisecond,
	Shortest: 20 * time.Millisecond, Longest: time.Minute,
}

func (o *Options) complete() error {
	if o.Sizes == nil {
		o.Sizes = defaultSizes
		if o.Quick {
			o.Sizes = []int{64, 1500}
		}
	}
	if o.Cores == nil {
		o.Cores = []int{1, 2}
	}
	sizes, cores := slices.Clone(o.Sizes), slices.Clone(o.Cores)
	slices.Sort(sizes)
	slices.Sort(cores)
	o.Sizes, o.Cores = slices.Compact(sizes), slices.Compact(cores)
	for _, n := range o.Sizes {
		if n < shortest || n > longest {
			return usage.Wrongf("frames of %d bytes: %d to %d, without their check sequence", n,
				shortest, longest)
		}
	}
	for _, n := range o.Cores {
		if n != 1 && n != 2 {
			return usage.Wrongf("%d cores: 1, which receiver and reader share, or 2", n)
		}
	}
	if o.Rate != 0 && !flood.SaneRate(o.Rate) {
		return usage.Wrongf("a rate of %.0f packets a second: %d to %d million", o.Rate,
			flood.MinRate, flood.MaxRate/1_000_000)
	}
	return o.Options.Complete(usual)
}

// comparison is one under way.
type comparison struct {
	Options
	lab     *lab.Lab
	in, out *lab.Device
	cores   []int // that this process may use
	meter   *lab.Meter
	kernel  *flood.Stopwatch // of the receiving thread
}

// Run compares. A way that has no figure says why in the report; the report of an interrupted run
// has what was measured until then. It needs root and two cores.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	chosen, wrong := bench.Choose("way", o.Only, ways, nameOf)
	if err := bench.Ready("receive", o.complete(), wrong); err != nil {
		return nil, err
	}
	l, err := lab.New(context.WithoutCancel(ctx), lab.Standard())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	c := &comparison{Options: o, lab: l, in: &l.Host(lab.Server).Devices[0],
		out: &l.Host(lab.World).Devices[0]}
	end, err := c.prepare()
	if err != nil {
		return nil, err
	}
	defer end()
	// The collector would stop the threads that read, and there is hardly anything for it to do.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	r := &Report{Head: o.Head(c.in.CPU, caveats...), WindowMS: o.Window.Milliseconds(),
		Rate: o.Rate}
	r.WarnOfQuick()
	r.Caveats = append(r.Caveats, c.places())
	for _, w := range chosen {
		e := &Entry{Name: w.name, What: w.what}
		for _, cores := range o.Cores {
			for _, size := range o.Sizes {
				if cores == 1 && w.polls {
					continue
				}
				e.Cells = append(e.Cells, &Cell{Cores: cores, Bytes: size})
			}
		}
		r.Ways = append(r.Ways, e)
	}
	err = c.rounds(ctx, chosen, r)
	r.summarise()
	return bench.Ended(ctx, r, &r.Head, err)
}

// prepare opens what is read, and puts what is measured before others.
func (c *comparison) prepare() (end func(), err error) {
	switch {
	case c.in.NAPI == 0:
		return nil, kernel.Refuse(nil,
			"this kernel does not say which thread receives (needs Linux 6.8)")
	case c.in.CPU < 0 || c.in.CPU == c.out.CPU:
		return nil, kernel.Refuse(nil, "measuring needs two cores: one receives, one generates")
	}
	var undo []func()
	end = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	if c.cores, err = lab.AllowedCPUs(); err != nil {
		return nil, err
	}
	if c.meter, err = c.lab.Host(lab.Server).Meter(c.in.Name); err != nil {
		return nil, err
	}
	undo = append(undo, c.meter.Close)
	c.kernel = flood.NewStopwatch(c.in.NAPI)
	undo = append(undo, c.kernel.Close)
	if err := unix.Setpriority(unix.PRIO_PROCESS, c.in.NAPI, niceness); err != nil {
		return nil, fmt.Errorf("raising the priority of the receiving thread: %w", err)
	}
	lower, err := lab.RaiseSession(niceness)
	if err != nil {
		return nil, err
	}
	undo = append(undo, lower)
	return end, nil
}

// Priorities: the receiving thread goes before the generator where they share a core.
const (
	niceness       = -20
	generatorsNice = -15
)

// place says which cores the receiving thread and the reader have.
func (c *comparison) place(cores int) (receiver, reader int) {
	if cores == 1 {
		return c.in.CPU, c.in.CPU
	}
	for _, cpu := range c.cores {
		if cpu != c.in.CPU && cpu != c.out.CPU {
			return c.in.CPU, cpu
		}
	}
	return c.out.CPU, c.in.CPU
}

// places says it for people.
func (c *comparison) places() string {
	if len(c.cores) > 2 {
		return "cores: 1 is the reader on the core of the kernel's receiving thread, 2 the " +
			"reader on one of its own; the generator has another"
	}
	return "cores: 1 is the reader on the core of the kernel's receiving thread, 2 the reader " +
		"on one of its own; the receiving thread shares the generator's then, for want of a third"
}

// rounds goes through cores, ways and sizes. It ends early only if ctx does.
func (c *comparison) rounds(ctx context.Context, chosen []way, r *Report) error {
	type pair struct {
		way  way
		of   *Entry
		cell *Cell
	}
	var pairs []pair
	for cores, size := range r.shapes() {
		for i, e := range r.Ways {
			if cell := e.cell(cores, size); cell != nil {
				pairs = append(pairs, pair{chosen[i], e, cell})
			}
		}
	}
	for round := range c.Rounds {
		for n, i := range bench.InTurn(round, len(pairs)) {
			p := pairs[i]
			if p.of.Missing != "" {
				continue
			}
			c.Tell(fmt.Sprintf("%s, frames of %d bytes, cores: %d", p.way.name, p.cell.Bytes,
				p.cell.Cores), round*len(pairs)+n, c.Rounds*len(pairs))
			var w Window
			for range attempt {
				var err error
				w, err = c.window(ctx, p.way, p.cell)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if errors.Is(err, errNone) {
					p.of.Missing = err.Error()
					break
				}
				if err != nil {
					w.Invalid = err.Error()
				}
				if w.Invalid == "" {
					break
				}
			}
			w.Round = round
			if p.of.Missing == "" {
				p.cell.Windows = append(p.cell.Windows, w)
			}
		}
	}
	return nil
}
