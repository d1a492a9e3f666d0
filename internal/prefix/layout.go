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
//	4096   the mask of each IPv6 length
//	8192   IPv4 buckets of 64 bytes, then IPv6 buckets of 128 bytes
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
	version      = 1
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
	offLengths   = 128  // u32 number of IPv4 lengths, u32 of IPv6
	offList4     = 136  // u32 each: length + 1
	offList6     = 272  // likewise
	offCounts4   = 1024 // u32 each, by length
	offCounts6   = 2048 // likewise
	offMasks     = 4096 // 16 bytes each, by length + 1; 256 of them, so that any byte is an index
	offBuckets   = 8192
	slots        = 5 // of a bucket
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
	number  int // of the length count: offset in the map
	list    int
	counts  int
}

// geometry is where everything of a set with this max lies. It depends on max alone, so a program can be
// compiled before the map exists.
type geometry struct {
	max    int
	v4, v6 family
	size   int // of the map value: a multiple of 4096
}

// geometryOf sizes each family's table for max entries, since all may be of one. Tables are filled
// to 5.5 of 10 slots: at 7, one of some million changes found no room near its place before max. Larger ones
// are filled to 8.5, which keeps the largest within what a program can address.
func geometryOf(max int) geometry {
	fill := 0.55
	if max > 4<<20 {
		fill = 0.85
	}
	n := int(math.Ceil(float64(max)/(slots*fill))) + 8
	g := geometry{max: max}
	g.v4 = family{width: 32, off: offBuckets, buckets: n, size: 64, meta: 24, number: offLengths, list: offList4, counts: offCounts4}
	g.v6 = family{width: 128, off: offBuckets + n*64, buckets: n, size: 128, meta: 8, number: offLengths + 4, list: offList6, counts: offCounts6}
	g.size = (g.v6.off + n*128 + 4095) &^ 4095
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
