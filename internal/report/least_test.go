package report

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTheLeastThirdIsAMeanOfWholeValues(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 3}, 3},
		{[]float64{9, 3, 5}, 3},
		{[]float64{9, 3, 5, 7}, 4},
		{[]float64{90, 10, 20, 80, 30, 70, 60, 50, 40}, 20},
	} {
		values := slices.Clone(c.values)
		got, low, high := LeastThird(values, Confidence)
		if got != c.want || low > got || high < got {
			t.Errorf("%v: %v (%v to %v), want %v", c.values, got, low, high, c.want)
		}
		if !slices.Equal(values, c.values) {
			t.Errorf("%v: the values were changed", c.values)
		}
		if again, l, h := LeastThird(values, Confidence); again != got || l != low || h != high {
			t.Errorf("%v: another result the second time", c.values)
		}
	}
}

func TestTheLeastThirdMovesWithTheShareOfTwoLevelsAndDoesNotFall(t *testing.T) {
	// Sixteen values of 80 or 100: one more of the lower ones moves it by a sixth of the distance
	// at most.
	last := 100.0
	for low := range 17 {
		values := slices.Repeat([]float64{100}, 16)
		for i := range low {
			values[i] = 80
		}
		got, _, _ := LeastThird(values, Confidence)
		if last-got > 20.0/6+1e-9 || got > last {
			t.Errorf("%d of 16 at the lower level: %v after %v", low, got, last)
		}
		last = got
	}
}

func TestIntervalsOfTheLeastThirdHoldIt(t *testing.T) {
	const seed, runs, n = 11, 200, 16
	r := rand.New(rand.NewPCG(seed, 0))
	draw := func() float64 { // of two levels, with outliers upwards
		switch v := 80 + 4*r.Float64(); r.IntN(10) {
		case 0:
			return 2 * v
		case 1, 2, 3:
			return 1.25 * v
		default:
			return v
		}
	}
	sample := func() []float64 {
		values := make([]float64, n)
		for i := range values {
			values[i] = draw()
		}
		return values
	}
	const many = 20_000
	sum := 0.0
	for range many {
		sum += leastThird(sample())
	}
	held := 0
	for range runs {
		if _, low, high := LeastThird(sample(), 0.975); low <= sum/many && sum/many <= high {
			held++
		}
	}
	if held < runs*92/100 {
		t.Errorf("seed %d: %d of %d intervals hold it", seed, held, runs)
	}
}
