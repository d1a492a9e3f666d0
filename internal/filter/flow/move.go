package flow

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// Mover moves connections into a memory with another room, while programs read and write both.
type Mover struct {
	from, to []byte
	crowded  uint64 // what the head of from said
	lost     uint64 // and how many had lost their place, or found none
}

// Move begins: the memory gets the key, and what is known at a time in jiffies. Until its program
// judges, the other one notes more: Finish has that follow. Of who begins meanwhile the new memory
// does not know, nor the other one of who does while the next program judges on trial, for so many
// jiffies: both see what leaves.
func Move(from, to []byte, jiffies, trial uint64) *Mover {
	copy(to[:headBytes], from)
	m := &Mover{from, to, *crowded(to), lostOf(to)}
	crowd(to, jiffies)
	m.enterAll(uint32(jiffies))
	if trial > 0 {
		crowd(from, jiffies+trial)
	}
	return m
}

// Follow enters what has changed since.
func (m *Mover) Follow(jiffies uint64) { m.enterAll(uint32(jiffies)) }

// Finish enters what has changed since, of connections about which the new memory does not know
// more, and counts those for which it has no place.
func (m *Mover) Finish(jiffies uint64) {
	lost := m.enterAll(uint32(jiffies))
	atomic.AddUint64(counter(m.to, atTaken), lost)
	if lostOf(m.from) != m.lost || lostOf(m.to) != m.lost {
		crowd(m.to, jiffies)
		return
	}
	atomic.StoreUint64(crowded(m.to), m.crowded)
}

// lostOf returns the number of connections that have lost their place to another, or found none.
func lostOf(memory []byte) uint64 {
	return atomic.LoadUint64(counter(memory, atTaken)) +
		atomic.LoadUint64(counter(memory, atRefused))
}

// crowd has a memory not take for a beginning what answers somebody whom it does not know, for as
// long as it could know who began at a time.
func crowd(memory []byte, jiffies uint64) {
	atomic.StoreUint64(crowded(memory), jiffies+uint64(leaseOf(memory, uint64(stranger))))
}

func crowded(memory []byte) *uint64 { return counter(memory, atCrowded) }

// counter is a number of the head.
func counter(memory []byte, at int) *uint64 { return (*uint64)(unsafe.Pointer(&memory[at])) }

func (m *Mover) enterAll(now uint32) (lost uint64) {
	room := roomOf(m.from)
	for bucket := range room.shown(m.from) {
		for i := bucket * places; i < (bucket+1)*places; i++ {
			p := room.place(m.from, i).load()
			if !p.inUse(m.from, now) {
				continue
			}
			hash := uint64(bucket)<<room.shift() | p.word>>lowBits
			if above := room.atAbove(); above > 0 {
				hash |= uint64(m.from[above+i]) << (64 - lowBits)
			}
			lost += enter(m.to, hash, p, now)
		}
	}
	return lost
}

// moved is a copy of one place.
type moved struct {
	word           uint64
	proof, expires uint32
}

func (p moved) state() uint64 { return p.word & stateOf }

func (p moved) inUse(memory []byte, now uint32) bool {
	return p.state() != 0 && p.expires-now-1 < leaseOf(memory, p.state())
}

// since returns the time at which a lease began, or was renewed.
func (p moved) since(memory []byte) uint32 { return p.expires - leaseOf(memory, p.state()) }

func leaseOf(memory []byte, state uint64) uint32 {
	return binary.NativeEndian.Uint32(memory[int(atLease)+4*int(state):])
}

// pointers are to the words of a place, which programs change meanwhile.
type pointers struct {
	word           *uint64
	proof, expires *uint32
}

// place is one of a memory, by its number.
func (r Room) place(memory []byte, i int) pointers {
	return placeAt(memory, r.atPlaces()+i*placeBytes)
}

func placeAt(memory []byte, at int) pointers {
	return pointers{
		(*uint64)(unsafe.Pointer(&memory[at])),
		(*uint32)(unsafe.Pointer(&memory[at+int(ofProof)])),
		(*uint32)(unsafe.Pointer(&memory[at+int(ofExpires)])),
	}
}

