package prefix

import (
	"math/bits"
	"net/netip"
	"slices"
	"sync/atomic"

	"levee/internal/filter/hashtable"
)

// The bulk of a family answers for most addresses in the few loads of a static set (level.go). It
// is what the entries said when it was built (Dynamic.Merge), and never changes while programs read
// it. The table (package hashtable) has all entries, the bulk's too.
//
// What changes afterwards is marked: a bit for each small area of addresses says that an entry came
// there (added), another that one left or may leave before the horizon (deleted). An address is a
// member if the bulk has it and no entry left its areas, and none if the bulk has it not and no
// entry came. The table is asked about all others, so overlapping entries need no thought here.
//
// The horizon is the time in jiffies up to which no entry of the bulk ends. Entries that end
// earlier are not in it; their areas have the mark of what came. From the horizon on, and without
// one, the table is asked about every address.
//
// Marks are set before the change that they tell of can be seen, so a reader that goes by the bulk
// answers as it was right before that change. They are never cleared: a merge makes other memory.

// bulk gives the places of a family's own memory.
type bulk struct {
	head  int   // what is known of it
	marks int   // pairs of words: of what came, of what left
	bits  int   // log2 of the pairs
	tops  []int // an area has the size of the shortest of these that is no shorter than the entry
}

// Areas. A word has 64 neighbours of one size; its pair is chosen by a hash of what they share.
var (
	bulk4 = bulk{head: offBulk4, tops: []int{20, 24}}
	bulk6 = bulk{head: offBulk6, tops: []int{32, 40, 48}}
)

// What is known of a bulk, at its head:
//
//	0    horizon; 0: there is no bulk, all ones: nothing in it ever ends
//	8    marks set since it was built
//	16   until when no other is built
//	24   whether the entries found no room in the arena (1)
//	32   levels, 32 bytes each: u8 kind, u8 x 3 shifts, u32 slots, u32 x 2 offsets in the arena,
//	     u64 multiplier
const (
	headMarked = 8
	headRest   = 16
	headTooBig = 24
	headLevels = 32

	maxLevels = 6
	sizeLevel = 32

	added   = 0 // the word of a pair
	deleted = 1
)

// Kinds of levels; see layout.
const (
	noLevel     = iota
	directLevel // IPv4
	hashedLevel // a slot of IPv4 has key over bitmap, of IPv6 key and bitmap
	wideLevel   // IPv6: two words of key and a bitmap
)

// ofBulk plans levels whose shape programs learn at run time. There are fewer kinds of them, and
// each costs more than in code made for it.
func ofBulk(bytes int) *planner {
	return &planner{
		layouts4: []layout{{span: 5, size: 8}, {span: 6, size: 8, direct: true}},
		layouts6: []layout{{span: 6, size: 16}},
		layoutsW: []layout{{span: 6, size: 24, wide: true}},
		levelNs:  8, maxBytes: bytes,
	}
}

const (
	// Rooms of sets that have a bulk. Below, all that a look-up reads is in the cache anyway. The
	// largest need the memory that a program can address for themselves.
	minBulk = 4096
	maxBulk = 4 << 20
	// minEntries of a family for which a bulk is built.
	minEntries = 1024
	// markedAtOnce is the largest number of pairs that one entry may mark. A change of a prefix
	// below /4, of IPv6 below /16, gives the bulk up instead.
	markedAtOnce = 1 << 10
	maxArena     = 16 << 20
)

// HasBulk reports whether sets of that room have a bulk, and look-ups the code for it.
func HasBulk(room int) bool { return room >= minBulk && room <= maxBulk }

// placeBulk lays out marks and arena from an offset on, and returns where they end.
func (g *geometry) placeBulk(at, room int) int {
	for _, f := range []*family{&g.v4, &g.v6} {
		f.bulk.bits = min(bits.Len(uint(room))-3, 15)
		f.bulk.marks = at
		at += 16 << f.bulk.bits
	}
	g.arena = at
	g.bytes = min(32*room, maxArena)
	return at + g.bytes
}

// horizon returns the end of what the family's bulk knows.
func (d *Dynamic) horizon(f *family) *uint64 { return d.mem.U64(f.bulk.head) }

// forget makes programs ask the table.
func (d *Dynamic) forget() {
	if d.bytes > 0 {
		atomic.StoreUint64(d.horizon(&d.v4), 0)
		atomic.StoreUint64(d.horizon(&d.v6), 0)
	}
}

// area returns the number of a pair of marks for an address, left-aligned, and the bit of its
// words, for areas of the size number i.
func (d *Dynamic) area(f *family, i int, hi uint64) (pair, bit int) {
	seed := *d.mem.U64(hashtable.AtSeeds + 8*(1+i))
	top := f.bulk.tops[i]
	return int(hi >> (64 - top + 6) * seed >> (64 - f.bulk.bits)), int(hi >> (64 - top) & 63)
}

