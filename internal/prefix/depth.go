package prefix

import (
	"math/bits"
	"net/netip"
	"sync/atomic"
)

// Probes is how many tables the emitted code asks for an address of the set's family: it stops at the
// first that has it. Where the set is straight compares it is how many lie on the way.
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

// Probes is how many prefix lengths a look-up tries, each a bucket and sometimes its neighbour: those that the
// filter names for the address, up to the first with a live entry.
func (d *Dynamic) Probes(a netip.Addr) (tried int) {
	if !a.IsValid() {
		return 0
	}
	f := d.family(a)
	for length := range f.candidates(d.wanted(f, d.keyOf(netip.PrefixFrom(a, f.width)))) {
		p, err := a.Prefix(length)
		if err != nil {
			continue
		}
		tried++
		if s, ok := d.find(d.keyOf(p)); ok && live(atomic.LoadUint64(d.metaAt(s)), d.now()) {
			break
		}
	}
	return tried
}
