package endpoint

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"sync/atomic"
	"unsafe"
)

// Entry is an endpoint with the end of its lease in jiffies; 0 is never. Its ports are those of which the first Bits
// bits, 0 to 16, are those of Port. Protocols without ports have Bits 0.
type Entry struct {
	Prefix  netip.Prefix
	Proto   uint8
	Port    uint16
	Bits    uint8
	Expires uint64
}

// Table is a dynamic set of endpoints in memory that eBPF programs read at the same time.
//
// One writer at a time, as for prefix.Dynamic: processes that open the same map hold a lock of their own around
// each change. Programs and Lookup need none. A change of one entry takes effect at once and as a whole. A writer that
// dies in the middle leaves a set that programs read correctly; the next Open mends its bookkeeping.
type Table struct {
	mem     []byte
	max     int
	room    int
	buckets int
	now     func() uint64
}

func (t *Table) u32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&t.mem[off])) }
func (t *Table) u64(off int) *uint64 { return (*uint64)(unsafe.Pointer(&t.mem[off])) }

// Format makes an empty set of zeroed memory, which must have the size that Spec gives for max, and chooses its seeds.
func Format(mem []byte, max int) error { return FormatRoom(mem, max, max) }

// FormatRoom is Format for memory that is laid out for room entries, at least max, as prefix.FormatRoom.
func FormatRoom(mem []byte, max, room int) error {
	if max < 1 || max > room || room > MaxEntries {
		return fmt.Errorf("dynamic set: max of a set of endpoints or services is 1 to %d entries and no more than there is room for, not %d of %d", MaxEntries, max, room)
	}
	if len(mem) != sizeFor(room) {
		return fmt.Errorf("dynamic set for %d entries: memory of %d bytes, want %d: %w", room, len(mem), sizeFor(room), ErrLayout)
	}
	for code := codes4; code <= lastCode; code++ {
		hi, lo := codeMask(code)
		binary.NativeEndian.PutUint64(mem[offMasks+16*code:], hi)
		binary.NativeEndian.PutUint64(mem[offMasks+16*code+8:], lo)
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
	binary.NativeEndian.PutUint64(mem[offSize:], uint64(len(mem)))
	binary.NativeEndian.PutUint64(mem[offMagic:], magic)
	return nil
}

func codeMask(code int) (hi, lo uint64) {
	length, _ := lengthOf(code)
	return mask(length)
}

// Open gives access to a formatted set. now is the clock of the leases, in jiffies. Memory that is not such a set gives
// ErrLayout; a set that a writer left half-way is mended.
func Open(mem []byte, now func() uint64) (*Table, error) {
	if len(mem) < offBuckets || uintptr(unsafe.Pointer(&mem[0]))%8 != 0 {
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
	if max < 1 || max > room || room > MaxEntries || sizeFor(int(room)) != len(mem) || word(offSize) != uint64(len(mem)) {
		return nil, fmt.Errorf("dynamic set: max %d, room for %d, in %d bytes: %w", max, room, len(mem), ErrLayout)
	}
	for code := codes4; code <= lastCode; code++ {
		if hi, lo := codeMask(code); word(offMasks+16*code) != hi || word(offMasks+16*code+8) != lo {
			return nil, fmt.Errorf("dynamic set: mask of length code %d: %w", code, ErrLayout)
		}
	}
	t := &Table{mem: mem, max: int(max), room: int(room), buckets: bucketsFor(int(room)), now: now}
	if atomic.LoadUint32(t.u32(offDirty)) != 0 || !t.sound() {
		t.repair()
	}
	return t, nil
}

// CopyTo makes dst, memory of the same size that nobody reads yet, a set with the same entries, seeds and counts.
func (t *Table) CopyTo(dst []byte) error {
	if len(dst) != len(t.mem) {
		return fmt.Errorf("dynamic set: copy %d bytes to %d: %w", len(t.mem), len(dst), ErrLayout)
	}
	copy(dst, t.mem)
	return nil
}

// Refused is the number of entries that found the set full, as counted by Refuse.
func (t *Table) Refused() uint64 { return atomic.LoadUint64(t.u64(offRefused)) }

// Refuse counts n entries that were not taken because the set is full.
func (t *Table) Refuse(n uint64) { atomic.AddUint64(t.u64(offRefused), n) }

// Max is the number of entries the set may have.
func (t *Table) Max() int { return t.max }

// Room is the number of entries that the memory is laid out for, at least Max.
func (t *Table) Room() int { return t.room }

// Len is the number of entries, including those whose lease has ended and that Expire has not yet removed.
func (t *Table) Len() int { return int(*t.u32(offTotal)) }

// change brackets every modification, so that a writer killed within one is noticed.
func (t *Table) change() func() {
	atomic.StoreUint32(t.u32(offDirty), 1)
	return func() { atomic.StoreUint32(t.u32(offDirty), 0) }
}

// Add puts an entry into the set, or gives one that is there its new lease. A lease that has ended already removes the
// entry. Bits of the address and of the port that do not count are ignored. If the set is full of live entries, or has no
// room for another shape, the error wraps ErrFull or ErrShapes and nothing has changed.
func (t *Table) Add(e Entry) error {
	k, ok := keyOf(e)
	if !ok {
		return fmt.Errorf("dynamic set: add %v: not an endpoint", e)
	}
	defer t.change()()
	now := t.now()
	if e.Expires != 0 && e.Expires <= now {
		t.delete(k)
		return nil
	}
	if s, ok := t.find(k); ok {
		t.renew(s, e.Expires)
		return nil
	}
	if !t.hasShape(k) && !t.roomForShape(k) {
		if t.Expire(now); !t.roomForShape(k) {
			return fmt.Errorf("dynamic set: add an entry of another size: %w", ErrShapes)
		}
	}
	if t.Len() >= t.max && !t.reclaim(k, now) {
		return fmt.Errorf("dynamic set: add to %d entries: %w", t.Len(), ErrFull)
	}
	t.sweep(now)
	if !t.insert(k, e.Expires, now) && (!t.reclaim(k, now) || !t.insert(k, e.Expires, now)) {
		return fmt.Errorf("dynamic set: add to %d entries: no room near its place: %w", t.Len(), ErrFull)
	}
	return nil
}

// Delete takes an entry out of the set, whatever its lease, and says whether it was there with one that had not ended.
func (t *Table) Delete(e Entry) bool {
	k, ok := keyOf(e)
	if !ok {
		return false
	}
	defer t.change()()
	return t.delete(k)
}

func (t *Table) delete(k key) bool {
	s, ok := t.find(k)
	if !ok {
		return false
	}
	alive := live(*t.metaAt(s), t.now())
	t.remove(s, k)
	return alive
}

// Get gives the end of the lease of exactly this entry, if it has not ended.
func (t *Table) Get(e Entry) (expires uint64, ok bool) {
	k, ok := keyOf(e)
	if !ok {
		return 0, false
	}
	s, ok := t.find(k)
	if !ok || !live(*t.metaAt(s), t.now()) {
		return 0, false
	}
	return *t.metaAt(s) >> metaExpires, true
}

// All lists the entries whose lease has not ended, in no order.
func (t *Table) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		now := t.now()
		for s, k := range t.used() {
			if m := *t.metaAt(s); live(m, now) && !yield(k.entry(m>>metaExpires)) {
				return
			}
		}
	}
}

