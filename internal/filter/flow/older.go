package flow

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"unsafe"
)

// Older is a connection that is older than a memory.
type Older struct {
	Proto     uint8
	Near, Far netip.AddrPort // as in what leaves: Near is its source
	State     uint32
}

// States of an older connection.
const (
	Open    = uint32(open)
	Closing = uint32(closing)
	TwoWay  = uint32(twoWay)
	// OneWay is UDP that the near side began, of which no answer is known.
	OneWay = uint32(oneWay)
	// Stranger is UDP that the far side began.
	Stranger = uint32(stranger)
)

// Adopt notes a connection at a time in jiffies, while programs read and write the memory. What
// they know of it stays, but for a handshake that has ended in between. It takes no other's place,
// and counts what finds none.
func Adopt(memory []byte, c Older, jiffies uint64) {
	now, hash, room := uint32(jiffies), HashOf(memory, c.Proto, c.Near, c.Far), roomOf(memory)
	bucket, tag := int(hash>>room.shift()), hash<<lowBits>>lowBits
	word := func(at int) *uint64 { return (*uint64)(unsafe.Pointer(&memory[at])) }
	half := func(at int) *uint32 { return (*uint32)(unsafe.Pointer(&memory[at])) }
	lease := func(state uint32) uint32 { return *half(int(atLease) + 4*int(state)) }
	first := room.atPlaces() + bucket*places*placeBytes
	free, tags := -1, byte(1)<<(tag&7)
	for at := first; at < first+places*placeBytes; at += placeBytes {
		w := atomic.LoadUint64(word(at))
		state := uint32(w & stateOf)
		inUse := state != 0 && atomic.LoadUint32(half(at+int(ofExpires)))-now-1 < lease(state)
		switch {
		case inUse && w>>lowBits == tag:
			if !gives(w, c.State) {
				return
			}
			free = at
		case !inUse && free < 0:
			free = at
		}
		if state != 0 {
			tags |= 1 << (w >> lowBits & 7)
		}
	}
	if free < 0 {
		atomic.AddUint64(word(atRefused), 1)
		return
	}
	expires := now + lease(c.State) - *half(int(atSecond))
	atomic.StoreUint32(half(free+int(ofProof)), 0)
	atomic.StoreUint32(half(free+int(ofExpires)), expires)
	if above := room.atAbove(); above > 0 {
		memory[above+(free-room.atPlaces())/placeBytes] = byte(hash >> (64 - lowBits))
	}
	atomic.StoreUint64(word(free), tag<<lowBits|uint64(c.State))
	memory[headBytes+bucket] |= tags
}

// gives says whether what programs have noted gives way to what is known of an older connection:
// where nothing is proven yet, or where it may have answered the far side.
func gives(word uint64, known uint32) bool {
	state := uint32(word & stateOf)
	return state == uint32(answered) || state == uint32(older) ||
		known == Stranger && word&first != 0
}

// HashOf is flow_hash of bpf/flow.h, of what goes from near to far. Other memories begin with a
// head like that of connections.
func HashOf(memory []byte, proto uint8, near, far netip.AddrPort) uint64 {
	word := func(at int16) uint64 { return binary.NativeEndian.Uint64(memory[at:]) }
	sum := word(atStart)
	add := func(i int, piece uint32) { sum += word(atFactors+8*int16(i)) * uint64(piece) }
	address := func(first int, a netip.Addr) {
		for i, b := 0, a.AsSlice(); len(b) > 0; i, b = i+1, b[4:] {
			add(first+i, binary.BigEndian.Uint32(b))
		}
	}
	address(0, near.Addr())
	address(4, far.Addr())
	add(8, uint32(near.Port())<<16|uint32(far.Port()))
	last := uint32(proto)
	if near.Addr().Is6() {
		last |= 1 << 8
	}
	add(9, last)
	sum ^= sum >> 32
	return sum * word(atLast)
}
