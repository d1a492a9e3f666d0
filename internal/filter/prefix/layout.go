package prefix

import (
	"math"

	"github.com/cilium/ebpf"

	"levee/internal/filter/hashtable"
)

// The value of a dynamic set's map, besides what package hashtable keeps there:
//
//	104    entries removed since the filters were built
//	128    lengths in use of each family, and how many entries have each
//	512    the number of the lowest bit of a word, by the word's hash (see lowestHash)
//	4096   the mask of each IPv6 length
//	3072   what is known of the bulk of each family; see bulk.go
//	8192   filters of both families, marks of both, the bulk, then IPv4 buckets of 64 bytes, then
//	       IPv6 buckets of 128 bytes
//
// A filter says which prefix lengths a look-up has to try for an address; see filter.go.
//
// An IPv4 bucket is one cache line: u32 spilled, 5 x u32 address, 5 x u64 meta. An IPv6 bucket is
// two: u32 spilled, u32 unused, 5 x u64 meta, 5 x 16-byte address. The code of a length is length +
// 1; the address of an IPv4 key is right-aligned.
const (
	offRemoved = hashtable.AtOwn // u64
	offRoom    = 112             // u64
	// u64 number of IPv4 lengths in use, u64 x 2 the set of them, u64 x 2 those of short prefixes
	offLengths4 = 128
	offLengths6 = 192  // likewise
	offLowest   = 512  // 64 bytes
	offCounts4  = 1024 // u32 each, by length
	offCounts6  = 2048 // likewise
	offBulk4    = 3072 // 256 bytes
	offBulk6    = 3328 // likewise
	slots       = 5    // of a bucket
)

// MaxEntries is the largest max of a dynamic set, that of the language.
const MaxEntries = 1 << 24

// Errors that a caller may match.
var (
	ErrFull   = hashtable.ErrFull
	ErrLayout = hashtable.ErrLayout
)

// Sets with a bulk have a version of their own. A levee that knew of none made large sets without,
// and the program that it loaded goes on reading them.
var (
	kind  = kindOf(2, plainGeometry)
	bulky = kindOf(3, geometryOf)
)

func kindOf(version uint64, geometry func(room int) geometry) *hashtable.Kind {
	return &hashtable.Kind{
		Magic:      0x74657365766c0a1a,
		Version:    version,
		MaxEntries: MaxEntries,
		AtRoom:     offRoom,
		Lengths:    lengths(),
		Layout: func(room int) ([]hashtable.Layout, int) {
			g := geometry(room)
			return []hashtable.Layout{g.v4.Layout, g.v6.Layout}, g.size
		},
	}
}

// formatOf returns the kind of a set with that room in so many bytes: with a bulk, unless its
// memory was made by a levee that knew of none.
func formatOf(room, size int) (*hashtable.Kind, func(room int) geometry) {
	if HasBulk(room) && size != plainGeometry(room).size {
		return bulky, geometryOf
	}
	return kind, plainGeometry
}

// lengths returns the meaning of the codes from 1 on.
func lengths() (out []int) {
	for n := range 129 {
		out = append(out, n)
	}
	return out
}

// family is the table of one family.
type family struct {
	hashtable.Layout
	table   *hashtable.Table // of an open set
	width   int              // 32 or 128
	lengths int              // what is known of the lengths in use: offset in the map
	counts  int
	filter  int
	bits    int // log2 of the slots of the filter
	words   int // of 64 bits, that have a bit for each length
	bulk    bulk
}

// geometry gives the places of all parts of a set. It depends on its room alone, so a program can
// be compiled before the map exists.
type geometry struct {
	v4, v6 family
	arena  int // where the tables of both bulks lie
	bytes  int // of it; 0: the set has none
	size   int // of the map value: a multiple of 4096
}

// geometryOf sizes each family's table for max entries, the room of the set, since all may be of
// one. Tables are filled to 5.5 of 10 slots: at 7, one of some million changes found no room near
// its place before max. Larger ones are filled to 8.5, which keeps the largest within what a
// program can address.
func geometryOf(max int) geometry { return layOut(max, HasBulk(max)) }

// plainGeometry returns that of a set without a bulk.
func plainGeometry(max int) geometry { return layOut(max, false) }

func layOut(max int, bulk bool) geometry {
	fill := 0.55
	if max > 4<<20 {
		fill = 0.85
	}
	n := int(math.Ceil(float64(max)/(slots*fill))) + 8
	bits := filterBits(max)
	g := geometry{
		v4: family{width: 32, lengths: offLengths4, counts: offCounts4, words: 1, bulk: bulk4,
			Layout: hashtable.Layout{Narrow: true, Codes: 33, Bytes: 64, Keys: 4, Metas: 24}},
		v6: family{width: 128, lengths: offLengths6, counts: offCounts6, words: 2, bulk: bulk6,
			Layout: hashtable.Layout{Codes: 129, Bytes: 128, Metas: 8, Keys: 48}},
	}
	at := hashtable.AtRest
	for _, f := range []*family{&g.v4, &g.v6} {
		f.Buckets, f.Slots, f.bits, f.filter = n, slots, bits, at
		at += f.words * 8 << bits
	}
	if bulk {
		at = g.placeBulk(at, max)
	}
	for _, f := range []*family{&g.v4, &g.v6} {
		f.At = at
		at += n * f.Bytes
	}
	g.size = (at + 4095) &^ 4095
	return g
}

// DynamicSpec describes the map of a dynamic set for max entries over both families; see
// hashtable.Kind.Spec. The error is for a max outside 1 to MaxEntries.
func DynamicSpec(name string, max int) (*ebpf.MapSpec, error) {
	if HasBulk(max) {
		return bulky.Spec(name, max)
	}
	return kind.Spec(name, max)
}
