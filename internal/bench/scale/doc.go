// Package scale measures how levee and what is used instead of it behave as sets and rule sets grow: from ten
// entries to a million, from ten rules to a hundred thousand.
//
// In go sizes, a seed or data of one's own; out comes a report for people, for programs (JSON) and as plots
// (SVG). Three kinds of measurement are kept apart:
//
//   - Look-ups inside the kernel (lookup.go): an eBPF program asks a structure for addresses that lie
//     in a map; the same loop without the question is measured in turns with it and subtracted.
//   - Routing tables (routes.go): the same look-ups, with the kernel's FIB among the structures.
//   - Policies on traces (rules.go): the compiled program judges thousands of different frames one
//     after the other, above an empty program on the same frames (dataplane.Trace).
//   - Packets a second (tools.go): a flood through a lab, by all the rules of package bench.
//
// Rounds go through what is compared forwards and backwards in turn; figures are medians with 95 %
// intervals. A structure that answers wrongly, or that the kernel refuses, has no figure but a reason.
// The package leaves nothing behind in the kernel.
package scale

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/option"
	"levee/internal/report"
)

// Figure is a median with its 95 % interval.
type Figure struct {
	Median   float64    `json:"median"`
	Interval [2]float64 `json:"interval"`
}

func figure(values []float64) *Figure {
	if len(values) == 0 {
		return nil
	}
	m, lo, hi := report.Summary(values)
	if math.IsInf(lo, 0) || math.IsInf(hi, 0) { // JSON has no infinity
		lo, hi = slices.Min(values), slices.Max(values)
	}
	return &Figure{m, [2]float64{lo, hi}}
}

// Limits of options.
const (
	minRounds = option.MinRounds
	// sane is the longest that putting rules or entries into force may take.
	sane = time.Minute
)

// Options of both measurements. The zero value measures everything at the default sizes, which takes hours;
// see the commands' help.
type Options struct {
	Sizes       []int         // nil for the powers of ten
	Seed        uint64        // of what is drawn
	Rounds      int           // 0 for 7
	Window      time.Duration // of a flood, 0 for 1 s
	Attempts    int           // at a flood that is disturbed, 0 for 3
	Quick       bool          // short windows: a look, not a figure to quote
	SkipLab     bool          // no floods
	SkipLookups bool          // nothing but floods
	Only        []string      // structures and tools by name, nil for all
	Command     string        // to repeat it, for the report
	// Progress, if given, is told what is being done, and how long the rest may take.
	Progress func(Progress)

	depths  bool                              // measure depths as well
	tell    func(doing string, share float64) // what is done now, and how much of the case under way is
	machine *observer                         // nil before observe
	slow    map[string]int                    // of kinds of sets and rules, with a tool: the size that it did not load in time
}

func (o *Options) complete(most int) error {
	if o.Rounds == 0 {
		o.Rounds = minRounds + 1
	}
	if err := option.Rounds(o.Rounds); err != nil {
		return err
	}
	if o.Window != 0 {
		if err := option.Window(o.Window, bench.MinWindow, bench.MaxWindow); err != nil {
			return err
		}
	}
	if o.Sizes == nil {
		for n := 10; n <= most; n *= 10 {
			o.Sizes = append(o.Sizes, n)
		}
	}
	for _, n := range o.Sizes {
		if n < 1 || n > most {
			return option.Wrongf("a size of %d: 1 to %d", n, most)
		}
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	o.tell = func(string, float64) {}
	o.slow = map[string]int{}
	return nil
}

// lookupShare is the part of a case that is done, by estimate, when its look-ups are and the lab begins.
const lookupShare = 0.3

func (o *Options) wants(name string) bool { return len(o.Only) == 0 || slices.Contains(o.Only, name) }

// ladder are the options of a measurement in the lab.
func (o *Options) ladder(what string) bench.Options {
	return bench.Options{
		Rounds: o.Rounds, Window: o.Window, Attempts: o.Attempts, Quick: o.Quick, Seed: o.Seed, Command: o.Command,
		Progress: func(doing string, done, total int) {
			share := 0.0
			if !o.SkipLookups {
				share = lookupShare
			}
			o.tell(what+", "+doing, share+(1-share)*float64(done)/float64(max(total, 1)))
		},
	}
}

// incomplete is what a report says of an error that ended the measurement before its end, and what the error
// becomes.
func incomplete(ctx context.Context, name string, done, cases int, err error) (string, error) {
	after := fmt.Sprintf("after %d of %d cases", done, cases)
	why := fmt.Sprintf("%s: %v", after, err)
	if ctx.Err() != nil {
		why, err = after+": interrupted", fmt.Errorf("interrupted: %w", ctx.Err())
	}
	return why, fmt.Errorf("%s: the report is incomplete: %w", name, err)
}

// inTurn lists 0 to n-1, backwards in odd rounds, so that a drift of the machine falls on all alike.
func inTurn(round, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
		if round%2 == 1 {
			out[i] = n - 1 - i
		}
	}
	return out
}
