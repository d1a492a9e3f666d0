package prefix

import (
	"net/netip"
	"sort"
)

// Contains is the reference for the emitted code: it reads the same bytes.
func (s *Static) Contains(a netip.Addr) bool {
	if a.BitLen() != s.width {
		return false
	}
	hi, lo := split(a)
	if s.levels == nil {
		n := sort.Search(len(s.bounds), func(i int) bool {
			b := s.bounds[i]
			return b.hi > hi || b.hi == hi && b.lo > lo
		})
		return s.all || n%2 == 1
	}
	for i := range s.levels {
		if s.levels[i].contains(s.data, hi, lo) {
			return true
		}
	}
	return false
}
