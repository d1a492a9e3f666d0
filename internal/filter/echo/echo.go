// Package echo knows which clients have proven over UDP that they receive what is sent to them: by
// bytes of a reply that come back, of the service or of a cookie (package cookie).
// In go the forms of replies; out come functions for programs at
// ingress, a program at egress that notes the bytes, and the layout of the memory between them,
// which clang makes of bpf/echo.bpf.c.
//
// The memory is a head with the secret keys, a tally for each form, lines of eight values, and
// lines of eight flows that are proven. A flow's hash names both lines. A value's hash is of the
// flow and the form, too, so that it proves no other. No value takes the place of a flow, and no
// flow that of one which sends.
//
// The package opens, pins and loads nothing.
package echo

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"levee/internal/filter/assembler"
	"levee/internal/packet"
)

//go:generate ../../../bpf/compile -type echo_head -type echo_memory -type echo_tally -type echo_count -type echo_form -type echo_forms -type echo_made learn ../../../bpf/echo.bpf.c

// Names of the maps and the program, in the specs of programs.
const (
	Map      = "echoes"
	FormsMap = "forms"
	Program  = "learn"
)

// Labels of the functions. Proven and Seen are given the hash of a flow and return 1 if it is
// proven; Seen changes nothing. Tell is given the context, the hash, where the UDP header begins
// with the bytes from there on above it, and the port of the service; it returns 1 where the packet
// proves its flow.
const (
	Proven = "echo_proven"
	Seen   = "echo_seen"
	Tell   = "echo_tell"
)

const prove = "echo_prove"

// MaxInstructions limits the instructions of the functions.
const MaxInstructions = 2_000

// Holds limits the time until a value comes back. A flow is proven for Lease without a packet of
// it, at least; a second longer at most. Who is idle for Idle may lose his place to another.
const (
	Holds = 5 * time.Second
	Lease = 3 * time.Minute
	Idle  = 10 * time.Second
)

// Layout of bpf/echo.bpf.c.
const (
	Size      = int(unsafe.Sizeof(learnEchoMemory{}))
	HeadBytes = int(unsafe.Sizeof(learnEchoHead{}))
	FormBytes = int(unsafe.Sizeof(learnEchoForms{}))
	Tallies   = len(learnEchoMemory{}.Tallies)

	AtStart   = int16(unsafe.Offsetof(learnEchoHead{}.Start))
	atKey     = int(unsafe.Offsetof(learnEchoHead{}.Key))
	atClock   = int(unsafe.Offsetof(learnEchoHead{}.Clock))
	atSecond  = int(unsafe.Offsetof(learnEchoHead{}.Second))
	atLease   = int(unsafe.Offsetof(learnEchoHead{}.Lease))
	atIdle    = int(unsafe.Offsetof(learnEchoHead{}.Idle))
	atHolds   = int(unsafe.Offsetof(learnEchoHead{}.Holds))
	atRefused = int(unsafe.Offsetof(learnEchoHead{}.Refused))
	atTaken   = int(unsafe.Offsetof(learnEchoHead{}.Taken))
	atUnit    = int(unsafe.Offsetof(learnEchoHead{}.Unit))

	atTallies = int(unsafe.Offsetof(learnEchoMemory{}.Tallies))
	atFlows   = int(unsafe.Offsetof(learnEchoMemory{}.Flows))
	tallySize = int(unsafe.Sizeof(learnEchoTally{}))
	rowSize   = int(unsafe.Sizeof(learnEchoCount{}))
	rows      = len(learnEchoTally{}.Row)
	atClasses = int(unsafe.Offsetof(learnEchoTally{}.Classes))
	words     = len(learnEchoTally{}.Classes)
	place     = 8
	lines     = len(learnEchoMemory{}.Flows)
	perLine   = len(learnEchoMemory{}.Flows[0])
)

// Places counts the flows that a memory has room for, and as many values.
const Places = (Size - atFlows) / place

// Ports are a range of ports.
type Ports struct{ Lo, Hi uint16 }

// Bytes is a condition on a reply: these bytes stand at an offset behind its UDP header, under a
// mask.
type Bytes struct {
	At          int
	Value, Mask []byte
	Not         bool // a reply has other ones there; 8 at most
}

// Made says by whom a value is that comes back.
type Made uint32

// A service's replies have a value, or a cookie made it of the flow and the time.
const (
	MadeByService = Made(learnEchoMadeECHO_SERVICE)
	MadeForA2S    = Made(learnEchoMadeECHO_A2S)
)

// Form is a kind of reply whose client sends bytes of it back.
type Form struct {
	Made  Made
	ID    uint32
	Tally int // its place among those of a memory
	Ports []Ports
	Reply []Bytes
	Bytes int   // of the value
	At    int   // in replies
	In    []int // in packets of clients
}