func (d *Dynamic) markAt(f *family, pair, what int) *uint64 {
	return d.mem.U64(f.bulk.marks + 16*pair + 8*what)
}

// mark tells readers of the bulk that an entry comes or leaves.
func (d *Dynamic) mark(f *family, k hashtable.Key, what int) {
	if d.bytes == 0 {
		return
	}
	*d.mem.U64(f.bulk.head + headMarked)++
	if *d.horizon(f) == 0 {
		return
	}
	hi := k.Hi
	if f.Narrow {
		hi <<= 32
	}
	length := lengthOf(k)
	i := slices.IndexFunc(f.bulk.tops, func(top int) bool { return length <= top })
	if i < 0 {
		i = len(f.bulk.tops) - 1
	}
	top := f.bulk.tops[i]
	run, words := uint64(1), 1
	switch {
	case length <= top-6:
		run, words = ^uint64(0), 1<<(top-6-length)
	case length < top:
		run = 1<<(1<<(top-length)) - 1
	}
	if words > markedAtOnce {
		atomic.StoreUint64(d.horizon(f), 0)
		return
	}
	for range words {
		pair, bit := d.area(f, i, hi)
		w := d.markAt(f, pair, what)
		if v := *w | run<<bit; v != *w {
			atomic.StoreUint64(w, v)
		}
		hi += 1 << (64 - top + 6)
	}
}

// shorten marks an entry that is given a lease that ends before the horizon.
func (d *Dynamic) shorten(f *family, k hashtable.Key, expires uint64) {
	if expires != 0 && d.bytes > 0 && expires < *d.horizon(f) {
		d.mark(f, k, deleted)
	}
}

// inBulk says whether the address is a member, if the bulk knows, and how many levels it took.
func (d *Dynamic) inBulk(a netip.Addr) (member bool, levels int, known bool) {
	if d.bytes == 0 || !a.IsValid() {
		return false, 0, false
	}
	f := &d.v6
	if a.Is4() {
		f = &d.v4
	}
	horizon := atomic.LoadUint64(d.horizon(f))
	if horizon == 0 || horizon != ^uint64(0) && d.now() >= horizon {
		return false, 0, false
	}
	hi, lo := split(a)
	what := added
	for ; levels < maxLevels; levels++ {
		at := f.bulk.head + headLevels + sizeLevel*levels
		if d.mem[at] == noLevel {
			break
		}
		bitmap, ok := d.levelBitmap(f, at, hi, lo)
		if !ok {
			return false, 0, false
		}
		if bitmap&1 != 0 {
			what = deleted
		}
	}
	for i := range f.bulk.tops {
		pair, bit := d.area(f, i, hi)
		if atomic.LoadUint64(d.markAt(f, pair, what))>>bit&1 != 0 {
			return false, 0, false
		}
	}
	return what == deleted, levels, true
}

// levelBitmap reads the level at an offset as the emitted code does: bit 0 is the answer. It is not
// ok if the level leads out of the arena.
func (d *Dynamic) levelBitmap(f *family, at int, hi, lo uint64) (bitmap uint64, ok bool) {
	kind, keyShift, bitShift, dispShift := d.mem[at], d.mem[at+1], d.mem[at+2], d.mem[at+3]
	slots, disp, data := *d.mem.U32(at + 4), *d.mem.U32(at + 8), *d.mem.U32(at + 12)
	arena := d.mem[d.arena : d.arena+d.bytes]
	load := func(at uint64) uint64 { return *hashtable.Memory(arena).U64(int(at)) }
	key, tail := hi>>keyShift, uint64(0)
	index := hi >> bitShift & 63
	if kind == directLevel {
		if at := uint64(data) + key*8; at <= uint64(d.bytes-8) {
			return load(at) >> index, true
		}
		return 0, false
	}
	h, size := key, uint64(16)
	if f.Narrow {
		size, index = 8, index&31
	}
	if kind == wideLevel {
		key, tail, index, size = hi, lo>>keyShift, lo>>bitShift&63, 24
		h = hi
	}
	h *= *d.mem.U64(at + 16)
	if kind == wideLevel {
		h ^= h >> 32
		h += tail
		h *= mul3
	}
	h ^= h >> 32
	h *= mul2
	i := h>>dispShift*2 + uint64(disp)
	if i > uint64(d.bytes-2) {
		return 0, false
	}
	displace := uint32(arena[i]) | uint32(arena[i+1])<<8
	i = uint64(uint32(h)+displace*mulD)*uint64(slots)>>32*size + uint64(data)
	if i > uint64(d.bytes)-size {
		return 0, false
	}
	switch size {
	case 8:
		if w := load(i); w>>32 == key {
			return w >> index, true
		}
	case 16:
		if load(i) == key {
			return load(i+8) >> index, true
		}
	case 24:
		if load(i) == key && load(i+8) == tail {
			return load(i+16) >> index, true
		}
	}
	return 0, true
}