// Expire removes the entries whose lease has ended at the time now, and says how many.
func (t *Table) Expire(now uint64) int {
	if now < *t.u64(offEarliest) {
		return 0
	}
	dirty := atomic.SwapUint32(t.u32(offDirty), 1)
	defer atomic.StoreUint32(t.u32(offDirty), dirty)
	n := 0
	earliest := ^uint64(0)
	for s, k := range t.used() {
		m := *t.metaAt(s)
		if !live(m, now) {
			t.remove(s, k)
			n++
		} else if e := m >> metaExpires; e != 0 {
			earliest = min(earliest, e)
		}
	}
	*t.u64(offEarliest) = earliest
	return n
}

// Lookup says whether a live entry covers the address, protocol and port (0 where there is none). It may run beside a writer.
func (t *Table) Lookup(a netip.Addr, proto uint8, port uint16) bool {
	if !a.IsValid() {
		return false
	}
	number, list := offNumber6, offShapes6
	if a.Is4() {
		number, list = offNumber4, offShapes4
	}
	for i := int(min(atomic.LoadUint32(t.u32(number)), MaxShapes)) - 1; i >= 0; i-- { // from the end: see count
		shape := atomic.LoadUint32(t.u32(list + 4*i))
		length, _ := lengthOf(int(shape & metaCode))
		p, err := a.Prefix(length)
		if err != nil {
			continue
		}
		k, ok := keyOf(Entry{Prefix: p, Proto: proto, Port: port, Bits: uint8(shape >> 8)})
		if !ok {
			continue
		}
		if s, ok := t.find(k); ok && live(atomic.LoadUint64(t.metaAt(s)), t.now()) {
			return true
		}
	}
	return false
}
