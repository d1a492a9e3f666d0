package known

import (
	"net/netip"
	"slices"
)

// Prefixes are sorted and do not overlap.
type Prefixes []netip.Prefix

// NewPrefixes sorts prefixes that do not overlap.
func NewPrefixes(all []netip.Prefix) Prefixes {
	p := slices.Clone(all)
	slices.SortFunc(p, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return p
}

// Has says whether one of them holds an address.
func (p Prefixes) Has(a netip.Addr) bool {
	at, found := slices.BinarySearchFunc(p, a, func(q netip.Prefix, a netip.Addr) int {
		return q.Addr().Compare(a)
	})
	return found || at > 0 && p[at-1].Contains(a)
}
