package bench

import "levee/internal/report"

// summary is the median with the interval that order statistics give it (report.Summary). Values are
// minRounds or more, or the interval is unbounded.
func summary(values []float64) Figure {
	m, low, high := report.Summary(values)
	return Figure{MedianPPS: m, Interval: [2]float64{low, high}}
}
