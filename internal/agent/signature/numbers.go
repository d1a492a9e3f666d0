package signature

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"levee/internal/lang/field"
)

// widest is the share of the values of a field that a range holds at most: a wider one tells
// nothing of a sender.
const widest = 0.5

// ranges makes terms of numbers: single values, lists, ranges, and what is not a value that good
// packets have.
func (g *group) ranges(ph *field.Phrase, info *field.Info) {
	if ph.Field == field.Proto || ph.Field == field.EtherType {
		return // words of their own
	}
	counts, n := histogram(g.flood, g.inFlood, ph.Field)
	if float64(n) < fewest*float64(len(g.inFlood)) || n == 0 {
		return
	}
	space := float64(info.Max) + 1
	g.exact(ph, counts, n, space)
	goodCounts, goodN := histogram(g.good, g.inGood, ph.Field)
	if !slides(valuesOf(g.flood, g.inFlood, ph.Field)) {
		g.intervals(ph, counts, n, goodCounts, goodN, space)
	}
	if goodN == 0 {
		goodCounts, goodN = histogram(g.good, g.good.allPlaces(), ph.Field)
	}
	g.others(ph, counts, n, goodCounts, goodN)
}

// valuesOf returns the values of a field, in the order of the packets.
func valuesOf(v *view, places []int, f field.Field) (out []uint64) {
	for _, at := range places {
		if num := v.numbers[f][at]; num.has {
			out = append(out, num.v)
		}
	}
	return out
}

func (v *view) allPlaces() []int {
	all := make([]int, v.len())
	for i := range all {
		all[i] = i
	}
	return all
}

// exact makes terms of the most frequent values.
func (g *group) exact(ph *field.Phrase, counts map[uint64]int, n int, space float64) {
	best := top(counts, listed)
	sum := 0
	for i, v := range best {
		// DSCP 0 is what nobody has chosen (RFC 2474)
		if float64(counts[v]) >= fewest*float64(n) && (ph.Field != field.DSCP || v > 0) {
			g.add(ph.Field, false, 1, 1/space, "%s %d", ph.Word, v)
		}
		sum += counts[v]
		if i > 0 && float64(sum) >= core*float64(n) {
			g.add(ph.Field, false, i+1, float64(i+1)/space, "%s %s", ph.Word, list(best[:i+1]))
			break
		}
	}
}

// list writes values in braces, in order.
func list(vs []uint64) string {
	vs = slices.Sorted(slices.Values(vs))
	var out []string
	for i := 0; i < len(vs); i++ {
		j := i
		for j+1 < len(vs) && vs[j+1] == vs[j]+1 {
			j++
		}
		if j > i {
			out = append(out, fmt.Sprintf("%d-%d", vs[i], vs[j]))
		} else {
			out = append(out, fmt.Sprint(vs[i]))
		}
		i = j
	}
	if len(out) == 1 {
		return out[0]
	}
	return "{ " + strings.Join(out, ", ") + " }"
}

// intervals makes terms of ranges: all values of the group, and the ranges that hold most of it and
// least of the good packets that look alike.
func (g *group) intervals(ph *field.Phrase, counts map[uint64]int, n int,
	good map[uint64]int, goodN int, space float64) {
	values := slices.Sorted(maps.Keys(counts))
	add := func(lo, hi uint64) {
		width := (float64(hi) - float64(lo) + 1) / space
		if lo != hi && width <= widest {
			g.add(ph.Field, false, 1, width, "%s %d-%d", ph.Word, lo, hi)
		}
	}
	add(values[0], values[len(values)-1])
	add(middle(values, counts, n))
	if goodN == 0 {
		return
	}
	joint := maps.Clone(good)
	maps.Copy(joint, counts)
	all := slices.Sorted(maps.Keys(joint))
	for _, weight := range []float64{1, 10, 100} {
		lo, hi, found := heaviest(all, func(v uint64) float64 {
			return float64(counts[v])/float64(n) - weight*float64(good[v])/float64(goodN)
		})
		if found {
			// of the range, what the flood has
			i, _ := slices.BinarySearch(values, lo)
			j, exact := slices.BinarySearch(values, hi)
			if !exact {
				j--
			}
			add(values[i], values[j])
		}
	}
}

// middle returns the range of values without half a percent at each end.
func middle(values []uint64, counts map[uint64]int, n int) (lo, hi uint64) {
	cut := n / 200
	i, j := 0, len(values)-1
	for sum := counts[values[i]]; sum <= cut && i < j; sum += counts[values[i]] {
		i++
	}
	for sum := counts[values[j]]; sum <= cut && i < j; sum += counts[values[j]] {
		j--
	}
	return values[i], values[j]
}

// heaviest returns the run of values whose weights have the greatest sum (Kadane's algorithm).
func heaviest(values []uint64, weight func(uint64) float64) (lo, hi uint64, found bool) {
	best, sum, from := 0.0, 0.0, 0
	for i, v := range values {
		if sum <= 0 {
			sum, from = 0, i
		}
		if sum += weight(v); sum > best {
			best, lo, hi, found = sum, values[from], v, true
		}
	}
	return lo, hi, found
}

// others makes the term that holds for values which good packets do not have.
func (g *group) others(ph *field.Phrase, counts map[uint64]int, n int, good map[uint64]int,
	goodN int) {
	if goodN == 0 {
		return
	}
	usual := top(good, listed)
	sum, shared := 0, 0
	for i, v := range usual {
		sum += good[v]
		shared += counts[v]
		if float64(sum) >= 0.999*float64(goodN) && float64(shared) <= 0.2*float64(n) {
			g.add(ph.Field, true, i+1, 0.9, "%s %s", ph.Word, list(usual[:i+1]))
			return
		}
	}
}
