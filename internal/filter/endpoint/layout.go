package endpoint

import (
	"errors"
	"math"

	"github.com/cilium/ebpf"

	"levee/internal/filter/hashtable"
)

// The value of the map, besides what package hashtable keeps there:
//
//	128    number of shapes in use of each family, then the shapes
//	4096   the mask of each length, by its code
//	8192   how many entries have each shape
//	20480  buckets of 128 bytes: 4 x u64 meta, 4 x 16-byte address, 4 x u32 service, u32 spilled
//
// The code of a length is length + 1 for IPv4 and length + 34 for IPv6. Addresses are left-aligned
// in 128 bits. A service is protocol<<24 | bits<<16 | port, where bits is how many of the port's
// first bits count. A shape is bits<<8 | code.
const (
	offRoom    = hashtable.AtOwn  // u64
	offNumber4 = 128              // u32
	offNumber6 = 132              // u32
	offShapes4 = 512              // u32 each
	offShapes6 = 1024             // u32 each
	offCounts  = hashtable.AtRest // u32 each, by shapeIndex
	offBuckets = 20480
	slots      = 4 // of a bucket

	codes4    = 1  // code of IPv4's length 0
	codes6    = 34 // of IPv6's
	lastCode  = codes6 + 128
	portSizes = 17 // of a block: 0 to 16 bits
)

// MaxEntries is the largest max of a set: what a program can address.
const MaxEntries = 1 << 23

// MaxShapes limits the shapes of one family that are in use at the same time.
const MaxShapes = 128

// Errors that a caller may match.
var (
	ErrFull   = hashtable.ErrFull
	ErrShapes = errors.New("too many different sizes of prefixes and port ranges")
	ErrLayout = hashtable.ErrLayout
)

var kind = &hashtable.Kind{
	Of:         "of a set of endpoints or services",
	Magic:      0x65656c76656c0a1b,
	Version:    1,
	MaxEntries: MaxEntries,
	AtRoom:     offRoom,
	Lengths:    codeLengths(),
	Layout: func(room int) ([]hashtable.Layout, int) {
		return []hashtable.Layout{layoutOf(room)}, sizeFor(room)
	},
}

// layoutOf sizes the table: at most half of the slots are used, and programs reach all of it.
func layoutOf(room int) hashtable.Layout {
	const size = 128
	buckets := min(int(math.Ceil(float64(room)/(slots/2)))+8, hashtable.Reach/size)
	return hashtable.Layout{
		At: offBuckets, Buckets: buckets, Bytes: size, Slots: slots,
		Metas: 0, Keys: 32, Services: 96, Spilled: 112, Codes: lastCode,
	}
}

func sizeFor(room int) int {
	l := layoutOf(room)
	return (l.At + l.Buckets*l.Bytes + 4095) &^ 4095
}

// Spec describes the map of a set for max entries; see hashtable.Kind.Spec. The error is for a max
// outside 1 to MaxEntries.
func Spec(name string, max int) (*ebpf.MapSpec, error) { return kind.Spec(name, max) }

// shapeIndex returns where the count of a shape stands.
func shapeIndex(code, bits int) int { return (code-1)*portSizes + bits }

// lengthOf returns the length that a code stands for.
func lengthOf(code int) (length int, ip4 bool) {
	if code < codes6 {
		return code - codes4, true
	}
	return code - codes6, false
}

func codeLengths() (lengths []int) {
	for code := codes4; code <= lastCode; code++ {
		length, _ := lengthOf(code)
		lengths = append(lengths, length)
	}
	return lengths
}
