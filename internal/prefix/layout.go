package prefix

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The value of a dynamic set's map, little-endian as the compiled programs are:
//
//	0      identity: magic, version, size, max
//	64     seeds of the hash, random for each set since attackers choose the addresses
//	128    lengths in use of each family, and how many entries have each
//	512    the number of the lowest bit of a word, by the word's hash (see lowest)
//	4096   the mask of each IPv6 length
//	8192   filters of both families, then IPv4 buckets of 64 bytes, then IPv6 buckets of 128 bytes
//
// A filter says which prefix lengths a look-up has to try for an address; see filter.go.
//
// An IPv4 bucket is one cache line: u32 spilled, 5 x u32 address, 5 x u64 meta. An IPv6 bucket
// is two: u32 spilled, u32 unused, 5 x u64 meta, 5 x 16-byte address. An entry lies in one of two
// buckets that its hash names; "spilled" counts the entries of a bucket that lie in their second
// one, so that a look-up reads the second only if there are any.
//
// meta: bits 0-7 length + 1 (0: the slot is free), 8-15 a piece of the hash (IPv6), 16-23 a number
// that grows whenever the slot is given to another entry (IPv6), 24-63 jiffies when the lease ends,
// 0 for never.
const (
	magic        = 0x74657365766c0a1a // not text, and not any other map's first word
	version      = 2
	offMagic     = 0
	offVersion   = 8
	offMax       = 16
	offSize      = 24
	offDirty     = 32 // u32: a writer is, or was killed, in the middle of a change
	offTotal     = 36 // u32: entries of both families, expired ones too
	offEarliest  = 40 // u64: no entry's lease ends before these jiffies
	offScanned   = 48 // u64: when the set was last searched for ended leases to make room
	offRefused   = 56 // u64: entries that found the set full
	offSeeds     = 64
	offSweep     = 96   // u64: the bucket where the next writer looks for ended leases
	offRemoved   = 104  // u64: entries removed since the filters were built
	offRoom      = 112  // u64: for how many entries the tables are laid out; 0 is max
	offLengths4  = 128  // u64 number of IPv4 lengths in use, u64 x 2 the set of them, u64 x 2 those of short prefixes
	offLengths6  = 192  // likewise
	offLowest    = 512  // 64 bytes
	offCounts4   = 1024 // u32 each, by length
	offCounts6   = 2048 // likewise
	offMasks     = 4096 // 16 bytes each, by length + 1; 256 of them, so that any byte is an index
	offFilters   = 8192
	slots        = 5 // of a bucket
	spilledAt    = 0 // in a bucket
	metaLen      = 0xff
	metaTag      = 0xffff
	metaIdentity = 0xffffff
	metaExpires  = 24
)

// MaxEntries is the largest max of a dynamic set, that of the language.
const MaxEntries = 1 << 24

// latest is the latest end of a lease that can be stored, about 34 years at 1000 Hz.
const latest = 1<<40 - 1

// Errors that a caller may match.
var (
	ErrFull   = errors.New("set is full")
	ErrLayout = errors.New("not the map of a dynamic set of this version")
)

// family is the table of one family.
type family struct {
	width   int // 32 or 128
	off     int
	buckets int
	size    int // bytes of a bucket
	meta    int // offset of the first meta in it
	lengths int // what is known of the lengths in use: offset in the map
	counts  int
	filter  int
	bits    int // log2 of the slots of the filter
	words   int // of 64 bits, that have a bit for each length
}

// geometry is where everything of a set lies. It depends on its room alone, so a program can be
// compiled before the map exists.
type geometry struct {
	max    int
	v4, v6 family
	size   int // of the map value: a multiple of 4096
}

// geometryOf sizes each family's table for max entries, the room of the set, since all may be of one. Tables are filled
// to 5.5 of 10 slots: at 7, one of some million changes found no room near its place before max. Larger ones
// are filled to 8.5, which keeps the largest within what a program can address.
func geometryOf(max int) geometry {
	fill := 0.55
	if max > 4<<20 {
		fill = 0.85
	}
	n := int(math.Ceil(float64(max)/(slots*fill))) + 8
	bits := filterBits(max)
	g := geometry{
		max: max,
		v4:  family{width: 32, size: 64, meta: 24, lengths: offLengths4, counts: offCounts4, words: 1},
		v6:  family{width: 128, size: 128, meta: 8, lengths: offLengths6, counts: offCounts6, words: 2},
	}
	at := offFilters
	for _, f := range []*family{&g.v4, &g.v6} {
		f.buckets, f.bits, f.filter = n, bits, at
		at += f.words * 8 << bits
	}
	for _, f := range []*family{&g.v4, &g.v6} {
		f.off = at
		at += n * f.size
	}
	g.size = (at + 4095) &^ 4095
	return g
}

// DynamicSpec describes the map of a dynamic set for max entries over both families: an array of maps
// with one entry, 0, in which the memory of the set is put: a map of InnerMap, an array with one entry that
// user space maps and formats (Format). Putting another there replaces the whole contents in one step.
// Without one, programs see a set without entries. The error is for a max outside 1 to MaxEntries.
func DynamicSpec(name string, max int) (*ebpf.MapSpec, error) {
	if max < 1 || max > MaxEntries {
		return nil, fmt.Errorf("dynamic set %q: max is 1 to %d entries, not %d", name, MaxEntries, max)
	}
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
			ValueSize:  uint32(geometryOf(max).size),
			MaxEntries: 1,
			Flags:      unix.BPF_F_MMAPABLE,
		},
	}, nil
}
