package prefix

import (
	"iter"
	"net/netip"
	"sync/atomic"
)

// key is a prefix as the tables store it: the address right-aligned in lo's place for IPv4.
type key struct {
	width  int
	hi, lo uint64 // IPv4: hi is the address, lo 0
	len    int
}

func (d *Dynamic) keyOf(p netip.Prefix) key {
	width := p.Addr().BitLen()
	hi, lo := split(p.Addr())
	hi, lo = mask(hi, lo, p.Bits())
	if width == 32 {
		hi >>= 32
	}
	return key{width, hi, lo, p.Bits()}
}

func (k key) prefix() netip.Prefix {
	hi := k.hi
	if k.width == 32 {
		hi <<= 32
	}
	return netip.PrefixFrom(join(hi, k.lo, k.width), k.len)
}

func (d *Dynamic) of(k key) *family {
	if k.width == 32 {
		return &d.v4
	}
	return &d.v6
}

// slot is a place for an entry.
type slot struct {
	f      *family
	bucket int
	i      int
}

func (d *Dynamic) spilledAt(f *family, bucket int) *uint32 {
	return d.u32(f.off + bucket*f.size + spilledAt)
}

func (d *Dynamic) metaAt(s slot) *uint64 {
	return d.u64(s.f.off + s.bucket*s.f.size + s.f.meta + 8*s.i)
}

func (d *Dynamic) loadKey(s slot) (hi, lo uint64) {
	at := s.f.off + s.bucket*s.f.size
	if s.f.width == 32 {
		return uint64(atomic.LoadUint32(d.u32(at + 4 + 4*s.i))), 0
	}
	at += 48 + 16*s.i
	return atomic.LoadUint64(d.u64(at)), atomic.LoadUint64(d.u64(at + 8))
}

func (d *Dynamic) storeKey(s slot, k key) {
	at := s.f.off + s.bucket*s.f.size
	if s.f.width == 32 {
		atomic.StoreUint32(d.u32(at+4+4*s.i), uint32(k.hi))
		return
	}
	at += 48 + 16*s.i
	atomic.StoreUint64(d.u64(at), k.hi)
	atomic.StoreUint64(d.u64(at+8), k.lo)
}

// live says whether a slot with this meta holds an entry whose lease has not ended.
func live(m, now uint64) bool {
	return m&metaLen != 0 && (m>>metaExpires == 0 || now < m>>metaExpires)
}

// hash gives the two buckets of a key and, for IPv6, the tag that its meta carries.
func (d *Dynamic) hash(k key) (first, second int, tag uint64) {
	s0, s1, s2, s3 := *d.u64(offSeeds), *d.u64(offSeeds + 8), *d.u64(offSeeds + 16), *d.u64(offSeeds + 24)
	f := d.of(k)
	code := uint64(k.len + 1)
	var h uint64
	if k.width == 32 {
		h = (k.hi | code<<32) ^ s0
		h *= s1
		h ^= h >> 32
		h *= s2
		tag = code
	} else {
		h = (k.hi ^ s0) * s1
		h ^= h >> 32
		h = ((h ^ k.lo) + code) * s2
		h ^= h >> 32
		h *= s3
		tag = code | h&0xff<<8
	}
	n := uint64(f.buckets)
	return int((h >> 32) * n >> 32), int((h & 0xffffffff) * n >> 32), tag
}

// find looks for the entry of exactly this key, whatever its lease.
func (d *Dynamic) find(k key) (slot, bool) {
	first, second, tag := d.hash(k)
	f := d.of(k)
	if s, ok := d.findIn(f, first, k, tag); ok {
		return s, true
	}
	if atomic.LoadUint32(d.spilledAt(f, first)) == 0 {
		return slot{}, false
	}
	return d.findIn(f, second, k, tag)
}

// findIn is what the emitted code does with a bucket: the meta is read between two looks at what
// identifies the entry, so that it cannot be that of another.
func (d *Dynamic) findIn(f *family, bucket int, k key, tag uint64) (slot, bool) {
	for i := range slots {
		s := slot{f, bucket, i}
		m := atomic.LoadUint64(d.metaAt(s))
		if m&metaTag != tag {
			continue
		}
		hi, lo := d.loadKey(s)
		if hi == k.hi && lo == k.lo && (atomic.LoadUint64(d.metaAt(s))^m)&metaIdentity == 0 {
			return s, true
		}
	}
	return slot{}, false
}

// Lookup says whether a live entry covers the address. It may run beside a writer.
func (d *Dynamic) Lookup(a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	f := d.family(a)
	k := d.keyOf(netip.PrefixFrom(a, f.width))
	for length := range f.candidates(d.wanted(f, k)) {
		p, err := a.Prefix(length)
		if err != nil {
			continue
		}
		if s, ok := d.find(d.keyOf(p)); ok && live(atomic.LoadUint64(d.metaAt(s)), d.now()) {
			return true
		}
	}
	return false
}

// renew gives an entry another lease. Its identity stays, so a reader takes the old or the new.
func (d *Dynamic) renew(s slot, expires uint64) {
	expires = min(expires, latest)
	m := *d.metaAt(s)
	atomic.StoreUint64(d.metaAt(s), m&metaIdentity|expires<<metaExpires)
	d.note(expires)
}

