package report

// Rank is a place in an order that the data may not wholly tell.
type Rank struct {
	// Rank is one more than how many are certainly before: those whose interval ends below this
	// one's. 0: there is no interval to tell by.
	Rank int
	// Shared: the interval of another overlaps, so that the data do not say which of them is
	// before.
	Shared bool
}

// Ranks orders by intervals, the least first; nil stands for none.
func Ranks(intervals []*[2]float64) []Rank {
	out := make([]Rank, len(intervals))
	for i, a := range intervals {
		if a == nil {
			continue
		}
		out[i].Rank = 1
		for j, b := range intervals {
			switch {
			case b == nil || i == j:
			case b[1] < a[0]:
				out[i].Rank++
			case a[1] >= b[0]:
				out[i].Shared = true
			}
		}
	}
	return out
}
