// Package flow holds the connections of a policy in flat memory: a program at egress notes them by
// what leaves (bpf/track.bpf.c), and what comes in is looked up, by the instructions that this
// package makes. Adopt notes those that are older.
//
// The memory is a head, a byte for each bucket that tells who is not in it, buckets of eight
// places, 128 bytes, and a bit for each that tells whether a connection is opening in it. How many
// buckets there are is known when programs are made: see Room. A
// connection's hash names its bucket; a place is a tag of the hash with the state of the
// connection, when its lease ends, and what the other side has yet to prove. Nothing collects what
// has ended: a place whose lease has is as good as empty. The layout is that of bpf/flow.h.
//
// The package opens, pins and loads nothing.
package flow

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"levee/internal/filter/assembler"
	"levee/internal/packet"
)

//go:generate ../../../bpf/compile -type flow_head -type flow -type flow_state track ../../../bpf/track.bpf.c
//go:generate ../../../bpf/compile quote ../../../bpf/quote.bpf.c
//go:generate ../../../bpf/compile strange ../../../bpf/strange.bpf.c
//go:generate ../../../bpf/compile answers ../../../bpf/answers.bpf.c

// Names of the map and the program at egress, in the specs of programs.
const (
	Map     = "flows"
	Program = "track"
)

// States of a connection.
const (
	opening  = trackFlowStateFLOW_OPENING
	answered = trackFlowStateFLOW_ANSWERED
	open     = trackFlowStateFLOW_OPEN
	closing  = trackFlowStateFLOW_CLOSING
	reset    = trackFlowStateFLOW_RESET
	oneWay   = trackFlowStateFLOW_ONE_WAY
	twoWay   = trackFlowStateFLOW_TWO_WAY
	echo     = trackFlowStateFLOW_ECHO
	older    = trackFlowStateFLOW_OLDER
	stranger = trackFlowStateFLOW_STRANGER
	group    = trackFlowStateFLOW_GROUP
	served   = trackFlowStateFLOW_SERVED
)

// Leases are the least times of each state without a packet that renews it: they are renewed
// once a second at most, and so a second longer. docs/reference/connections.md "Connections" has
// their sources.
var Leases = map[uint32]time.Duration{
	uint32(opening): 4 * time.Minute, uint32(answered): 4 * time.Minute,
	uint32(open): 2*time.Hour + 4*time.Minute, uint32(closing): 4 * time.Minute,
	uint32(reset): 4 * time.Minute, uint32(oneWay): 2 * time.Minute,
	uint32(twoWay): 5 * time.Minute, uint32(echo): time.Minute, uint32(older): 4 * time.Minute,
	uint32(stranger): 2 * time.Minute, uint32(group): 10 * time.Second,
	uint32(served): 2 * time.Minute,
}

// Asks limits the questions a second whether the kernel has a connection that is not known,
// such as one that is older than the policy: of TCP, and of UDP.
const Asks = 10_000

// idle is after which time without a packet an open connection may lose its place.
const idle = 5 * time.Minute

// Layout of bpf/flow.h.
const (
	lowBits = 19 // of a word below the tag
	finIn   = 0x10
	finOut  = 0x20
	resetIn = 0x40
	first   = 0x10
	sentBit = 7
	stateOf = 0xf

	blockBits = 14

	places = 8 // of a bucket

	headBytes  = int(unsafe.Sizeof(trackFlowHead{}))
	placeBytes = int(unsafe.Sizeof(trackFlow{}))

	atStart    = int16(unsafe.Offsetof(trackFlowHead{}.Start))
	atLast     = int16(unsafe.Offsetof(trackFlowHead{}.Last))
	atFactors  = int16(unsafe.Offsetof(trackFlowHead{}.Factors))
	atClock    = int(unsafe.Offsetof(trackFlowHead{}.Clock))
	atSecond   = int16(unsafe.Offsetof(trackFlowHead{}.Second))
	atLease    = int16(unsafe.Offsetof(trackFlowHead{}.Lease))
	atRefused  = int(unsafe.Offsetof(trackFlowHead{}.Refused))
	atAsked    = int16(unsafe.Offsetof(trackFlowHead{}.Asked))
	atAsks     = int16(unsafe.Offsetof(trackFlowHead{}.Asks))
	atAskedUDP = int16(unsafe.Offsetof(trackFlowHead{}.AskedUdp))
	atTaken    = int(unsafe.Offsetof(trackFlowHead{}.Taken))
	atSettled  = int(unsafe.Offsetof(trackFlowHead{}.Settled))
	atGroups   = int16(unsafe.Offsetof(trackFlowHead{}.Groups))
	atCrowded  = int(unsafe.Offsetof(trackFlowHead{}.Crowded))

	ofExpires = int16(unsafe.Offsetof(trackFlow{}.Expires))
	ofProof   = int16(unsafe.Offsetof(trackFlow{}.Proof))
)

