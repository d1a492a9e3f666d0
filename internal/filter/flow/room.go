package flow

import (
	"encoding/binary"
	"iter"
	"math/bits"

	"github.com/cilium/ebpf/asm"
)

// Room is the number of connections that fit a memory: a power of two from MinRoom to MaxRoom.
type Room int

// MinRoom is the room of a policy on the smallest machine: less would save nobody anything. Tags
// and hashes are made for MaxRoom.
const (
	MinRoom Room = 1 << 14
	MaxRoom Room = places << lowBits
)

// RoomFor returns the least room for n connections.
func RoomFor(n int) Room {
	return min(MaxRoom, max(MinRoom, Room(1)<<bits.Len(uint(max(1, n)-1))))
}

// Within returns the greatest room that takes no more than so many bytes, or MinRoom.
func Within(bytes int) Room {
	r := MaxRoom
	for r > MinRoom && r.Bytes() > bytes {
		r /= 2
	}
	return r
}

// roomOf returns the room of a memory, which may be mapped with the rest of its last page.
func roomOf(memory []byte) Room { return Within(len(memory)) }

func (r Room) buckets() int { return int(r) / places }

// shift leaves the number of its bucket of a hash.
func (r Room) shift() int { return 64 - (bits.Len(uint(r.buckets())) - 1) }

// atPlaces returns where the places begin, behind the bytes that tell who is there.
func (r Room) atPlaces() int { return headBytes + r.buckets() }

// shown yields the buckets of a memory that have had a connection: programs find nobody in others.
// Most of a memory is empty most of the time, and a bucket is 128 times as large as its byte.
func (r Room) shown(memory []byte) iter.Seq[int] {
	return func(yield func(int) bool) {
		present := memory[headBytes:r.atPlaces()]
		for i := 0; i < len(present); i += 8 {
			if binary.NativeEndian.Uint64(present[i:]) == 0 {
				continue
			}
			for k, tags := range present[i : i+8] {
				if tags != 0 && !yield(i+k) {
					return
				}
			}
		}
	}
}

// atOpening returns where the bits of buckets begin in which connections are opening.
func (r Room) atOpening() int { return r.atPlaces() + int(r)*placeBytes }

// atAbove returns where the bits of hashes begin that neither the tag nor the number of a bucket
// has, 0 if these have all.
func (r Room) atAbove() int {
	if r == MaxRoom {
		return 0
	}
	return r.atOpening() + r.buckets()/8
}

// Bytes returns the memory.
func (r Room) Bytes() int {
	if above := r.atAbove(); above > 0 {
		return above + int(r)
	}
	return r.atOpening() + r.buckets()/8
}

// sized gives programs of bpf/flow.h the numbers that depend on the room.
func (r Room) sized(all asm.Instructions) asm.Instructions {
	numbers := map[int64]int{0x666c6f01: r.shift(), 0x666c6f02: r.atPlaces(),
		0x666c6f03: r.atOpening(), 0x666c6f04: r.atAbove()}
	load := asm.Mov.Imm(asm.R0, 0).OpCode
	for i := range all {
		if n, ok := numbers[all[i].Constant]; ok && all[i].OpCode == load {
			all[i].Constant = int64(n)
		}
	}
	return all
}
