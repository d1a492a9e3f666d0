package signature

import (
	"cmp"
	"slices"
)

// counted is a value and how often there is one.
type counted[K comparable] struct {
	value K
	n     int
}

// frequent returns the values that at least a share of all have, with their numbers, in no order.
// It keeps as many values as can have that share, whatever the others are (J. Misra, D. Gries,
// Finding repeated elements, 1982): where all are different, as in payloads drawn at random, it
// holds few.
func frequent[K comparable](all []K, share float64) []counted[K] {
	held := make([]counted[K], 0, int(1/share)+1)
	for _, v := range all {
		at := slices.IndexFunc(held, func(c counted[K]) bool { return c.value == v })
		switch {
		case at >= 0:
			held[at].n++
		case len(held) < cap(held):
			held = append(held, counted[K]{v, 1})
		default:
			kept := held[:0]
			for _, c := range held {
				if c.n--; c.n > 0 {
					kept = append(kept, c)
				}
			}
			held = kept
		}
	}
	for i := range held {
		held[i].n = 0
	}
	for _, v := range all {
		for i := range held {
			if held[i].value == v {
				held[i].n++
				break
			}
		}
	}
	return slices.DeleteFunc(held, func(c counted[K]) bool {
		return float64(c.n) < share*float64(len(all))
	})
}

// top returns the values of a histogram, the most frequent first.
func top[K cmp.Ordered](counts map[K]int, most int) []K {
	best := make([]K, 0, most+1)
	for v, n := range counts {
		at := len(best)
		for at > 0 && cmp.Or(n-counts[best[at-1]], cmp.Compare(best[at-1], v)) > 0 {
			at--
		}
		if at < most {
			best = slices.Insert(best, at, v)
			best = best[:min(most, len(best))]
		}
	}
	return best
}

// nearlyAll returns the fewest values, but at least so many, that have a share of all between them,
// the most frequent first; none where these are more than most. It gives up at the first value too
// many.
func nearlyAll[K comparable](all []K, least, most int, share float64,
	compare func(a, b K) int) []K {
	counts := map[K]int{}
	rest := float64(len(all)) * (1 - share) // that others may have
	for _, v := range all {
		if counts[v]++; float64(len(counts)-most) > rest {
			return nil
		}
	}
	var values []K
	for v := range counts {
		values = append(values, v)
	}
	slices.SortFunc(values, func(a, b K) int {
		return cmp.Or(counts[b]-counts[a], compare(a, b))
	})
	sum := 0
	for i, v := range values[:min(most, len(values))] {
		if sum += counts[v]; i+1 >= least && float64(sum) >= share*float64(len(all)) {
			return values[:i+1]
		}
	}
	return nil
}