func (e pointers) load() moved {
	return moved{atomic.LoadUint64(e.word), atomic.LoadUint32(e.proof),
		atomic.LoadUint32(e.expires)}
}

// enter gives a connection its place: its own, one that is free, or that of whom a new connection
// would take it from, if it is itself worth more. It says how many have none afterwards.
func enter(memory []byte, hash uint64, p moved, now uint32) (lost uint64) {
	room := roomOf(memory)
	first := int(hash>>room.shift()) * places
	all, ports := [places + 1]moved{places: p}, 0
	for i := range places {
		all[i] = room.place(memory, first+i).load()
	}
	for _, there := range all {
		if there.state() == uint64(served) {
			ports++
		}
	}
	at, least := -1, worthOf(memory, p, ports, now)
	for i, there := range all[:places] {
		if there.inUse(memory, now) && there.word>>lowBits == p.word>>lowBits {
			if !p.laterThan(memory, there) {
				return 0
			}
			at, least = first+i, 0
			break
		}
		if w := worthOf(memory, there, ports, now); w < least {
			at, least = first+i, w
		}
	}
	if at < 0 {
		return 1
	}
	p.write(memory, hash, at)
	return min(1, least)
}

// write gives a connection a place of the bucket of its hash. What programs ask first, the byte of
// the bucket and its bit, tells of the connection afterwards.
func (p moved) write(memory []byte, hash uint64, at int) {
	room, bucket := roomOf(memory), at/places
	if above := room.atAbove(); above > 0 {
		memory[above+at] = byte(hash >> (64 - lowBits))
	}
	e := room.place(memory, at)
	atomic.StoreUint32(e.proof, p.proof)
	atomic.StoreUint32(e.expires, p.expires)
	atomic.StoreUint64(e.word, p.word)
	var tags byte
	for i := bucket * places; i < (bucket+1)*places; i++ {
		if there := room.place(memory, i).load(); there.state() != 0 {
			tags |= 1 << (there.word >> lowBits & 7)
		}
	}
	memory[headBytes+bucket] |= tags
	if p.state() == uint64(opening) {
		word := (*uint64)(unsafe.Pointer(&memory[room.atOpening()+bucket/64*8]))
		atomic.OrUint64(word, 1<<(bucket%64))
	}
}

// laterThan says whether what the memory of before has of a connection is later than what is there.
// What renews no lease only adds to the word: that the other side has sent a FIN or a RST.
func (p moved) laterThan(memory []byte, there moved) bool {
	if p.word == there.word && p.proof == there.proof && p.expires == there.expires {
		return false
	}
	later := int32(p.since(memory) - there.since(memory))
	if later == 0 {
		return progress[p.state()] > progress[there.state()] ||
			p.state() == there.state() && p.word > there.word
	}
	return later > 0
}

// progress orders what a connection may be in one tick.
var progress = [16]int{opening: 1, answered: 1, older: 1, open: 2, closing: 3, reset: 3,
	stranger: 1, oneWay: 2, twoWay: 3}

// ranks are those of bpf/places.h: what may lose its place to a new connection, 0 first.
var ranks = [16]uint64{closing: 1, reset: 1, answered: 2, older: 2, stranger: 2, opening: 3,
	oneWay: 3, echo: 3, group: 3, served: 4, twoWay: 5, open: 7}

// rank is that in a bucket with so many ports.
func rank(memory []byte, p moved, ports int, now uint32) uint64 {
	state := p.state()
	left := p.expires - now
	switch lease := leaseOf(memory, state); {
	case state == 0 || left-1 >= lease:
		return 0
	case state == uint64(served) && ports == 1:
		return ranks[twoWay]
	case state != uint64(open):
	case p.word&resetIn != 0:
		return ranks[reset]
	case lease-left >= binary.NativeEndian.Uint32(memory[int(atSecond)+4:]):
		return ranks[open] - 1
	}
	return ranks[state]
}

// worthOf orders places, as find_place does.
func worthOf(memory []byte, p moved, ports int, now uint32) uint64 {
	r := rank(memory, p, ports, now)
	if r == 0 {
		return 0
	}
	return r<<32 | uint64(p.expires-now-leaseOf(memory, p.state())-1)
}
