package bench

import (
	"context"
	"fmt"
	"math"
	"slices"

	"levee/internal/report"
)

// InTurn lists 0 to n-1, backwards in odd rounds (A B B A), so that a drift of the machine falls on
// all alike.
func InTurn(round, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
		if round%2 == 1 {
			out[i] = n - 1 - i
		}
	}
	return out
}

// Interrupted is the error of a measurement whose context has ended, nil while it goes on.
func Interrupted(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", ctx.Err())
	}
	return nil
}

// Ended returns how a measurement ends that has come to err: the report of one that ctx has ended
// says so and is handed over with the error, another error leaves none.
func Ended[R any](ctx context.Context, r *R, h *Head, err error) (*R, error) {
	if err == nil {
		return r, nil
	}
	if ctx.Err() == nil {
		return nil, err
	}
	h.Incomplete = "interrupted"
	return r, err
}

// Figure is a median with its 95 % interval.
type Figure struct {
	Median   float64    `json:"median"`
	Interval [2]float64 `json:"interval"`
}

// FigureOf returns the figure of rounds, nil of none. Of fewer than MinRounds the interval is from
// the least to the most, for JSON has no infinity.
func FigureOf(values []float64) *Figure {
	if len(values) == 0 {
		return nil
	}
	m, lo, hi := report.Summary(values)
	if math.IsInf(lo, 0) || math.IsInf(hi, 0) {
		lo, hi = slices.Min(values), slices.Max(values)
	}
	return &Figure{m, [2]float64{lo, hi}}
}

// Above measures a loop without what is asked for, twice with it, and once more without: what it
// takes above the loop, without a drift that lasts.
func Above(measure func(with bool) (ns float64, err error)) (float64, error) {
	var took [4]float64
	for i, with := range []bool{false, true, true, false} {
		var err error
		if took[i], err = measure(with); err != nil {
			return 0, err
		}
	}
	return (took[1] + took[2] - took[0] - took[3]) / 2, nil
}