// note keeps the earliest end of any lease.
func (d *Dynamic) note(expires uint64) {
	if e := d.u64(offEarliest); expires != 0 && expires < *e {
		*e = expires
	}
}

// write fills a free slot: what is there is not believed until meta is written, last.
func (d *Dynamic) write(s slot, k key, tag, expires uint64) {
	m := d.metaAt(s)
	identity := tag | (*m+1<<16)&0xff0000
	atomic.StoreUint64(m, *m&^metaLen)
	d.storeKey(s, k)
	atomic.StoreUint64(m, identity|expires<<metaExpires)
}

// free finds a slot in the bucket that holds nothing; an entry whose lease has ended is removed for it.
func (d *Dynamic) free(f *family, bucket int, now uint64) (slot, bool) {
	for i := range slots {
		s := slot{f, bucket, i}
		m := *d.metaAt(s)
		if m&metaLen == 0 {
			return s, true
		}
		if !live(m, now) {
			d.remove(s, d.keyAt(s))
			return s, true
		}
	}
	return slot{}, false
}

// keyAt reads the entry of a slot in use. A length that cannot be counts as the longest there is.
func (d *Dynamic) keyAt(s slot) key {
	hi, lo := d.loadKey(s)
	return key{s.f.width, hi, lo, min(int(*d.metaAt(s)&metaLen)-1, s.f.width)}
}

// insert puts a new key in one of its buckets, moving others to their second bucket if need be, and
// fails when there is no room.
func (d *Dynamic) insert(k key, expires, now uint64) bool {
	f := d.of(k)
	first, second, tag := d.hash(k)
	s, ok := d.free(f, first, now)
	if !ok {
		s, ok = d.free(f, second, now)
	}
	for depth := 0; !ok && depth < 4; depth++ {
		if s, ok = d.makeRoom(f, first, depth, now); !ok {
			s, ok = d.makeRoom(f, second, depth, now)
		}
	}
	if !ok {
		return false
	}
	d.admit(f, k)
	d.count(f, k.len, 1)
	if s.bucket != first {
		atomic.AddUint32(d.spilledAt(f, first), 1)
	}
	expires = min(expires, latest)
	d.write(s, k, tag, expires)
	d.note(expires)
	return true
}

// makeRoom empties a slot of the bucket by moving an entry from its first to its second bucket, in which
// up to depth such moves make room first. Only this direction is safe: a reader looks into the
// first bucket and then into the second, and the entry is in the second before it leaves the first.
func (d *Dynamic) makeRoom(f *family, bucket, depth int, now uint64) (slot, bool) {
	for i := range slots {
		s := slot{f, bucket, i}
		k, m := d.keyAt(s), *d.metaAt(s)
		first, second, tag := d.hash(k)
		if first != bucket || second == bucket {
			continue
		}
		to, ok := d.free(f, second, now)
		if !ok && depth > 0 {
			to, ok = d.makeRoom(f, second, depth-1, now)
		}
		if !ok || *d.metaAt(s) != m { // the moves may have come back here
			continue
		}
		atomic.AddUint32(d.spilledAt(f, first), 1)
		d.write(to, k, tag, m>>metaExpires)
		d.vacate(s)
		return s, true
	}
	return slot{}, false
}

// vacate marks a slot free. The number of the entry stays, for the next one to count on.
func (d *Dynamic) vacate(s slot) {
	m := d.metaAt(s)
	atomic.StoreUint64(m, *m&0xff0000)
}

// remove takes an entry out and settles the accounts.
func (d *Dynamic) remove(s slot, k key) {
	first, _, _ := d.hash(k)
	d.vacate(s)
	if s.bucket != first {
		atomic.AddUint32(d.spilledAt(s.f, first), ^uint32(0))
	}
	d.count(s.f, k.len, -1)
}

// count keeps the numbers of entries, and the set of lengths in use that programs go by.
func (d *Dynamic) count(f *family, length, by int) {
	*d.u32(offTotal) += uint32(by)
	c := d.u32(f.counts + 4*length)
	*c += uint32(by)
	if by < 0 {
		*d.u64(offRemoved) += uint64(-by)
	}
	if by > 0 && *c == 1 || by < 0 && *c == 0 {
		d.use(f)
	}
}

// slots visits what is in use. The loop may remove it.
func (d *Dynamic) slots() iter.Seq2[slot, key] {
	return func(yield func(slot, key) bool) {
		for _, f := range []*family{&d.v4, &d.v6} {
			for s, k := range d.slotsIn(f) {
				if !yield(s, k) {
					return
				}
			}
		}
	}
}

// slotsIn visits what is in use of one family.
func (d *Dynamic) slotsIn(f *family) iter.Seq2[slot, key] {
	return func(yield func(slot, key) bool) {
		for b := range f.buckets {
			for i := range slots {
				s := slot{f, b, i}
				if *d.metaAt(s)&metaLen != 0 && !yield(s, d.keyAt(s)) {
					return
				}
			}
		}
	}
}
