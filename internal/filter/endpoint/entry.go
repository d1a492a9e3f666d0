package endpoint

import (
	"encoding/binary"
	"net/netip"

	"levee/internal/filter/hashtable"
)

// Entry is an endpoint with the end of its lease in jiffies; 0 is never. Its ports are those of
// which the first Bits bits, 0 to 16, are those of Port. Protocols without ports have Bits 0.
type Entry struct {
	Prefix  netip.Prefix
	Proto   uint8
	Port    uint16
	Bits    uint8
	Expires uint64
}

// keyOf is not ok for what is no entry.
func keyOf(e Entry) (hashtable.Key, bool) {
	if !e.Prefix.IsValid() || e.Prefix.Addr().Is4In6() || e.Bits > 16 {
		return hashtable.Key{}, false
	}
	hi, lo, code := split(e.Prefix.Masked().Addr())
	port := uint32(e.Port) >> (16 - e.Bits) << (16 - e.Bits)
	return hashtable.Key{Hi: hi, Lo: lo, Service: uint32(e.Proto)<<24 | uint32(e.Bits)<<16 | port,
		Code: code + e.Prefix.Bits()}, true
}

// split gives an address left-aligned, and the code of its family's length 0.
func split(a netip.Addr) (hi, lo uint64, code int) {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])) << 32, 0, codes4
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]), codes6
}

func bitsOf(k hashtable.Key) int { return int(k.Service >> 16 & 0x1f) }

func shapeOf(k hashtable.Key) uint32 { return uint32(bitsOf(k)<<8 | k.Code) }

func codeOf(shape uint32) int { return int(shape & 0xff) }

func entryOf(k hashtable.Key, expires uint64) Entry {
	length, ip4 := lengthOf(k.Code)
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], k.Hi)
	binary.BigEndian.PutUint64(b[8:], k.Lo)
	a := netip.AddrFrom16(b)
	if ip4 {
		a = netip.AddrFrom4([4]byte(b[:4]))
	}
	return Entry{netip.PrefixFrom(a, length), uint8(k.Service >> 24), uint16(k.Service),
		uint8(bitsOf(k)), expires}
}
