package endpoint

import "sync/atomic"

// shapesOf is where a family's shapes in use stand: their number and the list.
func shapesOf(ip4 bool) (number, list int) {
	if ip4 {
		return offNumber4, offShapes4
	}
	return offNumber6, offShapes6
}

func (t *Table) countAt(k key) *uint32 {
	return t.u32(offCounts + 4*shapeIndex(k.code, min(k.bits(), portSizes-1)))
}

// hasShape says whether an entry of the key's shape is in the set.
func (t *Table) hasShape(k key) bool { return *t.countAt(k) != 0 }

// roomForShape says whether another shape of the key's family may come into use.
func (t *Table) roomForShape(k key) bool {
	number, _ := shapesOf(k.ip4())
	return *t.u32(number) < MaxShapes
}

// count keeps the numbers of entries, and the list of shapes that programs go through. They do so from its end, so the last
// shape may take the place of one that is no longer used: who has missed it at the end finds it there.
func (t *Table) count(k key, by int) {
	*t.u32(offTotal) += uint32(by)
	c := t.countAt(k)
	*c += uint32(by)
	number, list := shapesOf(k.ip4())
	n := t.u32(number)
	at := func(i uint32) *uint32 { return t.u32(list + 4*int(i)) }
	switch {
	case by > 0 && *c == 1 && *n < MaxShapes: // a foreign writer's number may say anything
		atomic.StoreUint32(at(*n), k.shape())
		atomic.StoreUint32(n, *n+1)
	case by < 0 && *c == 0:
		for i := range min(*n, MaxShapes) {
			if *at(i) == k.shape() {
				atomic.StoreUint32(at(i), *at(*n - 1))
				atomic.StoreUint32(n, *n-1)
				return
			}
		}
	}
}

// shapes counts the entries of each shape by looking at all of them.
func (t *Table) shapes() (counts map[uint32]uint32) {
	counts = map[uint32]uint32{}
	for _, k := range t.used() {
		counts[k.shape()]++
	}
	return counts
}

// listed gives the shapes in the list of a family; not ok if it is no such list.
func (t *Table) listed(ip4 bool) (shapes map[uint32]bool, ok bool) {
	number, list := shapesOf(ip4)
	n := *t.u32(number)
	if n > MaxShapes {
		return nil, false
	}
	shapes = map[uint32]bool{}
	for i := range int(n) {
		s := *t.u32(list + 4*i)
		code := int(s & metaCode)
		if code < codes4 || code > lastCode || (code < codes6) != ip4 || s>>8 >= portSizes || shapes[s] {
			return nil, false
		}
		shapes[s] = true
	}
	return shapes, true
}
