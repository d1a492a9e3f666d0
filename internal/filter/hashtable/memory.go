package hashtable

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Where the memory of every set has what. All words are little-endian, as the compiled programs
// are. What is free up to the masks, and what lies between them and the tables, is laid out by the
// kind.
const (
	AtMagic   = 0
	AtVersion = 8
	AtMax     = 16
	AtSize    = 24
	AtDirty   = 32 // u32: a writer is, or was killed, in the middle of a change
	AtTotal   = 36 // u32: entries, expired ones too
	atEnds    = 40 // u64: no entry's lease ends before these jiffies
	atScanned = 48 // u64: when the set was last searched for ended leases to make room
	atRefused = 56 // u64: entries that found the set full
	AtSeeds   = 64 // 4 x u64: of the hash, random for each set since attackers choose the keys
	atSweep   = 96 // u64: the bucket where the next writer looks for ended leases

	AtOwn   = 104  // from here on the kind's own words
	AtMasks = 4096 // 16 bytes each, by code; 256 of them, so that any byte is an index
	AtRest  = 8192 // from here on the kind's own words and the tables
)

// latest is the latest end of a lease that can be stored, about 34 years at 1000 Hz.
const latest = 1<<40 - 1

// Errors that a caller may match.
var (
	ErrFull   = errors.New("set is full")
	ErrLayout = errors.New("not the map of a dynamic set of this kind and version")
)

// Kind holds the constants of all sets with the same sort of entries.
type Kind struct {
	Of         string // what they hold, for errors: "of a set of services"; may be empty
	Magic      uint64 // not text, and not any other map's first word
	Version    uint64
	MaxEntries int   // the largest max
	AtRoom     int   // where the room stands; 0 there is max
	Lengths    []int // of the prefixes of up to 128 bits that the codes stand for, from code 1 on

	// Layout says where the tables of a set with this room lie, in ascending order and with as many
	// buckets each, and how large its memory is, a multiple of 4096. It depends on the room alone,
	// so a program can be compiled before the map exists.
	Layout func(room int) (tables []Layout, size int)
}

// Layout is the place of a table and the form of its buckets. Offsets in a bucket are in bytes.
type Layout struct {
	At      int // of the first bucket in the memory
	Buckets int
	Bytes   int // of a bucket
	Slots   int // of a bucket

	Narrow   bool // keys have the 32 bits of Key.Hi only, and no service
	Digests  bool // keys are the 64 bits of Key.Hi, a digest, and have no bits behind a prefix
	Spilled  int  // u32: how many entries of the bucket lie in their second one
	Metas    int  // u64 each
	Keys     int  // u32 each in a narrow table, u64 each of digests, else 2 x u64
	Services int  // u32 each; 0: keys have none
	Values   int  // u32 each, of entries, which programs do not read; 0: they have none
	Codes    int  // the codes that keys may have: 1 to this
}

// Reach limits how far behind a pointer the verifier lets a number that it does not know lead
// (BPF_MAX_VAR_OFF, include/linux/bpf_verifier.h). Since Linux 7.3 constants count, too.
const Reach = 1 << 29

// Far reports whether the table ends farther from the beginning of the memory than that. Then
// functions are given the address of the table as well.
func (l *Layout) Far() bool { return l.At+l.Size() > Reach }

// Size returns how many bytes the table has.
func (l *Layout) Size() int { return l.Buckets * l.Bytes }

// Memory is the value of a set's map.
type Memory []byte

// U32 returns the word at an offset, a multiple of four.
func (m Memory) U32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&m[off])) }

// U64 returns the word at an offset, a multiple of eight.
func (m Memory) U64(off int) *uint64 { return (*uint64)(unsafe.Pointer(&m[off])) }

// Spec describes the map of a set laid out for room entries: an array of maps with one entry, 0, in
// which the memory of the set is put: a map of InnerMap, an array with one entry that user space
// maps and formats (Format). Putting another there replaces the whole contents in one step. Without
// one, programs see a set without entries. The error is for a room outside 1 to MaxEntries.
func (k *Kind) Spec(name string, room int) (*ebpf.MapSpec, error) {
	if room < 1 || room > k.MaxEntries {
		return nil, fmt.Errorf("dynamic set %q: max %sis 1 to %d entries, not %d", name, k.of(),
			k.MaxEntries, room)
	}
	_, size := k.Layout(room)
	return &ebpf.MapSpec{
		Name:       name,
		Type:       ebpf.ArrayOfMaps,
		KeySize:    4,
		ValueSize:  4,
		MaxEntries: 1,
		InnerMap: &ebpf.MapSpec{
			Name:       name,
			Type:       ebpf.Array,
			KeySize:    4,
			ValueSize:  uint32(size),
			MaxEntries: 1,
			Flags:      unix.BPF_F_MMAPABLE,
		},
	}, nil
}

