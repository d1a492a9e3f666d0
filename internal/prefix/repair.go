package prefix

import "sync/atomic"

// reclaim removes entries whose lease has ended to make room for k, and says whether it did. In
// large sets, whose search takes long, not more often than every few hundred milliseconds: a
// flood of additions to a full set must not keep a CPU searching.
func (d *Dynamic) reclaim(k key, now uint64) bool {
	f := d.of(k)
	before := d.Len()
	first, second, _ := d.hash(k)
	d.free(f, first, now)
	d.free(f, second, now)
	if d.Len() < before {
		return true
	}
	scanned := d.u64(offScanned)
	if wait := uint64(f.buckets >> 12); now-*scanned < wait {
		return false
	}
	*scanned = now
	return d.Expire(now) > 0
}

// sweepBuckets is how many buckets of each family a new entry looks through for ended leases: a few reads of
// memory that follows what was read before, and all is seen before the set has filled itself anew.
const sweepBuckets = 2

// sweep frees entries whose lease has ended, where the last one stopped.
func (d *Dynamic) sweep(now uint64) {
	if now < *d.u64(offEarliest) {
		return
	}
	at := d.u64(offSweep)
	for range sweepBuckets {
		b := int(*at % uint64(d.v4.buckets)) // both families have as many
		for _, f := range []*family{&d.v4, &d.v6} {
			for i := range slots {
				s := slot{f, b, i}
				if m := *d.metaAt(s); m&metaLen != 0 && !live(m, now) {
					d.remove(s, d.keyAt(s))
				}
			}
		}
		*at = uint64(b + 1)
	}
}

// sound says whether the bookkeeping can be believed as far as a glance tells.
func (d *Dynamic) sound() bool {
	total := uint32(0)
	for _, f := range []*family{&d.v4, &d.v6} {
		if number, used := d.inUse(f); number != *d.u64(f.lengths) || used != d.usedOf(f) {
			return false
		}
		for length := range f.width + 1 {
			total += *d.u32(f.counts + 4*length)
		}
	}
	return total == *d.u32(offTotal) && total <= uint32(d.max)
}

// repair counts everything anew after a writer was killed. Slots that hold no possible entry are
// freed, and so is the second copy of an entry that was being moved. Programs may be reading: a
// length with entries stays in use, and a bucket's spilled count is never too low.
func (d *Dynamic) repair() {
	defer d.change()()
	total := 0
	for _, f := range []*family{&d.v4, &d.v6} {
		var counts [129]uint32
		spilled := make([]uint32, f.buckets)
		for b := range f.buckets {
			for i := range slots {
				s := slot{f, b, i}
				if *d.metaAt(s)&metaLen == 0 {
					continue
				}
				first, length, ok := d.checked(s)
				if !ok {
					d.vacate(s)
					continue
				}
				counts[length]++
				total++
				if first != b {
					spilled[first]++
				}
			}
		}
		for b, n := range spilled {
			atomic.StoreUint32(d.spilledAt(f, b), n)
		}
		for length := range f.width + 1 {
			*d.u32(f.counts + 4*length) = counts[length]
		}
		d.use(f)
	}
	*d.u32(offTotal) = uint32(total)
	*d.u64(offEarliest) = 0
	*d.u64(offScanned) = 0
	d.buildFilters()
}

// checked says whether the slot holds an entry that belongs there and is not the second copy of one.
func (d *Dynamic) checked(s slot) (first, length int, ok bool) {
	m := *d.metaAt(s)
	if int(m&metaLen) > s.f.width+1 {
		return 0, 0, false
	}
	k := d.keyAt(s)
	if d.keyOf(k.prefix()) != k {
		return 0, 0, false // host bits
	}
	first, second, tag := d.hash(k)
	if m&metaTag != tag || s.bucket != first && s.bucket != second {
		return 0, 0, false
	}
	other, found := d.findIn(s.f, first, k, tag)
	return first, k.len, !found || other == s
}
