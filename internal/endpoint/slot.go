package endpoint

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"sync/atomic"
)

// key is an entry as the table stores it: the address left-aligned in 128 bits, an IPv4 address in the first 32.
type key struct {
	hi, lo  uint64
	service uint32
	code    int
}

// keyOf is not ok for what is no entry.
func keyOf(e Entry) (key, bool) {
	if !e.Prefix.IsValid() || e.Prefix.Addr().Is4In6() || e.Bits > 16 {
		return key{}, false
	}
	hi, lo, code := split(e.Prefix.Addr())
	maskHi, maskLo := mask(e.Prefix.Bits())
	port := uint32(e.Port) >> (16 - e.Bits) << (16 - e.Bits)
	return key{hi & maskHi, lo & maskLo, uint32(e.Proto)<<24 | uint32(e.Bits)<<16 | port, code + e.Prefix.Bits()}, true
}

// split gives an address left-aligned, and the code of its family's length 0.
func split(a netip.Addr) (hi, lo uint64, code int) {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])) << 32, 0, codes4
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]), codes6
}

func (k key) bits() int { return int(k.service >> 16 & 0x1f) }

func (k key) shape() uint32 { return uint32(k.bits()<<8 | k.code) }

func (k key) ip4() bool { return k.code < codes6 }

func (k key) entry(expires uint64) Entry {
	length, ip4 := lengthOf(k.code)
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], k.hi)
	binary.BigEndian.PutUint64(b[8:], k.lo)
	a := netip.AddrFrom16(b)
	if ip4 {
		a = netip.AddrFrom4([4]byte(b[:4]))
	}
	return Entry{netip.PrefixFrom(a, length), uint8(k.service >> 24), uint16(k.service), uint8(k.bits()), expires}
}

// slot is a place for an entry.
type slot struct{ bucket, i int }

func (t *Table) spilled(bucket int) *uint32 {
	return t.u32(offBuckets + bucket*bucketBytes + spilledAt)
}

func (t *Table) metaAt(s slot) *uint64 { return t.u64(offBuckets + s.bucket*bucketBytes + 8*s.i) }

func (t *Table) loadKey(s slot) (hi, lo uint64, service uint32) {
	at := offBuckets + s.bucket*bucketBytes
	return atomic.LoadUint64(t.u64(at + keyAt + 16*s.i)), atomic.LoadUint64(t.u64(at + keyAt + 16*s.i + 8)),
		atomic.LoadUint32(t.u32(at + serviceAt + 4*s.i))
}

func (t *Table) storeKey(s slot, k key) {
	at := offBuckets + s.bucket*bucketBytes
	atomic.StoreUint64(t.u64(at+keyAt+16*s.i), k.hi)
	atomic.StoreUint64(t.u64(at+keyAt+16*s.i+8), k.lo)
	atomic.StoreUint32(t.u32(at+serviceAt+4*s.i), k.service)
}

// live says whether a slot with this meta holds an entry whose lease has not ended.
func live(m, now uint64) bool {
	return m&metaCode != 0 && (m>>metaExpires == 0 || now < m>>metaExpires)
}

// hash gives the two buckets of a key and the tag that its meta carries.
func (t *Table) hash(k key) (first, second int, tag uint64) {
	s0, s1, s2, s3 := *t.u64(offSeeds), *t.u64(offSeeds + 8), *t.u64(offSeeds + 16), *t.u64(offSeeds + 24)
	h := (k.hi ^ s0) * s1
	h ^= h >> 32
	h = ((h ^ k.lo) + (uint64(k.code) | uint64(k.service)<<8)) * s2
	h ^= h >> 32
	h *= s3
	n := uint64(t.buckets)
	return int((h >> 32) * n >> 32), int((h & 0xffffffff) * n >> 32), uint64(k.code) | h&0xff<<8
}

// find looks for the entry of exactly this key, whatever its lease.
func (t *Table) find(k key) (slot, bool) {
	first, second, tag := t.hash(k)
	if s, ok := t.findIn(first, k, tag); ok {
		return s, true
	}
	if atomic.LoadUint32(t.spilled(first)) == 0 {
		return slot{}, false
	}
	return t.findIn(second, k, tag)
}

