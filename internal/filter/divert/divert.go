// Package divert has connections reach a trap in place of who listens at their port: functions for
// programs at ingress, which note the packets that rules divert, a program that the kernel asks for
// the socket of a new connection, and the layout of the memory between them. clang makes both of
// bpf/divert.bpf.c.
//
// The memory is a head with the secret key, and lines of eight places. A hash of addresses and
// ports names a line; a place is a tag of the hash and the time at which the note ends, in one
// word. No note loses its place to another: where there is none the packet is dropped.
//
// The package opens, pins and loads nothing.
package divert

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"levee/internal/filter/assembler"
)

//go:generate ../../../bpf/compile -type divert_head -type divert_memory -type divert_result -type divert_socket socket ../../../bpf/divert.bpf.c

// Names of the maps and the program, in the specs of programs.
const (
	Map     = "diverted"
	TrapMap = "trap"
	Program = "lookup"
)

// What the functions return.
const (
	Full  = int32(socketDivertResultDIVERT_FULL)
	Noted = int32(socketDivertResultDIVERT_NOTED)
)

// Where the sockets of a trap are in its map.
const (
	IPv4    = uint32(socketDivertSocketDIVERT_IPV4)
	IPv6    = uint32(socketDivertSocketDIVERT_IPV6)
	Sockets = uint32(socketDivertSocketDIVERT_SOCKETS)
)

// Functions that note a packet. They are given the source, the destination, and the source port
// above the destination port; addresses of IPv6 by halves, the upper one first.
const (
	NoteIPv4 = "divert_note_ipv4"
	NoteIPv6 = "divert_note_ipv6"
)

// MaxInstructions limits the instructions of the functions.
const MaxInstructions = 1_500

// Lease is the time that a packet is noted. It is in the queues of the kernel for milliseconds;
// where the trap has many half-open connections, the client's answer is asked for again.
const Lease = 10 * time.Second

// Layout of bpf/divert.bpf.c.
const (
	Size      = int(unsafe.Sizeof(socketDivertMemory{}))
	HeadBytes = int(unsafe.Sizeof(socketDivertHead{}))

	atClock  = int(unsafe.Offsetof(socketDivertHead{}.Clock))
	atSecond = int(unsafe.Offsetof(socketDivertHead{}.Second))
	atLease  = int(unsafe.Offsetof(socketDivertHead{}.Lease))
	atFull   = int(unsafe.Offsetof(socketDivertHead{}.Full))
	atGiven  = int(unsafe.Offsetof(socketDivertHead{}.Given))
	atAlone  = int(unsafe.Offsetof(socketDivertHead{}.Alone))

	placeBytes = 8
)

// Places is the number of notes for which a memory has room.
const Places = (Size - HeadBytes) / placeBytes

var load = sync.OnceValues(loadSocket)

// Emit emits the functions that are called.
func Emit(b *assembler.Builder) error {
	number := assembler.Number
	return b.Functions(load, "divert",
		assembler.Function{Label: NoteIPv4, Name: "divert_ipv4", Entry: socketProgEntry,
			Params: []assembler.Param{number("src"), number("dst"), number("ports")}},
		assembler.Function{Label: NoteIPv6, Name: "divert_ipv6", Entry: socketProgEntry,
			Params: []assembler.Param{number("src_hi"), number("src_lo"), number("dst_hi"),
				number("dst_lo"), number("ports")}})
}

// Spec returns the program that the kernel asks for sockets.
func Spec() (*ebpf.ProgramSpec, error) {
	return assembler.Program(load, "diverts", socketProgLookup, Program, ebpf.AttachSkLookup)
}

// SocketBytes is the length of the cookie of a socket.
const SocketBytes = 8

// TrapSpec returns the map of a trap's sockets.
func TrapSpec() *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: TrapMap, Type: ebpf.SockMap, KeySize: 4, ValueSize: SocketBytes,
		MaxEntries: Sockets}
}

// Seed draws the key of a memory and writes its times. The memory is all zero else.
func Seed(memory []byte, hz uint64) {
	binary.NativeEndian.PutUint64(memory, rand.Uint64())
	binary.NativeEndian.PutUint64(memory[8:], rand.Uint64())
	binary.NativeEndian.PutUint32(memory[atSecond:], uint32(hz))
	binary.NativeEndian.PutUint32(memory[atLease:], uint32(uint64(Lease/time.Second+1)*hz))
}

// SetClock sets the time, in jiffies, that programs use; 0 is for that of the kernel. It is for
// tests.
func SetClock(memory []byte, jiffies uint64) {
	binary.NativeEndian.PutUint64(memory[atClock:], jiffies)
}

// Stats counts the diversions of a memory.
type Stats struct {
	Noted  int `json:"noted"` // that are taken
	Places int `json:"room"`  // in all
	// Given are segments that the trap got: two or more of a connection now and then.
	Given uint64 `json:"given"`
	Alone uint64 `json:"refused"` // segments that were refused, as there was no trap
	Full  uint64 `json:"dropped"` // packets that found no place
}

// Read counts what is in a memory at a time in jiffies.
func Read(memory []byte, jiffies uint64) Stats {
	word := func(at int) uint64 { return binary.NativeEndian.Uint64(memory[at:]) }
	s := Stats{Places: Places, Full: word(atFull), Given: word(atGiven), Alone: word(atAlone)}
	lease := binary.NativeEndian.Uint32(memory[atLease:])
	for at := HeadBytes; at < len(memory); at += placeBytes {
		place := word(at)
		if place != 0 && uint32(place)-uint32(jiffies)-1 < lease {
			s.Noted++
		}
	}
	return s
}