var load = sync.OnceValues(loadLearn)

// FormsSpec returns the map of the forms that functions and the program read.
func FormsSpec(forms []Form) (*ebpf.MapSpec, error) {
	var all learnEchoForms
	if len(forms) > len(all.Form) {
		return nil, fmt.Errorf("%d kinds of replies, of which a program takes %d", len(forms),
			len(all.Form))
	}
	all.N = uint32(len(forms))
	for i := range forms {
		if err := forms[i].put(&all.Form[i]); err != nil {
			return nil, err
		}
	}
	raw := make([]byte, FormBytes)
	if _, err := binary.Encode(raw, binary.NativeEndian, &all); err != nil {
		return nil, err
	}
	return &ebpf.MapSpec{Name: FormsMap, Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32(FormBytes), MaxEntries: 1,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: raw}}}, nil
}

// put lays a form out.
func (f *Form) put(to *learnEchoForm) error {
	to.Made = uint32(f.Made)
	to.Id, to.Tally, to.Bytes, to.At = f.ID, uint32(f.Tally), uint32(f.Bytes), uint32(f.At)
	if len(f.In) > len(to.In) || len(f.Ports) > len(to.Ports) {
		return fmt.Errorf("a reply with %d ranges of ports and %d places to come back to: %d and "+
			"%d are possible", len(f.Ports), len(f.In), len(to.Ports), len(to.In))
	}
	for i, at := range slices.Sorted(slices.Values(f.In)) {
		to.In[i] = uint32(at)
	}
	to.Ins, to.Ranges = uint32(len(f.In)), uint32(len(f.Ports))
	for i, p := range f.Ports {
		to.Ports[i].Lo, to.Ports[i].Hi = p.Lo, p.Hi
	}
	for _, b := range f.Reply {
		for i := 0; i < len(b.Value); i += 8 {
			if int(to.Terms) == len(to.Term) {
				return fmt.Errorf("the bytes that a reply has to have are more than %d pieces of 8",
					len(to.Term))
			}
			t, end := &to.Term[to.Terms], min(i+8, len(b.Value))
			t.End = uint32(b.At + end)
			t.Value, t.Mask = word(b.Value[i:end]), word(b.Mask[i:end])
			if b.Not {
				t.Differs = 1
			}
			to.Terms++
		}
	}
	return nil
}

// word returns bytes as a load of the machine gives them, behind zeroes.
func word(b []byte) uint64 {
	var w [8]byte
	copy(w[8-len(b):], b)
	return binary.NativeEndian.Uint64(w[:])
}

// Emit emits the functions that are called.
func Emit(b *assembler.Builder, context assembler.Param, tcx bool) error {
	tell, look, entry := "echo_tell_xdp", "echo_look_xdp", learnProgEntryXdp
	if tcx {
		tell, look, entry = "echo_tell_tcx", "echo_look_tcx", learnProgEntryTcx
	}
	number := assembler.Number
	flow, place := number("flow"), number("place")
	return b.Functions(load, "know proven flows",
		assembler.Function{Label: Proven, Name: "echo_proven", Entry: learnProgEntryFlow,
			Params: []assembler.Param{flow}},
		assembler.Function{Label: Seen, Name: "echo_seen", Entry: learnProgEntryFlow,
			Params: []assembler.Param{flow}},
		assembler.Function{Label: Tell, Name: tell, Entry: entry,
			Params: []assembler.Param{context, flow, place, number("port")}},
		// Tell calls them by the names that they have in C.
		assembler.Function{Label: look, Entry: entry,
			Params: []assembler.Param{context, flow, place, number("form"), number("at")}},
		assembler.Function{Label: prove, Entry: entry, Params: []assembler.Param{flow}})
}

// Spec returns the program at egress, for packets that begin with a link layer's header.
func Spec(link packet.Link) (*ebpf.ProgramSpec, error) {
	name := learnProgLearnEthernet
	if link == packet.L3 {
		name = learnProgLearnIp
	}
	return assembler.Program(load, "notes replies", name, Program, ebpf.AttachTCXEgress)
}

// Seed draws the keys of a memory and writes its times. The memory is all zero else.
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
	// A CPU may be behind the one that wrote: see package flow.
	put(atLease, uint64(Lease/time.Second+2)*hz)
	put(atIdle, uint64(Idle/time.Second+2)*hz)
	put(atHolds, uint64(Holds/time.Second)*hz)
	put(atUnit, uint64(bits.Len64(hz))) // one to two seconds
}

// SetClock sets the time, in jiffies, that programs use; 0 is for that of the kernel. It is for
// tests.
func SetClock(memory []byte, jiffies uint64) {
	binary.NativeEndian.PutUint64(memory[atClock:], jiffies)
}
