package report

import (
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"
)

// Quantile returns the value below which a share q of values lies, 0 < q < 1, interpolated between
// its neighbours, with the shortest interval between two of the values that holds the true quantile
// with the given confidence: their ranks follow a binomial distribution, whatever that of the
// values (David and Nagaraja, "Order Statistics", 3rd edition, section 7.1). Where there are too
// few values for such an interval its bounds are infinite.
func Quantile(values []float64, q, confidence float64) (value, low, high float64) {
	low, high = math.Inf(-1), math.Inf(1)
	if len(values) == 0 {
		return math.NaN(), low, high
	}
	sorted := slices.Sorted(slices.Values(values))
	if from, to, ok := quantileRanks(len(sorted), q, confidence); ok {
		low, high = sorted[from-1], sorted[to-1]
	}
	return quantile(sorted, q), low, high
}

// quantileRanks returns the ranks, from 1, of the values that bound the quantile: as near to each
// other as the confidence allows, and of several such pairs the one that is surest.
func quantileRanks(n int, q, confidence float64) (from, to int, ok bool) {
	below := stats.BinomialDist{N: n, P: q} // of the values
	// upTo[k] is the chance that fewer than k values lie below the quantile.
	upTo := make([]float64, n+2)
	for k := range n + 1 {
		upTo[k+1] = upTo[k] + below.PMF(float64(k))
	}
	best := 0.0
	for width := 1; width < n && !ok; width++ {
		for f := 1; f+width <= n; f++ {
			if sure := upTo[f+width] - upTo[f]; sure >= confidence && sure > best {
				from, to, best, ok = f, f+width, sure, true
			}
		}
	}
	return from, to, ok
}
