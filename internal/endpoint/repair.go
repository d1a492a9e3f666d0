package endpoint

import "sync/atomic"

// reclaim removes entries whose lease has ended to make room for k, and says whether it did. In large sets, whose search takes
// long, not more often than every few hundred milliseconds: a flood of additions to a full set must not keep a
// CPU searching.
func (t *Table) reclaim(k key, now uint64) bool {
	before := t.Len()
	first, second, _ := t.hash(k)
	t.free(first, now)
	t.free(second, now)
	if t.Len() < before {
		return true
	}
	scanned := t.u64(offScanned)
	if wait := uint64(t.buckets >> 12); now-*scanned < wait {
		return false
	}
	*scanned = now
	return t.Expire(now) > 0
}

// sweepBuckets is how many buckets a new entry looks through for ended leases; all is seen before the set has filled itself anew.
const sweepBuckets = 2

// sweep frees entries whose lease has ended, where the last one stopped.
func (t *Table) sweep(now uint64) {
	if now < *t.u64(offEarliest) {
		return
	}
	at := t.u64(offSweep)
	for range sweepBuckets {
		b := int(*at % uint64(t.buckets))
		for i := range slots {
			s := slot{b, i}
			if m := *t.metaAt(s); m&metaCode != 0 && !live(m, now) {
				t.remove(s, t.keyAt(s))
			}
		}
		*at = uint64(b + 1)
	}
}

// sound says whether the bookkeeping can be believed as far as a glance tells.
func (t *Table) sound() bool {
	total, inUse := uint32(0), 0
	for _, ip4 := range []bool{true, false} {
		shapes, ok := t.listed(ip4)
		if !ok {
			return false
		}
		for s := range shapes {
			c := *t.u32(offCounts + 4*shapeIndex(int(s&metaCode), int(s>>8)))
			if c == 0 {
				return false
			}
			total += c
		}
		inUse += len(shapes)
	}
	for i := range shapeIndex(lastCode, portSizes-1) + 1 {
		if *t.u32(offCounts + 4*i) != 0 {
			inUse--
		}
	}
	return inUse == 0 && total == *t.u32(offTotal) && total <= uint32(t.max)
}

// repair counts everything anew after a writer was killed. Slots that hold no possible entry are freed, and so is the second
// copy of an entry that was being moved. Programs may be reading: a shape with entries stays in the
// list, and a bucket's spilled count is never too low.
func (t *Table) repair() {
	defer t.change()()
	spilled := make([]uint32, t.buckets)
	for s, k := range t.used() {
		first, ok := t.checked(s, k)
		if !ok {
			t.vacate(s)
			continue
		}
		if first != s.bucket {
			spilled[first]++
		}
	}
	for b, n := range spilled {
		atomic.StoreUint32(t.spilled(b), n)
	}
	counts := t.shapes()
	for _, ip4 := range []bool{true, false} {
		t.relist(ip4, counts)
	}
	clear(t.mem[offCounts:offBuckets])
	total := uint32(0)
	for s, n := range counts {
		*t.u32(offCounts + 4*shapeIndex(int(s&metaCode), int(s>>8))) = n
		total += n
	}
	*t.u32(offTotal) = total
	*t.u64(offEarliest) = 0
	*t.u64(offScanned) = 0
}

// relist makes the list of a family's shapes agree with the counts. Shapes that were listed stay in their order, so that they move
// towards the front only, as in count; a writer that was killed there has left one twice. Entries of more shapes than there may be
// are removed.
func (t *Table) relist(ip4 bool, counts map[uint32]uint32) {
	number, list := shapesOf(ip4)
	var kept []uint32
	listed := map[uint32]bool{}
	keep := func(s uint32) {
		if counts[s] > 0 && !listed[s] && (int(s&metaCode) < codes6) == ip4 {
			listed[s] = true
			kept = append(kept, s)
		}
	}
	for i := range int(min(*t.u32(number), MaxShapes)) {
		keep(*t.u32(list + 4*i))
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
		atomic.StoreUint32(t.u32(list+4*i), s)
	}
	atomic.StoreUint32(t.u32(number), uint32(len(kept)))
}

// drop removes the entries of a shape.
func (t *Table) drop(shape uint32) {
	for s, k := range t.used() {
		if k.shape() == shape {
			t.vacate(s)
		}
	}
}

// checked says whether the slot holds an entry that belongs there and is not the second copy of one.
func (t *Table) checked(s slot, k key) (first int, ok bool) {
	code := int(*t.metaAt(s) & metaCode)
	if code < codes4 || code > lastCode || k.bits() >= portSizes {
		return 0, false
	}
	if again, ok := keyOf(k.entry(0)); !ok || again != k {
		return 0, false // bits behind the length or the port block
	}
	first, second, tag := t.hash(k)
	if *t.metaAt(s)&metaTag != tag || s.bucket != first && s.bucket != second {
		return 0, false
	}
	other, found := t.findIn(first, k, tag)
	return first, !found || other == s
}