// findIn is what the emitted code does with a bucket: the meta is read between two looks at what identifies the
// entry, so that it cannot be that of another.
func (t *Table) findIn(bucket int, k key, tag uint64) (slot, bool) {
	for i := range slots {
		s := slot{bucket, i}
		m := atomic.LoadUint64(t.metaAt(s))
		if m&metaTag != tag {
			continue
		}
		hi, lo, service := t.loadKey(s)
		if hi == k.hi && lo == k.lo && service == k.service && (atomic.LoadUint64(t.metaAt(s))^m)&metaIdentity == 0 {
			return s, true
		}
	}
	return slot{}, false
}

// renew gives an entry another lease. Its identity stays, so a reader takes the old or the new.
func (t *Table) renew(s slot, expires uint64) {
	expires = min(expires, latest)
	atomic.StoreUint64(t.metaAt(s), *t.metaAt(s)&metaIdentity|expires<<metaExpires)
	t.note(expires)
}

// note keeps the earliest end of any lease.
func (t *Table) note(expires uint64) {
	if e := t.u64(offEarliest); expires != 0 && expires < *e {
		*e = expires
	}
}

// write fills a free slot: what is there is not believed until meta is written, last.
func (t *Table) write(s slot, k key, tag, expires uint64) {
	m := t.metaAt(s)
	identity := tag | (*m+1<<16)&0xff0000
	atomic.StoreUint64(m, *m&^metaCode)
	t.storeKey(s, k)
	atomic.StoreUint64(m, identity|expires<<metaExpires)
}

// keyAt reads the entry of a slot in use. A code that cannot be counts as the last there is.
func (t *Table) keyAt(s slot) key {
	hi, lo, service := t.loadKey(s)
	return key{hi, lo, service, min(int(*t.metaAt(s)&metaCode), lastCode)}
}

// free finds a slot in the bucket that holds nothing; an entry whose lease has ended is removed for it.
func (t *Table) free(bucket int, now uint64) (slot, bool) {
	for i := range slots {
		s := slot{bucket, i}
		m := *t.metaAt(s)
		if m&metaCode == 0 {
			return s, true
		}
		if !live(m, now) {
			t.remove(s, t.keyAt(s))
			return s, true
		}
	}
	return slot{}, false
}

// insert puts a new key in one of its buckets, moving others to their second bucket if need be, and fails when
// there is no room.
func (t *Table) insert(k key, expires, now uint64) bool {
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
	t.note(expires)
	return true
}

// makeRoom empties a slot of the bucket by moving an entry from its first to its second bucket, in which up to depth
// such moves make room first. Only this direction is safe: a reader looks into the first bucket and then into the
// second, and the entry is in the second before it leaves the first.
func (t *Table) makeRoom(bucket, depth int, now uint64) (slot, bool) {
	for i := range slots {
		s := slot{bucket, i}
		k, m := t.keyAt(s), *t.metaAt(s)
		first, second, tag := t.hash(k)
		if first != bucket || second == bucket {
			continue
		}
		to, ok := t.free(second, now)
		if !ok && depth > 0 {
			to, ok = t.makeRoom(second, depth-1, now)
		}
		if !ok || *t.metaAt(s) != m { // the moves may have come back here
			continue
		}
		atomic.AddUint32(t.spilled(first), 1)
		t.write(to, k, tag, m>>metaExpires)
		t.vacate(s)
		return s, true
	}
	return slot{}, false
}

// vacate marks a slot free. The number of the entry stays, for the next one to count on.
func (t *Table) vacate(s slot) {
	m := t.metaAt(s)
	atomic.StoreUint64(m, *m&0xff0000)
}

// remove takes an entry out and settles the accounts.
func (t *Table) remove(s slot, k key) {
	first, _, _ := t.hash(k)
	t.vacate(s)
	if s.bucket != first {
		atomic.AddUint32(t.spilled(first), ^uint32(0))
	}
	t.count(k, -1)
}

// used visits what is in use. The loop may remove it.
func (t *Table) used() iter.Seq2[slot, key] {
	return func(yield func(slot, key) bool) {
		for b := range t.buckets {
			for i := range slots {
				s := slot{b, i}
				if *t.metaAt(s)&metaCode != 0 && !yield(s, t.keyAt(s)) {
					return
				}
			}
		}
	}
}
