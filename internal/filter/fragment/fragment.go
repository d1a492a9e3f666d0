// Package fragment remembers datagrams that come in fragments, so that those behind the first share
// its fate: functions for programs at ingress, which clang makes of bpf/fragment.bpf.c, and the
// layout of their memory.
//
// The memory is a head with the secret key and the budget, and buckets of eight datagrams. A
// datagram's hash names its bucket; a place is a tag of the hash, the state, the time at which its
// lease ends, and the parts that have passed. A place whose time has passed is as good as empty. In
// a full bucket datagrams give way in this order: those with a dropped first fragment, those with
// overlapping parts, those without a first fragment yet. A datagram whose first fragment has passed
// gives way to another such one only.
//
// The package opens, pins and loads nothing.
package fragment

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"
	"unsafe"

	"levee/internal/filter/assembler"
)

//go:generate ../../../bpf/compile -type fragment_head -type fragment_datagram -type fragment_memory -type fragment_result -type fragment_state -type frag judge ../../../bpf/fragment.bpf.c

// Map is the memory, in the specs of programs.
const Map = "fragments"

// What becomes of a fragment: Later returns any of these, End Pass or Overlaps. All but Pass are
// reasons to drop it as malformed.
const (
	Orphan   = int32(judgeFragmentResultFRAGMENT_ORPHAN)
	Pass     = int32(judgeFragmentResultFRAGMENT_PASS)
	Overlaps = int32(judgeFragmentResultFRAGMENT_OVERLAPS)
	Tiny     = int32(judgeFragmentResultFRAGMENT_TINY)
)

// Functions, which are given struct key: Later says what becomes of a fragment with an offset, and
// End is given whether a first fragment passes.
const (
	Later = "fragment_judge"
	End   = "fragment_note"
)

// FirstBit is set in the member frag of struct key, of first fragments only.
const FirstBit = int32(judgeFragFIRST)

// MaxInstructions limits the instructions of the functions.
const MaxInstructions = 3_000

// Lease limits the time of fragments behind the first, to that for which Linux keeps IPv4's that
// wait for others (net.ipv4.ipfrag_time).
const Lease = 30 * time.Second

// Of fragments that come before the first of their datagram, Burst pass, and PerSecond more each
// second, but for those whose first came: at most about 1,500 at a time that wait in vain, of
// 2 KiB, and of the 4 MiB that Linux has for all (net.ipv4.ipfrag_high_thresh).
const (
	Burst     = 512
	PerSecond = 32
)

// Layout of bpf/fragment.bpf.c.
const (
	Size      = int(unsafe.Sizeof(judgeFragmentMemory{}))
	HeadBytes = int(unsafe.Sizeof(judgeFragmentHead{}))

	atClock   = int(unsafe.Offsetof(judgeFragmentHead{}.Clock))
	atLease   = int(unsafe.Offsetof(judgeFragmentHead{}.Lease))
	atCost    = int(unsafe.Offsetof(judgeFragmentHead{}.Cost))
	atAhead   = int(unsafe.Offsetof(judgeFragmentHead{}.Ahead))
	atRefused = int(unsafe.Offsetof(judgeFragmentHead{}.Refused))
	atEvicted = int(unsafe.Offsetof(judgeFragmentHead{}.Evicted))

	atBuckets   = int(unsafe.Offsetof(judgeFragmentMemory{}.Buckets))
	buckets     = len(judgeFragmentMemory{}.Buckets)
	bucketBytes = int(unsafe.Sizeof(judgeFragmentMemory{}.Buckets[0]))
	atPlaces    = int(unsafe.Offsetof(judgeFragmentMemory{}.Buckets[0].Datagrams))
	places      = len(judgeFragmentMemory{}.Buckets[0].Datagrams)
	placeBytes  = int(unsafe.Sizeof(judgeFragmentDatagram{}))
	ofExpires   = int(unsafe.Offsetof(judgeFragmentDatagram{}.Expires))
	ofState     = int(unsafe.Offsetof(judgeFragmentDatagram{}.State))
)

// Places is the number of datagrams for which a memory has room.
const Places = buckets * places

var load = sync.OnceValues(loadJudge)

// Emit emits the functions that are called. key is struct key as an argument of a global function.
func Emit(b *assembler.Builder, key assembler.Param) error {
	return b.Functions(load, "follow fragments",
		assembler.Function{Label: Later, Name: "fragment_later", Entry: judgeProgEntry,
			Params: []assembler.Param{key}},
		assembler.Function{Label: End, Name: "fragment_end", Entry: judgeProgEntry,
			Params: []assembler.Param{key, assembler.Number("passes")}})
}

// Seed draws the key of a memory and writes its times. The memory is all zero else.
func Seed(memory []byte, hz uint64) {
	binary.NativeEndian.PutUint64(memory, rand.Uint64())
	binary.NativeEndian.PutUint64(memory[8:], rand.Uint64())
	binary.NativeEndian.PutUint32(memory[atLease:], uint32(uint64(Lease/time.Second+1)*hz))
	binary.NativeEndian.PutUint32(memory[atLease+4:], uint32(hz))
	binary.NativeEndian.PutUint64(memory[atCost:], hz<<16/PerSecond)
}

// SetClock sets the time, in jiffies, that programs use; 0 is for that of the kernel. It is for
// tests.
func SetClock(memory []byte, jiffies uint64) {
	binary.NativeEndian.PutUint64(memory[atClock:], jiffies)
}

// Stats counts the datagrams of a memory.
type Stats struct {
	Datagrams int    `json:"datagrams"` // of which fragments may follow
	Places    int    `json:"room"`      // in all
	Ahead     uint64 `json:"ahead"`     // fragments that passed before the first of their datagram
	Refused   uint64 `json:"refused"`   // that would have, beyond the budget or of too many parts
	Evicted   uint64 `json:"evicted"`   // datagrams that lost their place before their time
}

// Read counts what is in a memory at a time in jiffies.
func Read(memory []byte, jiffies uint64) Stats {
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(memory[at:]) }
	s := Stats{Places: Places, Ahead: word(atAhead), Refused: word(atRefused),
		Evicted: word(atEvicted)}
	lease := binary.NativeEndian.Uint32(memory[atLease:])
	for i := range Places {
		at := atBuckets + i/places*bucketBytes + atPlaces + i%places*placeBytes
		expires := binary.NativeEndian.Uint32(memory[at+ofExpires:])
		state := judgeFragmentState(binary.NativeEndian.Uint16(memory[at+ofState:]))
		if state >= judgeFragmentStateFRAGMENT_AHEAD && expires-uint32(jiffies)-1 < lease {
			s.Datagrams++
		}
	}
	return s
}
