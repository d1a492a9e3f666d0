package flow

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
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
	second := binary.NativeEndian.Uint32(memory[atSecond:])
	p := moved{word: hash<<lowBits | uint64(c.State)} // the tag is what is left of the hash
	p.expires = now + leaseOf(memory, p.state()) - second
	first, free := int(hash>>room.shift())*places, -1
	for i := first; i < first+places; i++ {
		there := room.place(memory, i).load()
		switch inUse := there.inUse(memory, now); {
		case inUse && there.word>>lowBits == p.word>>lowBits:
			if !gives(there, c.State) {
				return
			}
			free = i
		case !inUse && free < 0:
			free = i
		}
	}
	if free < 0 {
		atomic.AddUint64(counter(memory, atRefused), 1)
		return
	}
	p.write(memory, hash, free)
}

// gives says whether what programs have noted gives way to what is known of an older connection:
// where nothing is proven yet, or where it may have answered the far side.
func gives(there moved, known uint32) bool {
	state := there.state()
	return state == uint64(answered) || state == uint64(older) ||
		known == Stranger && there.word&first != 0
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
