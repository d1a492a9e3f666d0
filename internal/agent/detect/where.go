package detect

import (
	"encoding/binary"
	"net/netip"
)

// where is a network that packets go to or come from; the zero value is everything. It is asked for
// three times a sample, as a key: three words are hashed in one step, and a netip.Prefix in four.
type where struct {
	hi, lo uint64 // of the address of 16 bytes
	how    uint64 // the length of the prefix, and what is below
}

const (
	isPlace  = 1 << 8
	isFour   = 1 << 9  // IPv4
	isSource = 1 << 10 // they come from it
)

// placeOf returns the network of so many bits in which an address is.
func placeOf(a netip.Addr, bits int, source bool) where {
	b := a.As16()
	w := where{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]),
		isPlace | uint64(bits)}
	if a.Is4() {
		w.how |= isFour
		bits += 96
	}
	if source {
		w.how |= isSource
	}
	if bits <= 64 {
		w.hi, w.lo = w.hi&^(1<<(64-bits)-1), 0
	} else {
		w.lo &^= 1<<(128-bits) - 1
	}
	return w
}

// prefix returns the network, which is not valid for everything.
func (w where) prefix() netip.Prefix {
	if w.how&isPlace == 0 {
		return netip.Prefix{}
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], w.hi)
	binary.BigEndian.PutUint64(b[8:], w.lo)
	a := netip.AddrFrom16(b)
	if w.how&isFour > 0 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, int(w.how%isPlace))
}

func (w where) source() bool { return w.how&isSource > 0 }
