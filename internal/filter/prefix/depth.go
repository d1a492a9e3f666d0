package prefix

import (
	"math/bits"
	"net/netip"
)

// Probes returns how many tables the emitted code asks for an address of the set's family: it stops
// at the first that has it. Where the set is straight compares it is how many lie on the way.
func (s *Static) Probes(a netip.Addr) int {
	if s.levels == nil {
		return bits.Len(uint(len(s.bounds)))
	}
	hi, lo := split(a)
	for i := range s.levels {
		if s.levels[i].contains(s.data, hi, lo) {
			return i + 1
		}
	}
	return len(s.levels)
}
