package rules

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"

	"levee/internal/bench"
	"levee/internal/bench/calibration"
	"levee/internal/dataplane/loader"
)

// pressure is by how much neighbours slow the machine down, in a unit of no meaning: tables take
// longer by what their loads do, programs by what their operations do, and neither reading tells of
// the other.
func pressure(r calibration.Reading) float64 { return r.Load * r.Step }

// between returns the mean of the readings on both sides of a round.
func between(before, behind calibration.Reading) calibration.Reading {
	return calibration.Reading{Load: (before.Load + behind.Load) / 2,
		Step: (before.Step + behind.Step) / 2, Wait: (before.Wait + behind.Wait) / 2}
}

// TraceRound is one round of a program on a trace.
type TraceRound struct {
	Ns    float64 `json:"ns"` // a packet, above the empty program
	Empty float64 `json:"ns_empty"`
	calibration.Reading
	// Counts: it is one of the rounds behind the figures. These are the ones with the least
	// pressure.
	Counts bool `json:"counts"`
}

// triesMost bounds how many times as many rounds as wanted are tried. Further ones are, while there
// are not as many as wanted whose pressure is within bench.SameLoad of that of the calmest round of
// the whole measurement.
const triesMost = 3

// tries returns how many times the rounds asked for are tried at most.
func (o *Options) tries() int {
	if o.Quick {
		return 1
	}
	return triesMost
}

// calmRounds measures rounds, of which those count that had the least pressure: which these are is
// asked of the machine, and never of how long a packet took. There are so many times as many tries
// as wanted at most.
func (o *Options) calmRounds(wanted, tries int,
	round func() (above, empty float64, err error)) ([]TraceRound, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, err := round(); err != nil { // warms up
		return nil, err
	}
	var out []TraceRound
	before := o.Machine.Read()
	for {
		above, empty, err := round()
		if err != nil {
			return nil, err
		}
		behind := o.Machine.Read()
		r := TraceRound{Ns: above, Empty: empty, Reading: between(before, behind)}
		before = behind
		out = append(out, r)
		if p := pressure(r.Reading); o.calmest == 0 || p < o.calmest {
			o.calmest = p
		}
		if len(out) < wanted {
			continue
		}
		if len(out) == tries*wanted || pressure(calmest(out,
			wanted)[wanted-1].Reading) <= bench.SameLoad*o.calmest {
			break
		}
	}
	for _, r := range calmest(out, wanted) {
		r.Counts = true
	}
	return out, nil
}

// calmest returns the n rounds with the least pressure, the calmest first.
func calmest(rounds []TraceRound, n int) []*TraceRound {
	var all []*TraceRound
	for i := range rounds {
		all = append(all, &rounds[i])
	}
	slices.SortStableFunc(all, func(a,
		b *TraceRound) int {
		return cmp.Compare(pressure(a.Reading), pressure(b.Reading))
	})
	return all[:n]
}

// counted are ns, and ns of the empty program, of the rounds that count, in the order of measuring,
// and how the machine was.
func counted(rounds []TraceRound) (ns, empty []float64, c *bench.Conditions) {
	var readings []calibration.Reading
	for _, r := range rounds {
		if r.Counts {
			ns, empty, readings = append(ns, r.Ns), append(empty, r.Empty),
				append(readings, r.Reading)
		}
	}
	return ns, empty, bench.ConditionsOf(readings)
}

// trace measures a program on a trace of frames.
func (o *Options) trace(ctx context.Context, runner *loader.Runner,
	list [][]byte) (rounds []TraceRound, err error) {
	trace, err := loader.NewTrace(list)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, trace.Close()) }()
	run, err := runner.OnTrace(trace)
	if err != nil {
		return nil, err
	}
	return o.calmRounds(o.Rounds, o.tries(), func() (float64, float64, error) {
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		return run.Round(repeats)
	})
}