// behind is the largest lag of a reader's clock behind that of who wrote a lease: another CPU may
// see the next tick before a packet that has read the time comes to the memory.
const behind = time.Second

// HeadBytes counts the bytes of a memory that Seed and SetClock write.
const HeadBytes = headBytes

// Seed draws what the hash of a memory depends on, and writes the leases. The memory is all zero
// else.
func Seed(memory []byte, hz uint64) {
	for i := range 2 + len(trackFlowHead{}.Factors) {
		n := rand.Uint64()
		if int16(8*i) == atLast {
			n |= 1
		}
		binary.NativeEndian.PutUint64(memory[8*i:], n)
	}
	ticks := func(d time.Duration) uint32 { return uint32(uint64(d/time.Second) * hz) }
	put := func(at int, n uint32) { binary.NativeEndian.PutUint32(memory[at:], n) }
	put(int(atSecond), ticks(time.Second))
	put(int(atSecond)+4, ticks(idle+behind))
	binary.NativeEndian.PutUint64(memory[atAsks:], max(1, Asks/hz))
	for state, d := range Leases {
		put(int(atLease)+4*int(state), ticks(d+time.Second+behind))
	}
}

// Settling is for how long what leaves over UDP may answer what came before a policy was in force.
const Settling = 30 * time.Second

// Settle has what leaves over UDP until a time in jiffies be known for one lease only: nobody has
// looked at what came before.
func Settle(memory []byte, jiffies uint64) {
	atomic.StoreUint64(counter(memory, atSettled), jiffies)
}

// SetClock gives the program at egress a time in jiffies; 0 is for that of the kernel. It is for
// tests.
func SetClock(memory []byte, jiffies uint64) {
	binary.NativeEndian.PutUint64(memory[atClock:], jiffies)
}

// Stats counts the connections of a memory.
type Stats struct {
	Live    int    `json:"live"`    // whose lease has not ended
	Open    int    `json:"open"`    // TCP connections among them whose handshake is proven
	Places  int    `json:"room"`    // in all
	Refused uint64 `json:"refused"` // connections that found no place
	Taken   uint64 `json:"taken"`   // places taken from connections whose lease had not ended
}

// Read counts what is in a memory at a time in jiffies.
func Read(memory []byte, jiffies uint64) Stats {
	room := roomOf(memory)
	s := Stats{
		Places: int(room), Refused: binary.NativeEndian.Uint64(memory[atRefused:]),
		Taken: binary.NativeEndian.Uint64(memory[atTaken:]),
	}
	now := uint32(jiffies)
	for bucket := range room.shown(memory) {
		for i := bucket * places; i < (bucket+1)*places; i++ {
			p := room.place(memory, i).load()
			if p.state() == uint64(served) || !p.inUse(memory, now) {
				continue
			}
			s.Live++
			if p.state() == uint64(open) {
				s.Open++
			}
		}
	}
	return s
}

var load = sync.OnceValues(loadTrack)

// Spec returns the program at egress for devices of a link layer, or for services.
func Spec(link packet.Link, service bool, room Room) (*ebpf.ProgramSpec, error) {
	name, at := "track_ethernet", ebpf.AttachTCXEgress
	switch {
	case service:
		name, at = "track_service", ebpf.AttachCGroupInetEgress
	case link == packet.L3:
		name = "track_ip"
	}
	spec, err := assembler.Program(load, "notes connections", name, Program, at)
	if err == nil {
		spec.Instructions = room.sized(spec.Instructions)
	}
	return spec, err
}
