// Package stream knows how far searches of streams of TCP have come. In go the ports of services;
// out come functions for programs at ingress, a program at egress that notes where streams begin,
// and the layout of the memory between them, which clang makes of bpf/stream.bpf.c.
//
// The memory is a head with the secret key of hashes, and lines of eight places. A place is the
// beginning of a stream, or how far one search of it has come: no byte of a stream is kept. Who has
// not shaken hands never takes the place of who has and sends.
//
// The package opens, pins and loads nothing.
package stream

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"levee/internal/filter/assembler"
	"levee/internal/packet"
)

//go:generate ../../../bpf/compile -type stream_head -type stream_memory -type stream_place -type stream_ports -type stream_answer begin ../../../bpf/stream.bpf.c

// Names of the maps and the program, in the specs of programs.
const (
	Map      = "streams"
	PortsMap = "searched"
	Program  = "begin"
)

// Labels of the functions. Meet is given the context, the hash of a flow, and where the TCP header
// begins with the bytes from there on above it; it returns an answer, or a segment that can be
// searched, which is more. Seek is given the hash, the segment, where the header begins, and the
// number of a search with how many bytes of a stream it looks at above it; it returns an answer, or
// which bytes are the next. Enter is given the hash, the number, and the state before the first
// byte of a search that is Absent, and returns Unknown where that has no place now. Note is given
// the hash, the number, what Seek returned, and the state behind these bytes; it returns an answer.
const (
	Meet  = "stream_meet"
	Seek  = "stream_seek"
	Enter = "stream_enter"
	Note  = "stream_note"

	take = "stream_take"
)

// Answers. Meet returns one, or more than the last. What Seek returns is one if its bits from
// StateShift on are 0; else these are the state by four, those from BytesShift on how many bytes
// follow, less one, and the lowest 16 where they lie in the frame.
const (
	No      = uint32(beginStreamAnswerSTREAM_NO)
	Yes     = uint32(beginStreamAnswerSTREAM_YES)
	Unknown = uint32(beginStreamAnswerSTREAM_UNKNOWN)
	None    = uint32(beginStreamAnswerSTREAM_NONE)   // a segment without data
	Absent  = uint32(beginStreamAnswerSTREAM_ABSENT) // a search that has to be entered

	StateShift = 44
	BytesShift = 16
	BytesMask  = Most - 1
)

// Most limits the bytes of a stream that are searched.
const Most = 16 << 10

// MaxInstructions limits the instructions of the functions.
const MaxInstructions = 1_200

// Who is idle for Idle may lose his place to another. A client may take Shakes to acknowledge.
const (
	Idle   = 2 * time.Minute
	Shakes = 30 * time.Second
)

// Layout of bpf/stream.bpf.c.
const (
	Size      = int(unsafe.Sizeof(beginStreamMemory{}))
	HeadBytes = int(unsafe.Sizeof(beginStreamHead{}))
	PortBytes = int(unsafe.Sizeof(beginStreamPorts{}))

	AtStart   = int16(unsafe.Offsetof(beginStreamHead{}.Start))
	atClock   = int(unsafe.Offsetof(beginStreamHead{}.Clock))
	atSecond  = int(unsafe.Offsetof(beginStreamHead{}.Second))
	atIdle    = int(unsafe.Offsetof(beginStreamHead{}.Idle))
	atShakes  = int(unsafe.Offsetof(beginStreamHead{}.Shakes))
	atBegun   = int(unsafe.Offsetof(beginStreamHead{}.Begun))
	atGaps    = int(unsafe.Offsetof(beginStreamHead{}.Gaps))
	atRefused = int(unsafe.Offsetof(beginStreamHead{}.Refused))
	atTaken   = int(unsafe.Offsetof(beginStreamHead{}.Taken))

	atPlaces = int(unsafe.Offsetof(beginStreamMemory{}.Places))
	place    = int(unsafe.Sizeof(beginStreamPlace{}))
	ofTag    = int(unsafe.Offsetof(beginStreamPlace{}.Tag))
	ofID     = int(unsafe.Offsetof(beginStreamPlace{}.Id))
	ofIs     = int(unsafe.Offsetof(beginStreamPlace{}.Is))

	shakes = 1 // of a beginning whose client has not acknowledged
)

