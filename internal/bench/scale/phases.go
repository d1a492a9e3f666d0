package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"levee/internal/bench/calibration"
	"levee/internal/dataplane"
	"levee/internal/report"
)

// Conditions are how fast the machine was while something was measured: a figure taken while neighbours had the cache is of
// another machine.
type Conditions struct {
	// Load is the ns of a load over a chain of 6 MB that was just visited, Step that of an operation among many (package
	// phase): medians over the readings, and the least and most of them.
	Load      float64    `json:"load_ns"`
	LoadRange [2]float64 `json:"load_range_ns"`
	Step      float64    `json:"step_ns"`
	StepRange [2]float64 `json:"step_range_ns"`
}

// conditionsOf sums readings up, nil of none.
func conditionsOf(readings []calibration.Reading) *Conditions {
	if len(readings) == 0 {
		return nil
	}
	var load, step []float64
	for _, r := range readings {
		load, step = append(load, r.Load), append(step, r.Step)
	}
	c := &Conditions{LoadRange: [2]float64{slices.Min(load), slices.Max(load)}, StepRange: [2]float64{slices.Min(step), slices.Max(step)}}
	c.Load, _, _ = report.Summary(load)
	c.Step, _, _ = report.Summary(step)
	return c
}

// observer reads the machine between rounds.
type observer struct {
	take  func() calibration.Reading
	all   []calibration.Reading // that were taken
	least float64               // pressure of a round, 0 before the first
}

// observe begins reading; end gives the memory of it back.
func (o *Options) observe() (end func() error, err error) {
	m, err := calibration.New()
	if err != nil {
		return nil, err
	}
	o.machine = &observer{take: m.Read}
	return m.Close, nil
}

// read takes a reading. The caller's thread must be locked to its goroutine.
func (x *observer) read() calibration.Reading {
	r := x.take()
	x.all = append(x.all, r)
	return r
}

// pressure is by how much neighbours slow the machine down, in a unit of no meaning: tables take longer by what
// their loads do, programs by what their operations do, and neither reading tells of the other.
func pressure(r calibration.Reading) float64 { return r.Load * r.Step }

// between is the mean of the readings on both sides of a round.
func between(before, behind calibration.Reading) calibration.Reading {
	return calibration.Reading{Load: (before.Load + behind.Load) / 2, Step: (before.Step + behind.Step) / 2}
}

// TraceRound is one round of a program on a trace.
type TraceRound struct {
	Ns    float64 `json:"ns"` // a packet, above the empty program
	Empty float64 `json:"ns_empty"`
	calibration.Reading
	// Counts: it is one of the rounds that figures are of. These are the ones with the least pressure.
	Counts bool `json:"counts"`
}

// Of rounds in a phase that is slower than the calmest round of the whole measurement by more than calm (as a quotient of
// pressures), further ones are tried, until there are as many others as wanted, or triesMost times as many in all.
const (
	calm      = 1.5
	triesMost = 3
)

// tries is how many times the rounds asked for are tried at most.
func (o *Options) tries() int {
	if o.Quick {
		return 1
	}
	return triesMost
}

// calmRounds measures rounds, of which those count that had the least pressure: which these are is asked of the machine, and never
// of how long a packet took. There are so many times as many tries as wanted at most.
func (x *observer) calmRounds(wanted, tries int, round func() (above, empty float64, err error)) ([]TraceRound, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, err := round(); err != nil { // warms up
		return nil, err
	}
	var out []TraceRound
	before := x.read()
	for {
		above, empty, err := round()
		if err != nil {
			return nil, err
		}
		behind := x.read()
		r := TraceRound{Ns: above, Empty: empty, Reading: between(before, behind)}
		before = behind
		out = append(out, r)
		if p := pressure(r.Reading); x.least == 0 || p < x.least {
			x.least = p
		}
		if len(out) < wanted {
			continue
		}
		if len(out) == tries*wanted || pressure(calmest(out, wanted)[wanted-1].Reading) <= calm*x.least {
			break
		}
	}
	for _, r := range calmest(out, wanted) {
		r.Counts = true
	}
	return out, nil
}

// calmest are the n rounds with the least pressure, the calmest first.
func calmest(rounds []TraceRound, n int) []*TraceRound {
	var all []*TraceRound
	for i := range rounds {
		all = append(all, &rounds[i])
	}
	slices.SortStableFunc(all, func(a, b *TraceRound) int {
		switch p, q := pressure(a.Reading), pressure(b.Reading); {
		case p < q:
			return -1
		case p > q:
			return 1
		}
		return 0
	})
	return all[:n]
}

// counted are ns, and ns of the empty program, of the rounds that count, in the order of measuring, and how the machine was.
func counted(rounds []TraceRound) (ns, empty []float64, c *Conditions) {
	var readings []calibration.Reading
	for _, r := range rounds {
		if r.Counts {
			ns, empty, readings = append(ns, r.Ns), append(empty, r.Empty), append(readings, r.Reading)
		}
	}
	return ns, empty, conditionsOf(readings)
}

// trace measures a program on a trace of frames.
func (o *Options) trace(ctx context.Context, runner *dataplane.Runner, list [][]byte) (rounds []TraceRound, err error) {
	trace, err := dataplane.NewTrace(list)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, trace.Close()) }()
	run, err := runner.OnTrace(trace)
	if err != nil {
		return nil, err
	}
	return o.machine.calmRounds(o.Rounds, o.tries(), func() (float64, float64, error) {
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		return run.Round(repeats)
	})
}

// text says how the machine was, for a person.
func (c *Conditions) text(w io.Writer) {
	if c != nil {
		fmt.Fprintf(w, "memory: a chain over 6 MB took %.0f ns a load (%.0f to %.0f), the core %.3f ns an operation (%.3f to %.3f): compare with runs of which these are the same\n",
			c.Load, c.LoadRange[0], c.LoadRange[1], c.Step, c.StepRange[0], c.StepRange[1])
	}
}

// cell is the load in a table.
func (c *Conditions) cell() string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f (%.0f-%.0f)", c.Load, c.LoadRange[0], c.LoadRange[1])
}

// Factors within which two runs had the same machine.
const (
	sameLoad = calm
	sameStep = 1.15 // as bench ladder calls a core shared
)

// settings are what two documents compare.
func (c *Conditions) settings() []report.Setting {
	if c == nil {
		return nil
	}
	return []report.Setting{
		{Name: "ns of a load, chain over 6 MB", Value: fmt.Sprintf("%.1f", c.Load), Within: sameLoad},
		{Name: "ns of an operation", Value: fmt.Sprintf("%.4f", c.Step), Within: sameStep},
	}
}
