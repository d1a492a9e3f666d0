package hashtable

import (
	"iter"
	"sync/atomic"
)

// Key is an entry as a table stores it: a masked address with, in some tables, a service, or a
// digest in Hi.
type Key struct {
	Hi, Lo  uint64
	Service uint32
	Code    int    // of the prefix length, from 1 on
	Value   uint32 // goes along with the entry in tables that have values; it is not compared
}

// Table is one of a set's tables.
type Table struct {
	Layout
	set *Set
}

// Slot is a place for an entry.
type Slot struct{ bucket, i int }

// Parts of a meta.
const (
	metaCode     = 0xff
	metaTag      = 0xffff
	metaIdentity = 0xffffff
	metaExpires  = 24
)

// inUse says whether a slot with this meta holds an entry whose lease has not ended.
func inUse(m, now uint64) bool {
	return m&metaCode != 0 && (m>>metaExpires == 0 || now < m>>metaExpires)
}

func (t *Table) spilled(bucket int) *uint32 {
	return t.set.mem.U32(t.At + bucket*t.Bytes + t.Spilled)
}

func (t *Table) meta(s Slot) *uint64 {
	return t.set.mem.U64(t.At + s.bucket*t.Bytes + t.Metas + 8*s.i)
}

func (t *Table) value(s Slot) *uint32 {
	return t.set.mem.U32(t.At + s.bucket*t.Bytes + t.Values + 4*s.i)
}

func (t *Table) loadKey(s Slot) (hi, lo uint64, service uint32) {
	mem, at := t.set.mem, t.At+s.bucket*t.Bytes
	switch {
	case t.Narrow:
		return uint64(atomic.LoadUint32(mem.U32(at + t.Keys + 4*s.i))), 0, 0
	case t.Digests:
		return atomic.LoadUint64(mem.U64(at + t.Keys + 8*s.i)), 0, 0
	}
	hi, lo = atomic.LoadUint64(mem.U64(at+t.Keys+16*s.i)),
		atomic.LoadUint64(mem.U64(at+t.Keys+16*s.i+8))
	if t.Services != 0 {
		service = atomic.LoadUint32(mem.U32(at + t.Services + 4*s.i))
	}
	return hi, lo, service
}

func (t *Table) storeKey(s Slot, k Key) {
	mem, at := t.set.mem, t.At+s.bucket*t.Bytes
	if t.Values != 0 {
		*t.value(s) = k.Value
	}
	switch {
	case t.Narrow:
		atomic.StoreUint32(mem.U32(at+t.Keys+4*s.i), uint32(k.Hi))
		return
	case t.Digests:
		atomic.StoreUint64(mem.U64(at+t.Keys+8*s.i), k.Hi)
		return
	}
	atomic.StoreUint64(mem.U64(at+t.Keys+16*s.i), k.Hi)
	atomic.StoreUint64(mem.U64(at+t.Keys+16*s.i+8), k.Lo)
	if t.Services != 0 {
		atomic.StoreUint32(mem.U32(at+t.Services+4*s.i), k.Service)
	}
}

// hash gives the two buckets of a key and the tag that its meta carries; see Code.Key.
func (t *Table) hash(k Key) (first, second int, tag uint64) {
	mem := t.set.mem
	h := k.Hi ^ *mem.U64(AtSeeds)
	tag = uint64(k.Code)
	if t.Narrow {
		h = (h ^ tag<<32) * *mem.U64(AtSeeds + 8)
		h ^= h >> 32
		h *= *mem.U64(AtSeeds + 16)
	} else {
		h *= *mem.U64(AtSeeds + 8)
		h ^= h >> 32
		h = ((h ^ k.Lo) + (tag | uint64(k.Service)<<8)) * *mem.U64(AtSeeds + 16)
		h ^= h >> 32
		h *= *mem.U64(AtSeeds + 24)
		tag |= h & 0xff << 8
	}
	n := uint64(t.Buckets)
	return int((h >> 32) * n >> 32), int((h & 0xffffffff) * n >> 32), tag
}

