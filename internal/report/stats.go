package report

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Confidence of all intervals.
const Confidence = 0.95

// Summary returns the median of values, of which there are one or more, with the interval that
// order statistics give it at 95 %: nothing is assumed of the distribution. Of fewer than six
// values the interval is unbounded.
func Summary(values []float64) (median, low, high float64) {
	if len(values) == 0 {
		return math.NaN(), math.Inf(-1), math.Inf(1)
	}
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values),
		&benchmath.DefaultThresholds), Confidence)
	return s.Center, s.Lo, s.Hi
}

// Outliers marks the values that lie more than one and a half interquartile ranges outside the
// quartiles (Tukey, "Exploratory Data Analysis", 1977). They are shown as such and stay in every
// median: a window that the machine disturbed is a fact about the machine.
func Outliers(values []float64) []bool {
	out := make([]bool, len(values))
	if len(values) < 4 { // quartiles of fewer mean nothing
		return out
	}
	sorted := slices.Sorted(slices.Values(values))
	q1, q3 := quantile(sorted, 0.25), quantile(sorted, 0.75)
	reach := 1.5 * (q3 - q1)
	for i, v := range values {
		out[i] = v < q1-reach || v > q3+reach
	}
	return out
}

// quantile interpolates between the two values next to it.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
