package endpoint

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The value of the map, little-endian as the compiled programs are:
//
//	0      identity: magic, version, max, size
//	64     seeds of the hash, random for each set
//	128    number of shapes in use of each family, then the shapes
//	4096   the mask of each length, by its code
//	8192   how many entries have each shape
//	20480  buckets of 128 bytes
//
// A bucket is 4 x u64 meta, 4 x 16-byte address, 4 x u32 service, u32 spilled. "Spilled" counts the entries that lie in
// their second bucket instead of this one, so that a look-up reads that only if there are any.
//
// meta: bits 0-7 the code of the length (0: the slot is free), 8-15 a piece of the hash, 16-23 a number that grows
// whenever the slot is given to another entry, 24-63 jiffies when the lease ends, 0 for never.
//
// The code of a length is length + 1 for IPv4 and length + 34 for IPv6. A service is protocol<<24 | bits<<16 | port, where
// bits is how many of the port's first bits count. A shape is bits<<8 | code.
const (
	magic        = 0x65656c76656c0a1b
	version      = 1
	offMagic     = 0
	offVersion   = 8
	offMax       = 16
	offSize      = 24
	offDirty     = 32 // u32: a writer is, or was killed, in the middle of a change
	offTotal     = 36 // u32: entries, expired ones too
	offEarliest  = 40 // u64: no entry's lease ends before these jiffies
	offScanned   = 48 // u64: when the set was last searched for ended leases to make room
	offRefused   = 56 // u64: entries that found the set full
	offSeeds     = 64
	offSweep     = 96   // u64: the bucket where the next writer looks for ended leases
	offRoom      = 104  // u64: for how many entries the table is laid out; 0 is max
	offNumber4   = 128  // u32
	offNumber6   = 132  // u32
	offShapes4   = 512  // u32 each
	offShapes6   = 1024 // u32 each
	offMasks     = 4096 // 16 bytes each; 256 of them, so that any byte is an index
	offCounts    = 8192 // u32 each, by shapeIndex
	offBuckets   = 20480
	slots        = 4 // of a bucket
	bucketBytes  = 128
	keyAt        = 32
	serviceAt    = 96
	spilledAt    = 112
	metaCode     = 0xff
	metaTag      = 0xffff
	metaIdentity = 0xffffff
	metaExpires  = 24

	codes4    = 1  // code of IPv4's length 0
	codes6    = 34 // of IPv6's
	lastCode  = codes6 + 128
	portSizes = 17 // of a block: 0 to 16 bits
)

// MaxEntries is the largest max of a set: what a program can address.
const MaxEntries = 1 << 23

// MaxShapes is how many shapes of one family may be in use at the same time.
const MaxShapes = 128

// latest is the latest end of a lease that can be stored, about 34 years at 1000 Hz.
const latest = 1<<40 - 1

// Errors that a caller may match.
var (
	ErrFull   = errors.New("set is full")
	ErrShapes = errors.New("too many different sizes of prefixes and port ranges")
	ErrLayout = errors.New("not the map of a dynamic set of endpoints of this version")
)

// bucketsFor sizes the table: at most half of the slots are used.
func bucketsFor(max int) int { return int(math.Ceil(float64(max)/(slots/2))) + 8 }

func sizeFor(max int) int { return (offBuckets + bucketsFor(max)*bucketBytes + 4095) &^ 4095 }

// Spec describes the map of a set for max entries, as prefix.DynamicSpec does. The error is for a max outside 1 to
// MaxEntries.
func Spec(name string, max int) (*ebpf.MapSpec, error) {
	if max < 1 || max > MaxEntries {
		return nil, fmt.Errorf("dynamic set %q: max of a set of endpoints or services is 1 to %d entries, not %d", name, MaxEntries, max)
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
			ValueSize:  uint32(sizeFor(max)),
			MaxEntries: 1,
			Flags:      unix.BPF_F_MMAPABLE,
		},
	}, nil
}

// shapeIndex is where the count of a shape stands.
func shapeIndex(code, bits int) int { return (code-1)*portSizes + bits }

// mask keeps the first n bits of an address.
func mask(n int) (hi, lo uint64) {
	const ones = ^uint64(0)
	if n <= 64 {
		return ones &^ (ones >> n), 0
	}
	return ones, ones &^ (ones >> (n - 64))
}

// lengthOf is the length that a code stands for.
func lengthOf(code int) (length int, ip4 bool) {
	if code < codes6 {
		return code - codes4, true
	}
	return code - codes6, false
}
