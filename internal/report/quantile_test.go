package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestQuantilesOfKnownSamples(t *testing.T) {
	to := func(n int) (v []float64) { // n down to 1
		for i := range n {
			v = append(v, float64(n-i))
		}
		return v
	}
	inf := math.Inf(1)
	for _, c := range []struct {
		what            string
		values          []float64
		q, confidence   float64
		want, low, high float64
	}{
		// Ranks as in tables of the binomial distribution: of twelve the third to the tenth hold
		// the median at 96.1 %.
		{"median of twelve", to(12), 0.5, 0.95, 6.5, 3, 10},
		{"median of six", to(6), 0.5, 0.95, 3.5, 1, 6},
		{"median of five", to(5), 0.5, 0.95, 3, -inf, inf},
		{"lower quartile of sixteen", to(16), 0.25, 0.975, 4.75, 1, 9},
		{"lower quartile of thirteen", to(13), 0.25, 0.975, 4, 1, 9},
		{"lower quartile of twelve", to(12), 0.25, 0.975, 3.75, -inf, inf},
		{"upper quartile of sixteen", to(16), 0.75, 0.975, 12.25, 8, 16},
		{"ties", []float64{7, 7, 7, 7, 7, 7, 7, 7}, 0.5, 0.95, 7, 7, 7},
		{"one value", []float64{3}, 0.25, 0.95, 3, -inf, inf},
	} {
		before := slices.Clone(c.values)
		v, low, high := Quantile(c.values, c.q, c.confidence)
		if v != c.want || low != c.low || high != c.high {
			t.Errorf("%s: %v from %v to %v, want %v from %v to %v", c.what, v, low, high, c.want,
				c.low, c.high)
		}
		if !slices.Equal(c.values, before) {
			t.Errorf("%s: the values were changed", c.what)
		}
	}
	if v, low, high := Quantile(nil, 0.25, 0.95); !math.IsNaN(v) || !math.IsInf(low, -1) ||
		!math.IsInf(high, 1) {
		t.Errorf("of nothing: %v from %v to %v", v, low, high)
	}
}

// TestIntervalsOfQuantilesHoldThem draws from a distribution with a long tail on one side, as that
// of disturbed windows.
func TestIntervalsOfQuantilesHoldThem(t *testing.T) {
	const seed, times = 11, 4000
	random := rand.New(rand.NewPCG(seed, seed))
	for _, n := range []int{13, 16, 40} {
		truth := -math.Log(1 - 0.25) // of the exponential distribution
		held := 0
		for range times {
			values := make([]float64, n)
			for i := range values {
				values[i] = random.ExpFloat64()
			}
			if _, low, high := Quantile(values, 0.25, 0.95); low <= truth && truth <= high {
				held++
			}
		}
		if share := float64(held) / times; share < 0.94 {
			t.Errorf("seed %d: of %d values the interval holds the quartile in %.3f of all "+
				"cases, want 0.95", seed, n, share)
		}
	}
}