// Places is the number of beginnings and searches of streams for which a memory has room.
const Places = (Size - atPlaces) / place

// Ports are a range of ports.
type Ports struct{ Lo, Hi uint16 }

var load = sync.OnceValues(loadBegin)

// PortsSpec returns the map of the ports whose streams are noted.
func PortsSpec(ports []Ports) (*ebpf.MapSpec, error) {
	var all beginStreamPorts
	for _, r := range ports {
		for p := int(r.Lo); p <= int(r.Hi); p++ {
			all.Bits[p/64] |= 1 << (p % 64)
		}
	}
	raw := make([]byte, PortBytes)
	if _, err := binary.Encode(raw, binary.NativeEndian, &all); err != nil {
		return nil, err
	}
	return &ebpf.MapSpec{Name: PortsMap, Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32(PortBytes), MaxEntries: 1,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: raw}}}, nil
}

// Emit emits the functions.
func Emit(b *assembler.Builder, context assembler.Param, tcx bool) error {
	meet, entry := "stream_meet_xdp", beginProgEntryXdp
	if tcx {
		meet, entry = "stream_meet_tcx", beginProgEntryTcx
	}
	number := assembler.Number
	hash, id := number("hash"), number("id")
	for _, f := range []assembler.Function{
		{Label: Meet, Name: meet, Params: []assembler.Param{context, hash, number("place")}},
		{Label: Seek, Params: []assembler.Param{hash, number("segment"), number("off"), id}},
		{Label: Enter, Params: []assembler.Param{hash, id, number("start")}},
		{Label: Note, Params: []assembler.Param{hash, id, number("sought"), number("state")}},
		{Label: take, Params: []assembler.Param{hash}}, // called by its name in C
	} {
		f.Entry = entry
		if err := b.Function(load, "know streams", f); err != nil {
			return err
		}
	}
	return nil
}

// Spec returns the program at egress, for packets that begin with a link layer's header.
func Spec(link packet.Link) (*ebpf.ProgramSpec, error) {
	name := beginProgBeginEthernet
	if link == packet.L3 {
		name = beginProgBeginIp
	}
	return assembler.Program(load, "notes streams", name, Program, ebpf.AttachTCXEgress)
}

// Seed draws the key of a memory and writes its times. The memory is all zero else.
func Seed(memory []byte, hz uint64) {
	for at := 0; at < atClock; at += 8 {
		n := rand.Uint64()
		if at == int(AtStart)+8 { // what the sum is multiplied by last
			n |= 1
		}
		binary.NativeEndian.PutUint64(memory[at:], n)
	}
	put := func(at int, n uint64) { binary.NativeEndian.PutUint32(memory[at:], uint32(n)) }
	put(atSecond, hz)
	put(atIdle, uint64(Idle/time.Second)*hz)
	put(atShakes, uint64(Shakes/time.Second)*hz)
}

// SetClock sets the time, in jiffies, that programs use; 0 is for that of the kernel. It is for
// tests.
func SetClock(memory []byte, jiffies uint64) {
	binary.NativeEndian.PutUint64(memory[atClock:], jiffies)
}

// Stats counts the streams of a memory.
type Stats struct {
	Flows    int    `json:"streams"`  // whose handshake was seen
	Searches int    `json:"searches"` // of them that have begun
	Places   int    `json:"room"`     // in all, for both
	Begun    uint64 `json:"begun"`    // streams whose client has acknowledged
	Gaps     uint64 `json:"gaps"`     // segments that were not the next of their stream
	Refused  uint64 `json:"refused"`  // streams that found no place
	Taken    uint64 `json:"evicted"`  // streams that lost their place to another
}

// Read counts what is in a memory.
func Read(memory []byte) Stats {
	at64 := func(at int) uint64 { return binary.NativeEndian.Uint64(memory[at:]) }
	s := Stats{Places: Places, Begun: at64(atBegun), Gaps: at64(atGaps), Refused: at64(atRefused),
		Taken: at64(atTaken)}
	for at := atPlaces; at+place <= len(memory); at += place {
		word := func(n int) uint32 { return binary.NativeEndian.Uint32(memory[at+n:]) }
		switch {
		case word(ofTag) == 0:
		case word(ofID) != 0:
			s.Searches++
		case at64(at+ofIs)&shakes == 0:
			s.Flows++
		}
	}
	return s
}
