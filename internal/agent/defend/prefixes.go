package defend

import (
	"net/netip"
	"slices"
)

// prefixes are sorted and do not overlap.
type prefixes []netip.Prefix

func newPrefixes(all []netip.Prefix) prefixes {
	p := slices.Clone(all)
	slices.SortFunc(p, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return p
}

// has says whether one of them holds an address.
func (p prefixes) has(a netip.Addr) bool {
	at, found := slices.BinarySearchFunc(p, a, func(q netip.Prefix, a netip.Addr) int {
		return q.Addr().Compare(a)
	})
	return found || at > 0 && p[at-1].Contains(a)
}
