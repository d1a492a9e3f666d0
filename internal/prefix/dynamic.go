package prefix

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"sync/atomic"
	"unsafe"
)

// Entry is a prefix of a dynamic set with the end of its lease in jiffies; 0 is never.
type Entry struct {
	Prefix  netip.Prefix
	Expires uint64
}

// Dynamic is a set of prefixes with leases in memory that eBPF programs read at the same time.
//
// One writer at a time: neither the methods that change the set nor those that list it may run
// concurrently, and processes that open the same pinned map must hold a lock of their own (a
// file lock) around each of them. Programs and Lookup need no lock. A change of one entry takes
// effect at once and as a whole. A writer that dies in the middle leaves a set that programs read
// correctly; the next Open mends its bookkeeping.
type Dynamic struct {
	geometry
	room int
	mem  []byte
	now  func() uint64
}

func (d *Dynamic) u32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&d.mem[off])) }
func (d *Dynamic) u64(off int) *uint64 { return (*uint64)(unsafe.Pointer(&d.mem[off])) }

func (d *Dynamic) family(p netip.Addr) *family {
	if p.Is4() {
		return &d.v4
	}
	return &d.v6
}

// Format makes an empty set of zeroed memory, which must have the size that DynamicSpec gives for
// max, and chooses its seeds.
func Format(mem []byte, max int) error { return FormatRoom(mem, max, max) }

// FormatRoom is Format for memory that is laid out for room entries, at least max, so that sets of different max can
// be looked up by one function: that of room.
func FormatRoom(mem []byte, max, room int) error {
	if max < 1 || max > room || room > MaxEntries {
		return fmt.Errorf("dynamic set: max is 1 to %d entries and no more than there is room for, not %d of %d", MaxEntries, max, room)
	}
	g := geometryOf(room)
	if len(mem) != g.size {
		return fmt.Errorf("dynamic set for %d entries: memory of %d bytes, want %d: %w", room, len(mem), g.size, ErrLayout)
	}
	for length := range 129 {
		hi, lo := mask(^uint64(0), ^uint64(0), length)
		binary.NativeEndian.PutUint64(mem[offMasks+16*(length+1):], hi)
		binary.NativeEndian.PutUint64(mem[offMasks+16*(length+1)+8:], lo)
	}
	for bit := range 64 {
		mem[offLowest+lowestHash(1<<bit)] = byte(bit)
	}
	if _, err := rand.Read(mem[offSeeds : offSeeds+32]); err != nil {
		return fmt.Errorf("dynamic set: choose seeds: %w", err)
	}
	for i := 1; i < 4; i++ {
		mem[offSeeds+8*i] |= 1 // multipliers are odd
	}
	binary.NativeEndian.PutUint64(mem[offVersion:], version)
	binary.NativeEndian.PutUint64(mem[offMax:], uint64(max))
	binary.NativeEndian.PutUint64(mem[offRoom:], uint64(room))
	binary.NativeEndian.PutUint64(mem[offSize:], uint64(g.size))
	binary.NativeEndian.PutUint64(mem[offMagic:], magic)
	return nil
}

// Open gives access to a formatted set. now is the clock of the leases, in jiffies. Memory that is
// not such a set gives ErrLayout; a set that a writer left half-way is mended.
func Open(mem []byte, now func() uint64) (*Dynamic, error) {
	if len(mem) < offFilters || uintptr(unsafe.Pointer(&mem[0]))%8 != 0 {
		return nil, fmt.Errorf("dynamic set: %d bytes of memory: %w", len(mem), ErrLayout)
	}
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(mem[off:]) }
	if word(offMagic) != magic || word(offVersion) != version {
		return nil, fmt.Errorf("dynamic set: magic %#x, version %d: %w", word(offMagic), word(offVersion), ErrLayout)
	}
	max, room := word(offMax), word(offRoom)
	if room == 0 { // made before sets had it
		room = max
	}
	if max < 1 || max > room || room > MaxEntries || geometryOf(int(room)).size != len(mem) || word(offSize) != uint64(len(mem)) {
		return nil, fmt.Errorf("dynamic set: max %d, room for %d, in %d bytes: %w", max, room, len(mem), ErrLayout)
	}
	d := &Dynamic{geometry: geometryOf(int(room)), room: int(room), mem: mem, now: now}
	d.max = int(max)
	for length := range 129 {
		hi, lo := mask(^uint64(0), ^uint64(0), length)
		if at := offMasks + 16*(length+1); word(at) != hi || word(at+8) != lo {
			return nil, fmt.Errorf("dynamic set: mask of /%d: %w", length, ErrLayout)
		}
	}
	if atomic.LoadUint32(d.u32(offDirty)) != 0 || !d.sound() {
		d.repair()
	}
	return d, nil
}

