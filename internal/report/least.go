package report

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/aclements/go-moremath/stats"
)

// Of the interval of LeastThird: how many samples are drawn, and from what seed, so that the same
// values give the same interval.
const (
	resamples    = 2000
	resampleSeed = 1
)

// LeastThird returns the mean of the third of the values that is least, rounded up to whole values,
// with its interval at the given confidence: percentiles of the same mean over samples drawn from
// the values with replacement (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
// section 13.3). It is for what other samples of as many values have on the average. Of values that
// are disturbed upwards only, or are of two levels, it moves with the share of each, where a
// quantile falls from one level to the other. There must be a value.
func LeastThird(values []float64, confidence float64) (mean, low, high float64) {
	r := rand.New(rand.NewPCG(resampleSeed, uint64(len(values))))
	drawn, means := make([]float64, len(values)), make([]float64, resamples)
	for i := range means {
		for j := range drawn {
			drawn[j] = values[r.IntN(len(values))]
		}
		means[i] = leastThird(drawn)
	}
	slices.Sort(means)
	beyond := tail(len(values), confidence)
	return leastThird(slices.Clone(values)), quantile(means, beyond), quantile(means, 1-beyond)
}

// tail returns the share of the drawn means that lies beyond each end of an interval: less than
// half of what the confidence leaves, by as much as makes up for few values (expanded percentiles:
// Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69, 2015,
// section 4.4).
func tail(n int, confidence float64) float64 {
	if n < 2 {
		return 0
	}
	t := stats.InvCDF(stats.TDist{V: float64(n - 1)})((1 + confidence) / 2)
	return stats.StdNormal.CDF(-math.Sqrt(float64(n)/float64(n-1)) * t)
}

// leastThird sorts the values.
func leastThird(values []float64) float64 {
	slices.Sort(values)
	n := (len(values) + 2) / 3
	sum := 0.0
	for _, v := range values[:n] {
		sum += v
	}
	return sum / float64(n)
}
