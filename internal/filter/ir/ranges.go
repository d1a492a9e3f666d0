package ir

import (
	"net/netip"
	"slices"
	"sort"

	"levee/internal/lang/field"
)

// within reports whether every value of a is in b; both sorted, disjoint and not adjacent. The
// ranges looked at are added to steps.
func within(a, b []field.Range, steps *int) bool {
	j := 0
	for i, r := range a {
		for j < len(b) && b[j].Hi < r.Lo {
			j++
		}
		if j == len(b) || r.Lo < b[j].Lo || r.Hi > b[j].Hi {
			*steps += i + j
			return false
		}
	}
	*steps += len(a) + j
	return true
}

// contains reports whether a value is in one of the ranges.
func contains(rs []field.Range, v uint64) bool {
	return slices.ContainsFunc(rs, func(r field.Range) bool { return r.Lo <= v && v <= r.Hi })
}

func sameRanges(a, b []field.Range) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// ofFamily picks one family out of a sorted list in which IPv4 comes before IPv6.
func ofFamily(ps []netip.Prefix, f Family) []netip.Prefix {
	n := sort.Search(len(ps), func(i int) bool { return !ps[i].Addr().Is4() })
	if f == IPv4 {
		return ps[:n]
	}
	return ps[n:]
}

// prefixesWithin reports whether b covers all of a. The lists are merged, so a prefix that is
// covered at all lies in one element. The prefixes of a that were looked for are added to steps.
func prefixesWithin(a, b []netip.Prefix, steps *int) bool {
	for _, p := range a {
		*steps++
		i := sort.Search(len(b), func(i int) bool { return b[i].Addr().Compare(p.Addr()) > 0 })
		if i == 0 || b[i-1].Bits() > p.Bits() || !b[i-1].Contains(p.Addr()) {
			return false
		}
	}
	return true
}

// prefixesDisjoint reports whether no address is in both; both sorted and disjoint in themselves.
// The prefixes looked at are added to steps.
func prefixesDisjoint(a, b []netip.Prefix, steps *int) bool {
	for i, j := 0, 0; i < len(a) && j < len(b); *steps++ {
		if a[i].Overlaps(b[j]) {
			return false
		}
		if a[i].Addr().Less(b[j].Addr()) {
			i++
		} else {
			j++
		}
	}
	return true
}