// Touch reads where the key's bucket begins, so that what follows finds it in the cache. In a large
// table an entry waits for memory more than for all else, and reads that do not depend on each
// other wait together.
func (t *Table) Touch(k Key) {
	first, _, _ := t.hash(k)
	atomic.LoadUint32(t.spilled(first))
}

// Find looks for the entry of exactly this key, whatever its lease.
func (t *Table) Find(k Key) (Slot, bool) {
	s, m := t.find(k)
	return s, m != 0
}

// find is Find with the meta that the entry had, 0 if there is none.
func (t *Table) find(k Key) (Slot, uint64) {
	first, second, tag := t.hash(k)
	if s, m := t.findIn(first, k, tag); m != 0 || atomic.LoadUint32(t.spilled(first)) == 0 {
		return s, m
	}
	return t.findIn(second, k, tag)
}

// findIn returns what the emitted code does with a bucket: the meta is read between two looks at
// what identifies the entry, so that it cannot be that of another.
func (t *Table) findIn(bucket int, k Key, tag uint64) (Slot, uint64) {
	mem, metas := t.set.mem, t.At+bucket*t.Bytes+t.Metas
	for i := range t.Slots {
		at := mem.U64(metas + 8*i)
		m := atomic.LoadUint64(at)
		if m&metaTag != tag {
			continue
		}
		s := Slot{bucket, i}
		hi, lo, service := t.loadKey(s)
		if hi == k.Hi && lo == k.Lo && service == k.Service &&
			(atomic.LoadUint64(at)^m)&metaIdentity == 0 {
			return s, m
		}
	}
	return Slot{}, 0
}

// Holds says whether there is an entry of exactly this key whose lease has not ended. It may run
// beside a writer, and so believes the meta by which the entry was found: meanwhile it may lie
// elsewhere.
func (t *Table) Holds(k Key) bool {
	_, m := t.find(k)
	return m != 0 && inUse(m, t.set.now())
}

// Get gives the end of the lease of exactly this key, if it has not ended.
func (t *Table) Get(k Key) (expires uint64, ok bool) {
	s, ok := t.Find(k)
	if !ok {
		return 0, false
	}
	return t.Lease(s, t.set.now())
}

// Lease returns the end of the lease of an entry in jiffies, 0 for never, and whether it is still
// to come at the time now.
func (t *Table) Lease(s Slot, now uint64) (expires uint64, alive bool) {
	m := *t.meta(s)
	if !inUse(m, now) {
		return 0, false
	}
	return m >> metaExpires, true
}

// Renew gives an entry another lease. Its identity stays, so a reader takes the old or the new.
func (t *Table) Renew(s Slot, expires uint64) {
	expires = min(expires, latest)
	m := t.meta(s)
	atomic.StoreUint64(m, *m&metaIdentity|expires<<metaExpires)
	t.set.note(expires)
}

// write fills a free slot: what is there is not believed until meta is written, last.
func (t *Table) write(s Slot, k Key, tag, expires uint64) {
	m := t.meta(s)
	identity := tag | (*m+1<<16)&0xff0000
	atomic.StoreUint64(m, *m&^metaCode)
	t.storeKey(s, k)
	atomic.StoreUint64(m, identity|expires<<metaExpires)
}

// keyAt reads the entry of a slot in use. A code that cannot be counts as the last there is.
func (t *Table) keyAt(s Slot) Key {
	hi, lo, service := t.loadKey(s)
	k := Key{Hi: hi, Lo: lo, Service: service, Code: min(int(*t.meta(s)&metaCode), t.Codes)}
	if t.Values != 0 {
		k.Value = *t.value(s)
	}
	return k
}