// CopyTo makes dst, memory of the same size that nobody reads yet, a set with the same entries, seeds and counts.
func (d *Dynamic) CopyTo(dst []byte) error {
	if len(dst) != len(d.mem) {
		return fmt.Errorf("dynamic set: copy %d bytes to %d: %w", len(d.mem), len(dst), ErrLayout)
	}
	copy(dst, d.mem)
	return nil
}

// Refused is the number of entries that found the set full, as counted by Refuse.
func (d *Dynamic) Refused() uint64 { return atomic.LoadUint64(d.u64(offRefused)) }

// Refuse counts n entries that were not taken because the set is full. Whoever adds many at once, and
// none of them if one does not fit, knows how many that are.
func (d *Dynamic) Refuse(n uint64) { atomic.AddUint64(d.u64(offRefused), n) }

// Max is the number of entries the set may have.
func (d *Dynamic) Max() int { return d.max }

// Room is the number of entries that the memory is laid out for, at least Max.
func (d *Dynamic) Room() int { return d.room }

// Len is the number of entries, including those whose lease has ended and that Expire has not yet
// removed.
func (d *Dynamic) Len() int { return int(*d.u32(offTotal)) }

// change brackets every modification, so that a writer killed within one is noticed.
func (d *Dynamic) change() func() {
	atomic.StoreUint32(d.u32(offDirty), 1)
	return func() {
		d.freshen()
		atomic.StoreUint32(d.u32(offDirty), 0)
	}
}

// Add puts a prefix into the set until the clock reaches expires (0: until deleted), or gives an
// entry that is there its new lease. A lease that has ended already removes the entry. Host bits are
// ignored. If the set is full of live entries the error wraps ErrFull and nothing has changed.
func (d *Dynamic) Add(p netip.Prefix, expires uint64) error {
	if !p.IsValid() {
		return fmt.Errorf("dynamic set: add %v: not a prefix", p)
	}
	defer d.change()()
	now := d.now()
	k := d.keyOf(p)
	if expires != 0 && expires <= now {
		d.delete(k)
		return nil
	}
	if s, ok := d.find(k); ok {
		d.renew(s, expires)
		return nil
	}
	if d.Len() >= d.max && !d.reclaim(k, now) {
		return fmt.Errorf("dynamic set: add %v to %d entries: %w", p, d.Len(), ErrFull)
	}
	d.sweep(now)
	if !d.insert(k, expires, now) && (!d.reclaim(k, now) || !d.insert(k, expires, now)) {
		return fmt.Errorf("dynamic set: add %v to %d entries: no room near its place: %w", p, d.Len(), ErrFull)
	}
	return nil
}

// Delete takes a prefix out of the set and says whether it was there with a lease that had not ended.
func (d *Dynamic) Delete(p netip.Prefix) bool {
	if !p.IsValid() {
		return false
	}
	defer d.change()()
	return d.delete(d.keyOf(p))
}

func (d *Dynamic) delete(k key) bool {
	s, ok := d.find(k)
	if !ok {
		return false
	}
	alive := live(*d.metaAt(s), d.now())
	d.remove(s, k)
	return alive
}

// Get finds the entry of exactly this prefix, if its lease has not ended.
func (d *Dynamic) Get(p netip.Prefix) (Entry, bool) {
	if !p.IsValid() {
		return Entry{}, false
	}
	k := d.keyOf(p)
	s, ok := d.find(k)
	if !ok || !live(*d.metaAt(s), d.now()) {
		return Entry{}, false
	}
	return Entry{p.Masked(), *d.metaAt(s) >> metaExpires}, true
}

// All lists the entries whose lease has not ended, in no order.
func (d *Dynamic) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		now := d.now()
		for s, k := range d.slots() {
			if m := *d.metaAt(s); live(m, now) && !yield(Entry{k.prefix(), m >> metaExpires}) {
				return
			}
		}
	}
}

// Expire removes the entries whose lease has ended at the time now, and says how many.
func (d *Dynamic) Expire(now uint64) int {
	if now < *d.u64(offEarliest) {
		return 0
	}
	defer d.change()()
	n := 0
	earliest := ^uint64(0)
	for s, k := range d.slots() {
		m := *d.metaAt(s)
		if !live(m, now) {
			d.remove(s, k)
			n++
		} else if e := m >> metaExpires; e != 0 {
			earliest = min(earliest, e)
		}
	}
	*d.u64(offEarliest) = earliest
	return n
}
