package ruletree

import "encoding/binary"

// words is the memory of a pool while it grows: in chunks, so that a table of hundreds of megabytes
// is not copied again and again, and what it was before does not lie about.
type words struct {
	chunks []*[chunkWords]uint64
	n      int
}

const chunkWords = 1 << 13

func (w *words) at(i int) uint64 { return w.chunks[uint(i)/chunkWords][uint(i)%chunkWords] }

// slice copies n words.
func (w *words) slice(at, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = w.at(at + i)
	}
	return out
}

func (w *words) set(i int, v uint64) { w.chunks[uint(i)/chunkWords][uint(i)%chunkWords] = v }

// grow appends zeros and says where they begin.
func (w *words) grow(n int) int {
	at := w.n
	for w.n += n; len(w.chunks)*chunkWords < w.n; {
		w.chunks = append(w.chunks, new([chunkWords]uint64))
	}
	return at
}

// write overwrites the words from one on.
func (w *words) write(at int, values []uint64) {
	for i, v := range values {
		w.set(at+i, v)
	}
}

// have reports whether the values stand from a word on.
func (w *words) have(at int, values []uint64) bool {
	for i, v := range values {
		if w.at(at+i) != v {
			return false
		}
	}
	return true
}

// put writes the words in little-endian order.
func (w *words) put(b []byte) {
	for i, chunk := range w.chunks {
		for j, v := range chunk[:min(chunkWords, w.n-i*chunkWords)] {
			binary.LittleEndian.PutUint64(b[8*(i*chunkWords+j):], v)
		}
	}
}
