package signature

import "slices"

// A counter of the sender, as of source ports that a tool walks through, has a range at each moment
// and leaves it at the next.
const (
	slideNext  = 0.25 // the last part of a sample stands for the packets to come
	slideHolds = 0.8  // share of these that a range of the others has to hold for
	slideWalks = 0.8  // share of steps up, or down, of a counter
	slideFew   = 20   // packets to come: fewer say nothing
)

// slides says whether values, in the order in which they came, are those of a counter: they walk in
// one direction, or the range of most does not hold for the last.
func slides(values []uint64) bool {
	cut := len(values) - int(slideNext*float64(len(values)))
	if len(values)-cut < slideFew {
		return false
	}
	lo, hi, held := slices.Min(values[:cut]), slices.Max(values[:cut]), 0
	for _, v := range values[cut:] {
		if lo <= v && v <= hi {
			held++
		}
	}
	return float64(held) < slideHolds*float64(len(values)-cut) || walks(values)
}

// walks says whether values go one way. A few that come again and again in an order do not.
func walks(values []uint64) bool {
	up, down := 0, 0
	for i, v := range values[1:] {
		switch last := values[i]; {
		case v > last:
			up++
		case v < last:
			down++
		}
	}
	different := slices.Compact(slices.Sorted(slices.Values(values)))
	return len(different) > len(values)/4 &&
		float64(max(up, down)) >= slideWalks*float64(up+down)
}
