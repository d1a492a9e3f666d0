// Package capture makes the programs of captures, watched decisions and samples: levee's program
// goes to them when it has judged a packet. They look at the packet, the verdict and which slot
// decided, hand packets to who reads them, and return the verdict. Clang makes them of
// bpf/capture.bpf.c, bpf/watch.bpf.c and bpf/sample.bpf.c; the filter is translated from
// instructions of the BSD packet filter, which libpcap makes of tcpdump's expressions.
//
// The package opens and loads nothing.
package capture

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"levee/internal/filter/assembler"
)

//go:generate ../../../bpf/compile -type capture_event -type capture_cpu hook ../../../bpf/capture.bpf.c
//go:generate ../../../bpf/compile -type watch_event -type watch_slot -type watch_cpu teller ../../../bpf/watch.bpf.c
//go:generate ../../../bpf/compile -type sample_event -type sample_kind sampler ../../../bpf/sample.bpf.c
//go:generate ../../../bpf/compile -type flows_event -type flows_key -type flows_flow -type flows_cpu -type flows_counts reader ../../../bpf/flows.bpf.c

// Looks counts the bytes of a packet that a filter sees.
const Looks = len(hookCaptureCpu{}.Packet)

// MostCaptured limits the bytes of a packet in an event, CAPTURE_MOST in bpf/capture.bpf.c.
const MostCaptured = Looks + len(hookCaptureCpu{}.Rest)

// Names of the maps of the programs: the counters are those of levee's program, the events a ring.
const (
	CountersMap = "counters"
	EventsMap   = "events"
	CPUsMap     = "cpus"
)

// Judge is levee's program, as far as those of this package have to know it.
type Judge struct {
	TC             bool // it is at tc, not XDP
	Frags          bool // it is of XDP and takes frames in several buffers
	Called         bool // its attach type is none: see codegen's Target
	RowBytes, Rows int  // of its counters
	Note           int  // byte of a row where it says what was decided
	NumSlots       int  // of the policy in force
}

// Options say what is captured.
type Options struct {
	Judge
	Filter []bpf.Instruction // nil: every packet
	Snap   int               // bytes of each packet that are handed on
	Bound  int               // packets a jiffy and CPU
	// Verdicts are codes that programs return, nil for all.
	Verdicts []int
	Slots    [2]int // the first and the last that decides
}

// Spec returns the program with its maps, of which that of the counters is for the caller to
// replace.
func Spec(o Options) (*ebpf.CollectionSpec, *ebpf.ProgramSpec, error) {
	spec, err := loadHook()
	if err != nil {
		return nil, nil, fmt.Errorf("read the programs that capture: %w", err)
	}
	if o.Snap > MostCaptured {
		return nil, nil, fmt.Errorf("an event has at most %d bytes of a packet, not %d",
			MostCaptured, o.Snap)
	}
	p := o.choose(spec, "capture")
	if o.Filter != nil {
		body, err := translate(o.Filter)
		if err != nil {
			return nil, nil, err
		}
		if p.Instructions, err = assembler.Replace(p.Instructions, "wanted", body); err != nil {
			return nil, nil, err
		}
	}
	return spec, p, o.set(spec, map[string]any{"snap": uint32(o.Snap), "bound": uint32(o.Bound),
		"wake_at": o.size(spec), "verdicts": bits(o.Verdicts), "slots_from": uint32(o.Slots[0]),
		"slots_to": uint32(o.Slots[1])})
}

// Sizes of the ring of events: for each CPU, and at most.
const (
	eventRing     = 1 << 20
	mostEventRing = 64 << 20
)

// size sizes the ring of events, and says from how many bytes in it the reader is woken.
func (j *Judge) size(spec *ebpf.CollectionSpec) (wake uint64) {
	size := RingFor(j.Rows, eventRing, mostEventRing)
	spec.Maps[EventsMap].MaxEntries = size
	return uint64(size) / 4
}

// RingFor returns the size of a ring with so many bytes for each CPU, and at most so many. The
// kernel takes powers of two alone, and there may be any number of CPUs.
func RingFor(cpus, each, most int) uint32 {
	size := each
	for size < cpus*each && size < most {
		size *= 2
	}
	return uint32(size)
}

// choose leaves the program for the hook of levee's in spec.
func (j *Judge) choose(spec *ebpf.CollectionSpec, name string) *ebpf.ProgramSpec {
	name, other := name+"_xdp", name+"_tc"
	if j.TC {
		name, other = other, name
	}
	delete(spec.Programs, other)
	p := spec.Programs[name]
	switch p.AttachType = ebpf.AttachXDP; {
	case j.TC:
		p.AttachType = ebpf.AttachTCXIngress
	case j.Called:
		p.AttachType = ebpf.AttachNone
	}
	if j.Frags {
		p.Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	p.Instructions = assembler.Older(p.Instructions)
	return p
}

// set gives a program its values, and where its note is.
func (j *Judge) set(spec *ebpf.CollectionSpec, values map[string]any) error {
	values["row_bytes"], values["row_mask"] = uint32(j.RowBytes), uint32(j.Rows-1)
	values["note_at"] = uint32(j.Note)
	for name, value := range values {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set up a program behind the policy's: %w", err)
		}
	}
	spec.Maps[CountersMap].ValueSize = uint32(j.RowBytes * j.Rows)
	return nil
}

// bits has a bit for each code of a verdict, all for nil.
func bits(codes []int) (out uint32) {
	if codes == nil {
		return ^out
	}
	for _, code := range codes {
		out |= 1 << (uint(code) & 31)
	}
	return out
}

// Event is the programs' account of a packet; its bytes follow EventBytes.
type Event struct {
	Time    time.Duration // of CLOCK_MONOTONIC
	ID      uint64        // a CPU, and CountBits that count its packets, also those lost
	Slot    int
	Verdict int // the code that the program returned
	Bytes   int // of the whole frame
	Queue   int
}

// CountBits is EVENT_COUNT of bpf/judged.h.
const CountBits = 40

// EventBytes is the size of an event in front of the packet.
const EventBytes = int(unsafe.Sizeof(hookCaptureEvent{}))

// Parse reads an event and the packet behind it.
func Parse(raw []byte, snap int) (Event, []byte, error) {
	if len(raw) < EventBytes {
		return Event{}, nil, fmt.Errorf("an event of %d bytes is too short", len(raw))
	}
	var h hookCaptureEvent
	if _, err := binary.Decode(raw, binary.NativeEndian, &h); err != nil {
		return Event{}, nil, err
	}
	packet := raw[EventBytes:]
	return Event{time.Duration(h.Time), h.Id, int(h.Slot), int(int32(h.Verdict)), int(h.Bytes),
		int(h.Queue)}, packet[:min(len(packet), int(h.Bytes), snap)], nil
}

// Losses are packets that the filter took, and those of them that nobody got.
type Losses struct {
	Taken  uint64 // in all
	Above  uint64 // the bound
	Kernel uint64 // no place in the ring
}

// Sum adds what the CPUs say to l. values are those of the map CPUsMap.
func Sum(l Losses, values []Counts) Losses {
	for i := range values {
		l.Taken += values[i].Taken
		l.Above += values[i].Above
		l.Kernel += values[i].Lost
	}
	return l
}

// Counts holds the counters of one CPU.
type Counts = hookCaptureCpu
