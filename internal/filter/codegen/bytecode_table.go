package codegen

import (
	"bytes"
	"hash/maphash"
	"unsafe"
)

// table holds the words or records of all chains, addressed by number. A large one lies in pieces:
// it never has to move to grow, and the pieces go one by one as they are written to where the
// program finds them.
type table[T record | uint64] struct {
	pieces [][]T // pieceSize each, the last may be shorter
	n      int
}

const pieceSize = 1 << 15

// add appends values and gives the number of the first.
func (t *table[T]) add(values []T) int {
	at := t.n
	for len(values) > 0 {
		last := len(t.pieces) - 1
		if last < 0 || len(t.pieces[last]) == pieceSize {
			t.pieces = append(t.pieces, nil)
			if last++; last > 0 { // the first grows: most tables are small
				t.pieces[last] = make([]T, 0, pieceSize)
			}
		}
		k := min(len(values), pieceSize-len(t.pieces[last]))
		t.pieces[last] = append(t.pieces[last], values[:k]...)
		values = values[k:]
		t.n += k
	}
	return at
}

// holds tells whether the values from number at on are these.
func (t *table[T]) holds(at int, values []T) bool {
	for len(values) > 0 {
		piece := t.pieces[at/pieceSize][at%pieceSize:]
		k := min(len(values), len(piece))
		if !bytes.Equal(bytesOf(piece[:k]), bytesOf(values[:k])) {
			return false
		}
		values, at = values[k:], at+k
	}
	return true
}

// drain gives the pieces one after the other, and lets go of them.
func (t *table[T]) drain(use func(piece []T)) {
	for i, piece := range t.pieces {
		t.pieces[i] = nil
		use(piece)
	}
}

// bytesOf are values as they lie in memory.
func bytesOf[T record | uint64](values []T) []byte {
	if len(values) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])),
		len(values)*int(unsafe.Sizeof(values[0])))
}

// shared finds runs of values that are in a table already, by their hash. The zero value is ready
// to use.
type shared struct {
	slots []uint32 // hash table of numbers of runs, plus 1; a power of two, at most half full
	runs  []sharedRun
	seed  maphash.Seed // where things lie does not depend on it
}

// sharedRun is a place of values in a table.
type sharedRun struct{ at, n, hash uint32 }

// share finds values in a table, or appends them, and gives the number of the first.
func share[T record | uint64](t *table[T], known *shared, values []T) int {
	if known.slots == nil {
		known.seed, known.slots = maphash.MakeSeed(), make([]uint32, 64)
	}
	hash := uint32(maphash.Bytes(known.seed, bytesOf(values)))
	last := uint32(len(known.slots) - 1)
	i := hash & last
	for ; known.slots[i] != 0; i = (i + 1) & last {
		r := known.runs[known.slots[i]-1]
		if r.hash == hash && int(r.n) == len(values) && t.holds(int(r.at), values) {
			return int(r.at)
		}
	}
	at := t.add(values)
	known.runs = append(known.runs, sharedRun{uint32(at), uint32(len(values)), hash})
	known.slots[i] = uint32(len(known.runs))
	if 2*len(known.runs) > len(known.slots) {
		known.grow()
	}
	return at
}

// grow doubles the hash table.
func (s *shared) grow() {
	s.slots = make([]uint32, 2*len(s.slots))
	last := uint32(len(s.slots) - 1)
	for k, r := range s.runs {
		i := r.hash & last
		for s.slots[i] != 0 {
			i = (i + 1) & last
		}
		s.slots[i] = uint32(k + 1)
	}
}