// free finds a slot in the bucket that holds nothing; an entry whose lease has ended is removed for
// it.
func (t *Table) free(bucket int, now uint64) (Slot, bool) {
	for i := range t.Slots {
		s := Slot{bucket, i}
		m := *t.meta(s)
		if m&metaCode == 0 {
			return s, true
		}
		if !inUse(m, now) {
			t.Remove(s, t.keyAt(s))
			return s, true
		}
	}
	return Slot{}, false
}

// Insert puts a new key in one of its buckets, moving others to their second bucket if need be, and
// fails when there is no room near. It does not look at max. It is for the inside of Set.Change.
func (t *Table) Insert(k Key, expires, now uint64) bool {
	first, second, tag := t.hash(k)
	s, ok := t.free(first, now)
	if !ok {
		s, ok = t.free(second, now)
	}
	for depth := 0; !ok && depth < 4; depth++ {
		if s, ok = t.makeRoom(first, depth, now); !ok {
			s, ok = t.makeRoom(second, depth, now)
		}
	}
	if !ok {
		return false
	}
	t.count(k, 1)
	if s.bucket != first {
		atomic.AddUint32(t.spilled(first), 1)
	}
	expires = min(expires, latest)
	t.write(s, k, tag, expires)
	t.set.note(expires)
	return true
}

// makeRoom empties a slot of the bucket by moving an entry from its first to its second bucket, in
// which up to depth such moves make room first. Only this direction is safe: a reader looks into
// the first bucket and then into the second, and the entry is in the second before it leaves the
// first.
func (t *Table) makeRoom(bucket, depth int, now uint64) (Slot, bool) {
	for i := range t.Slots {
		s := Slot{bucket, i}
		k, m := t.keyAt(s), *t.meta(s)
		if m&metaCode == 0 { // the moves have come back here
			return s, true
		}
		first, second, tag := t.hash(k)
		if first != bucket || second == bucket {
			continue
		}
		to, ok := t.free(second, now)
		if !ok && depth > 0 {
			to, ok = t.makeRoom(second, depth-1, now)
		}
		if !ok || *t.meta(s) != m { // they have moved this one
			continue
		}
		atomic.AddUint32(t.spilled(first), 1)
		t.write(to, k, tag, m>>metaExpires)
		t.Vacate(s)
		return s, true
	}
	return Slot{}, false
}

// Vacate marks a slot free, and leaves it to the caller that the entry was counted. The number of
// the entry stays, for the next one to count on.
func (t *Table) Vacate(s Slot) {
	m := t.meta(s)
	atomic.StoreUint64(m, *m&0xff0000)
}

// Remove takes an entry out and settles the accounts. It is for the inside of Set.Change.
func (t *Table) Remove(s Slot, k Key) {
	first, _, _ := t.hash(k)
	if t.Values != 0 {
		k.Value = *t.value(s)
	}
	t.Vacate(s)
	if s.bucket != first {
		atomic.AddUint32(t.spilled(first), ^uint32(0))
	}
	t.count(k, -1)
}

func (t *Table) count(k Key, by int) {
	*t.set.mem.U32(AtTotal) += uint32(by)
	t.set.index.Count(t, k, by)
}

// Entries visits the slots in use, also those whose lease has ended, in no order. The loop may
// remove what it visits.
func (t *Table) Entries() iter.Seq2[Slot, Key] {
	return func(yield func(Slot, Key) bool) {
		for b := range t.Buckets {
			for i := range t.Slots {
				s := Slot{b, i}
				if *t.meta(s)&metaCode != 0 && !yield(s, t.keyAt(s)) {
					return
				}
			}
		}
	}
}

// Alive visits the keys of entries whose lease has not ended, with its end, in no order.
func (t *Table) Alive() iter.Seq2[Key, uint64] {
	return func(yield func(Key, uint64) bool) {
		now := t.set.now()
		for s, k := range t.Entries() {
			if expires, alive := t.Lease(s, now); alive && !yield(k, expires) {
				return
			}
		}
	}
}
