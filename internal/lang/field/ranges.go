package field

import (
	"cmp"
	"slices"
)

// Join sorts ranges and joins those that overlap or touch, in place.
func Join(rs []Range) []Range {
	slices.SortFunc(rs, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && (r.Lo <= out[n-1].Hi || r.Lo == out[n-1].Hi+1) {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
			continue
		}
		out = append(out, r)
	}
	return slices.Clip(out)
}

// Intersect returns what two lists share; both are sorted and disjoint.
func Intersect(a, b []Range) []Range {
	var out []Range
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if lo, hi := max(a[i].Lo, b[j].Lo), min(a[i].Hi, b[j].Hi); lo <= hi {
			out = append(out, Range{lo, hi})
		}
		if a[i].Hi < b[j].Hi {
			i++
		} else {
			j++
		}
	}
	return out
}

// Subtract returns what is in a and not in b; both are sorted and disjoint.
func Subtract(a, b []Range) []Range {
	var out []Range
	j := 0
	for _, r := range a {
		lo, empty := r.Lo, false
		for j < len(b) && b[j].Hi < lo {
			j++
		}
		for k := j; k < len(b) && b[k].Lo <= r.Hi; k++ {
			if b[k].Lo > lo {
				out = append(out, Range{lo, b[k].Lo - 1})
			}
			if b[k].Hi >= r.Hi {
				empty = true
				break
			}
			lo = b[k].Hi + 1
		}
		if !empty {
			out = append(out, Range{lo, r.Hi})
		}
	}
	return out
}
