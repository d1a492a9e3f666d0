package ruletree

import "math/bits"

// index finds numbers by what they stand for, which only their owner knows. It is a hash table with
// open addressing that holds neither keys nor pointers: there may be millions of numbers, and few
// of them are met again.
type index struct {
	slots []slot // a power of two of them, half of which are empty at least
	used  int
}

type slot struct{ hash, number uint32 } // number plus 1: 0 is empty

// newIndex makes an index with room for n numbers. It grows where there are more.
func newIndex(n int) index { return index{slots: make([]slot, 1<<max(6, bits.Len(uint(2*n))))} }

// find gives the number that has the hash and of which same is true, or else a free slot for put.
func (x *index) find(hash uint32, same func(number uint32) bool) (number uint32, at int, ok bool) {
	mask := len(x.slots) - 1
	for at = int(hash) & mask; ; at = (at + 1) & mask {
		switch s := x.slots[at]; {
		case s.number == 0:
			return 0, at, false
		case s.hash == hash && same(s.number-1):
			return s.number - 1, at, true
		}
	}
}

// put fills the slot that find gave.
func (x *index) put(at int, hash, number uint32) {
	x.slots[at] = slot{hash, number + 1}
	if x.used++; 2*x.used <= len(x.slots) {
		return
	}
	old := x.slots
	x.slots = make([]slot, 2*len(old))
	for _, s := range old {
		if s.number != 0 {
			_, at, _ := x.find(s.hash, func(uint32) bool { return false })
			x.slots[at] = s
		}
	}
}

// hashOf returns the same for the same words, in every process.
func hashOf(words []uint64) uint32 {
	h := uint64(0)
	for _, v := range words {
		// 2^64 divided by the golden ratio, as in Knuth's multiplicative hashing
		h = bits.RotateLeft64(h^v, 29) * 0x9e3779b97f4a7c15
	}
	return uint32(h >> 32)
}