func (k *Kind) of() string {
	if k.Of == "" {
		return ""
	}
	return k.Of + " "
}

// Format makes an empty set of zeroed memory, which must have the size that Spec gives for room,
// and chooses its seeds. The memory is laid out for room entries, at least max, so that sets of
// different max can be looked up by one function: that of room.
func (k *Kind) Format(mem Memory, max, room int) error {
	if max < 1 || max > room || room > k.MaxEntries {
		return fmt.Errorf("dynamic set: max %sis 1 to %d entries and no more than there is room "+
			"for, not %d of %d", k.of(), k.MaxEntries, max, room)
	}
	if _, size := k.Layout(room); len(mem) != size {
		return fmt.Errorf("dynamic set for %d entries: memory of %d bytes, want %d: %w", room,
			len(mem), size, ErrLayout)
	}
	put := func(off int, v uint64) { binary.NativeEndian.PutUint64(mem[off:], v) }
	for i, length := range k.Lengths {
		hi, lo := mask(length)
		put(AtMasks+16*(i+1), hi)
		put(AtMasks+16*(i+1)+8, lo)
	}
	if _, err := rand.Read(mem[AtSeeds : AtSeeds+32]); err != nil {
		return fmt.Errorf("dynamic set: choose seeds: %w", err)
	}
	for i := 1; i < 4; i++ {
		mem[AtSeeds+8*i] |= 1 // multipliers are odd
	}
	put(AtVersion, k.Version)
	put(AtMax, uint64(max))
	put(k.AtRoom, uint64(room))
	put(AtSize, uint64(len(mem)))
	put(atEnds, math.MaxUint64)
	put(AtMagic, k.Magic)
	return nil
}

// mask keeps the first n bits of an address.
func mask(n int) (hi, lo uint64) {
	const ones = ^uint64(0)
	if n <= 64 {
		return ones &^ (ones >> n), 0
	}
	return ones, ones &^ (ones >> (n - 64))
}

// Open gives access to a formatted set. now is the clock of the leases, in jiffies. index is called
// once, with the set whose tables are known, and returns the Index that hears of its entries.
// Memory that is not such a set gives ErrLayout; a set that a writer left half-way is mended.
func (k *Kind) Open(mem Memory, now func() uint64, index func(*Set) Index) (*Set, error) {
	if len(mem) < AtRest || uintptr(unsafe.Pointer(&mem[0]))%8 != 0 {
		return nil, fmt.Errorf("dynamic set: %d bytes of memory: %w", len(mem), ErrLayout)
	}
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(mem[off:]) }
	if word(AtMagic) != k.Magic || word(AtVersion) != k.Version {
		return nil, fmt.Errorf("dynamic set: magic %#x, version %d: %w", word(AtMagic),
			word(AtVersion), ErrLayout)
	}
	max, room := word(AtMax), word(k.AtRoom)
	if room == 0 { // made before sets had it
		room = max
	}
	if max < 1 || max > room || room > uint64(k.MaxEntries) {
		return nil, fmt.Errorf("dynamic set: max %d, room for %d: %w", max, room, ErrLayout)
	}
	layouts, size := k.Layout(int(room))
	if size != len(mem) || word(AtSize) != uint64(size) {
		return nil, fmt.Errorf("dynamic set: room for %d in %d bytes: %w", room, len(mem),
			ErrLayout)
	}
	for i, length := range k.Lengths {
		if hi, lo := mask(length); word(AtMasks+16*(i+1)) != hi || word(AtMasks+16*(i+1)+8) != lo {
			return nil, fmt.Errorf("dynamic set: mask of code %d: %w", i+1, ErrLayout)
		}
	}
	s := &Set{mem: mem, max: int(max), room: int(room), now: now,
		Tables: make([]Table, len(layouts))}
	for i, l := range layouts {
		s.Tables[i] = Table{l, s}
	}
	s.index = index(s)
	s.Mend()
	return s, nil
}
