package bench

import (
	"golang.org/x/perf/benchmath"
)

const confidence = 0.95

// summary is the median with the interval that order statistics give it: nothing is assumed of the
// distribution (benchmath.AssumeNothing). Values are minRounds or more, or the interval is unbounded.
func summary(values []float64) Figure {
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), confidence)
	return Figure{MedianPPS: s.Center, Interval: [2]float64{s.Lo, s.Hi}}
}
