package endpoint

import (
	"fmt"
	"sync/atomic"

	"levee/internal/filter/hashtable"
)

// shapesOf returns where a family's shapes in use stand: their number and the list.
func shapesOf(ip4 bool) (number, list int) {
	if ip4 {
		return offNumber4, offShapes4
	}
	return offNumber6, offShapes6
}

func isIP4(code int) bool { return code < codes6 }

func (t *Table) countAt(k hashtable.Key) *uint32 {
	return t.mem.U32(offCounts + 4*shapeIndex(k.Code, min(bitsOf(k), portSizes-1)))
}

// index is the Index of package hashtable for sets of endpoints: it counts their shapes.
type index struct{ *Table }

// Admit refuses a key whose shape is not in use when there are as many as may be.
func (t index) Admit(_ *hashtable.Table, k *hashtable.Key, now uint64) error {
	number, _ := shapesOf(isIP4(k.Code))
	if *t.countAt(*k) == 0 && *t.mem.U32(number) >= MaxShapes &&
		(!t.Reclaim(now) || *t.mem.U32(number) >= MaxShapes) {
		return fmt.Errorf("%w: %d are in use; delete the entries of one, or use fewer", ErrShapes,
			MaxShapes)
	}
	return nil
}

// Dismiss has nothing to take back.
func (index) Dismiss(hashtable.Key) {}

// Count keeps the numbers of entries, and the list of shapes that programs go through. They do so
// from its end, so the last shape may take the place of one that is no longer used: who has missed
// it at the end finds it there.
func (t index) Count(_ *hashtable.Table, k hashtable.Key, by int) {
	c := t.countAt(k)
	*c += uint32(by)
	number, list := shapesOf(isIP4(k.Code))
	n := t.mem.U32(number)
	at := func(i uint32) *uint32 { return t.mem.U32(list + 4*int(i)) }
	switch {
	case by > 0 && *c == 1 && *n < MaxShapes: // a foreign writer's number may say anything
		atomic.StoreUint32(at(*n), shapeOf(k))
		atomic.StoreUint32(n, *n+1)
	case by < 0 && *c == 0:
		for i := range min(*n, MaxShapes) {
			if *at(i) == shapeOf(k) {
				atomic.StoreUint32(at(i), *at(*n - 1))
				atomic.StoreUint32(n, *n-1)
				return
			}
		}
	}
}

// Settle has nothing to do: the list of shapes is exact.
func (index) Settle() {}

// Sound compares the shapes in use with the counts.
func (t index) Sound() (total uint32, ok bool) {
	inUse := 0
	for _, ip4 := range []bool{true, false} {
		shapes, ok := t.listed(ip4)
		if !ok {
			return 0, false
		}
		for s := range shapes {
			c := *t.mem.U32(offCounts + 4*shapeIndex(codeOf(s), int(s>>8)))
			if c == 0 {
				return 0, false
			}
			total += c
		}
		inUse += len(shapes)
	}
	for i := range shapeIndex(lastCode, portSizes-1) + 1 {
		if *t.mem.U32(offCounts + 4*i) != 0 {
			inUse--
		}
	}
	return total, inUse == 0
}

// listed gives the shapes in the list of a family; not ok if it is no such list.
func (t *Table) listed(ip4 bool) (shapes map[uint32]bool, ok bool) {
	number, list := shapesOf(ip4)
	n := *t.mem.U32(number)
	if n > MaxShapes {
		return nil, false
	}
	shapes = map[uint32]bool{}
	for i := range int(n) {
		s := *t.mem.U32(list + 4*i)
		code := codeOf(s)
		if code < codes4 || code > lastCode || isIP4(code) != ip4 || s>>8 >= portSizes ||
			shapes[s] {
			return nil, false
		}
		shapes[s] = true
	}
	return shapes, true
}

// Possible says that there are no bits behind the length or the port block.
func (index) Possible(_ *hashtable.Table, k hashtable.Key) bool {
	if bitsOf(k) >= portSizes {
		return false
	}
	again, ok := keyOf(entryOf(k, 0))
	return ok && again == k
}

// Recount counts the entries of each shape. A shape with entries stays in the list.
func (t index) Recount() (total uint32) {
	counts := t.shapes()
	for _, ip4 := range []bool{true, false} {
		t.relist(ip4, counts)
	}
	clear(t.mem[offCounts:offBuckets])
	for s, n := range counts {
		*t.mem.U32(offCounts + 4*shapeIndex(codeOf(s), int(s>>8))) = n
		total += n
	}
	return total
}

// shapes counts the entries of each shape by looking at all of them.
func (t *Table) shapes() (counts map[uint32]uint32) {
	counts = map[uint32]uint32{}
	for _, k := range t.table.Entries() {
		counts[shapeOf(k)]++
	}
	return counts
}

// relist makes the list of a family's shapes agree with the counts. Shapes that were listed stay in
// their order, so that they move towards the front only, as in Count; a writer that was killed
// there has left one twice. Entries of more shapes than there may be are removed.
func (t *Table) relist(ip4 bool, counts map[uint32]uint32) {
	number, list := shapesOf(ip4)
	var kept []uint32
	listed := map[uint32]bool{}
	keep := func(s uint32) {
		if counts[s] > 0 && !listed[s] && isIP4(codeOf(s)) == ip4 {
			listed[s] = true
			kept = append(kept, s)
		}
	}
	for i := range int(min(*t.mem.U32(number), MaxShapes)) {
		keep(*t.mem.U32(list + 4*i))
	}
	for s := range counts {
		keep(s)
	}
	for _, s := range kept[min(len(kept), MaxShapes):] {
		t.drop(s)
		delete(counts, s)
	}
	kept = kept[:min(len(kept), MaxShapes)]
	for i, s := range kept {
		atomic.StoreUint32(t.mem.U32(list+4*i), s)
	}
	atomic.StoreUint32(t.mem.U32(number), uint32(len(kept)))
}

// drop removes the entries of a shape.
func (t *Table) drop(shape uint32) {
	for s, k := range t.table.Entries() {
		if shapeOf(k) == shape {
			t.table.Vacate(s)
		}
	}
}
