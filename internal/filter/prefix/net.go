package prefix

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
)

// network is a prefix with its address left-aligned in 128 bits: an IPv4 address lies in the upper
// half of hi. Bits behind len are zero.
type network struct {
	hi, lo uint64
	len    int
}

// split gives an address left-aligned, as in network.
func split(a netip.Addr) (hi, lo uint64) {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])) << 32, 0
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// join returns the inverse of split.
func join(hi, lo uint64, bits int) netip.Addr {
	if bits == 32 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(hi>>32))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.AddrFrom16(b)
}

// mask keeps the first n bits.
func mask(hi, lo uint64, n int) (uint64, uint64) {
	if n <= 64 {
		return hi &^ (^uint64(0) >> n), 0
	}
	return hi, lo &^ (^uint64(0) >> (n - 64))
}

func compare(a, b network) int {
	if a.hi != b.hi { // nearly always; cmp.Or would compare all three
		return cmp.Compare(a.hi, b.hi)
	}
	return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(a.len, b.len))
}

func (n network) covers(hi, lo uint64) bool {
	hi, lo = mask(hi, lo, n.len)
	return hi == n.hi && lo == n.lo
}

// common returns the number of leading bits that two addresses share.
func common(ahi, alo, bhi, blo uint64) int {
	if x := ahi ^ bhi; x != 0 {
		return bits.LeadingZeros64(x)
	}
	return 64 + bits.LeadingZeros64(alo^blo)
}

// networks converts the prefixes of one family (width 32 or 128), sorts them, and leaves the
// shortest list that covers the same addresses: disjoint, no two of them halves of one prefix.
// Prefixes of the other family and invalid ones are left out.
func networks(prefixes []netip.Prefix, width int) []network {
	out := make([]network, 0, len(prefixes))
	for _, p := range prefixes {
		if !p.IsValid() || p.Addr().BitLen() != width {
			continue
		}
		hi, lo := split(p.Addr())
		hi, lo = mask(hi, lo, p.Bits())
		out = append(out, network{hi, lo, p.Bits()})
	}
	if !slices.IsSortedFunc(out, compare) {
		slices.SortFunc(out, compare)
	}
	return merge(out)
}

// merge works in place on sorted networks: a covered one follows the one that covers it, so only
// the last one kept has to be compared.
func merge(sorted []network) []network {
	out := sorted[:0]
	for _, n := range sorted {
		if len(out) > 0 && out[len(out)-1].covers(n.hi, n.lo) {
			continue
		}
		for len(out) > 0 && n.len > 0 {
			last := out[len(out)-1]
			if last.len != n.len || common(last.hi, last.lo, n.hi, n.lo) != n.len-1 {
				break
			}
			n = network{last.hi, last.lo, n.len - 1}
			out = out[:len(out)-1]
		}
		out = append(out, n)
	}
	return out
}

// bound is an address at which membership changes: addresses from here on are in, or out, by turns.
type bound struct{ hi, lo uint64 }

// bounds lists where membership changes, the first entry beginning a range that is in. A range
// that reaches the last address has no end.
func bounds(nets []network, width int) []bound {
	var out []bound
	for _, n := range nets {
		start := bound{n.hi, n.lo}
		if len(out) > 0 && out[len(out)-1] == start {
			out = out[:len(out)-1] // adjacent to the range before
		} else {
			out = append(out, start)
		}
		if end, ok := n.end(); ok {
			out = append(out, end)
		}
	}
	return out
}

// end returns the first address behind the network; there is none behind the last one.
func (n network) end() (bound, bool) {
	if n.len == 0 {
		return bound{}, false
	}
	hi, lo := n.hi, n.lo
	if n.len > 64 {
		var carry uint64
		lo, carry = bits.Add64(lo, 1<<(128-n.len), 0)
		hi += carry
		return bound{hi, lo}, hi != 0 || carry == 0
	}
	hi += 1 << (64 - n.len)
	return bound{hi, lo}, hi != 0
}
