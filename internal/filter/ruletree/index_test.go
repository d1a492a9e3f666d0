package ruletree

import (
	"encoding/binary"
	"testing"
)

// Numbers whose hashes are the same are told apart by what they stand for, also after the index has
// grown.
func TestAnIndexFindsWhatWasPut(t *testing.T) {
	const n = 5000
	x := newIndex(0)
	hash := func(v uint32) uint32 { return v % 700 * 0x10001 }
	is := func(v uint32) func(uint32) bool {
		return func(number uint32) bool { return number == v }
	}
	for v := range uint32(n) {
		_, at, ok := x.find(hash(v), is(v))
		if ok {
			t.Fatalf("found %d before it was put", v)
		}
		x.put(at, hash(v), v)
	}
	for v := range uint32(n) {
		if got, _, ok := x.find(hash(v), is(v)); !ok || got != v {
			t.Fatalf("%d: found %d, %t", v, got, ok)
		}
	}
	if 2*x.used > len(x.slots) {
		t.Errorf("%d of %d slots are used, want half at most", x.used, len(x.slots))
	}
}

func TestWordsKeepTheirPlacesAcrossChunks(t *testing.T) {
	var w words
	const n = 3*chunkWords + 5
	for i := range n / 5 {
		if i%2 == 0 {
			w.write(w.grow(5), []uint64{uint64(5 * i), uint64(5*i + 1), uint64(5*i + 2),
				uint64(5*i + 3), uint64(5*i + 4)})
			continue
		}
		for j, at := 0, w.grow(5); j < 5; j++ {
			w.set(at+j, uint64(5*i+j))
		}
	}
	value := make([]byte, 8*w.n)
	w.put(value)
	for i := range w.n {
		if got := binary.LittleEndian.Uint64(value[8*i:]); got != uint64(i) ||
			w.at(i) != uint64(i) {
			t.Fatalf("word %d: at %d, put %d", i, w.at(i), got)
		}
	}
	if at := chunkWords - 2; !w.have(at, w.slice(at, 4)) || w.have(at, []uint64{uint64(at), 0}) {
		t.Error("have does not tell what stands across the end of a chunk")
	}
}
