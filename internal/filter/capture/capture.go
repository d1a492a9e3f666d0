// Package capture makes the programs that capture: levee's program goes to them when it has judged
// a packet. They look at the packet, the verdict and which slot decided, hand packets to who reads
// them, and return the verdict. Clang makes them of bpf/capture.bpf.c; the filter is translated
// from instructions of the BSD packet filter, which libpcap makes of tcpdump's expressions.
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
	"levee/internal/filter/plan"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package capture -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu" -type capture_event -type capture_cpu hook ../../../bpf/capture.bpf.c

// Looks is how many bytes of a packet a filter sees.
const Looks = len(hookCaptureCpu{}.Packet)

// Names of the maps of the programs: the counters are those of levee's program.
const (
	CountersMap = "counters"
	EventsMap   = "events"
	CPUsMap     = "cpus"
)

// Options say what is captured.
type Options struct {
	TC     bool              // of a program at tc, not XDP
	Frags  bool              // of an XDP program that takes frames in several buffers
	Filter []bpf.Instruction // nil: every packet
	Snap   int               // bytes of each packet that are handed on
	Bound  int               // packets a jiffy and CPU
	// Verdicts are codes that programs return, nil for all.
	Verdicts []int
	Slots    [2]int // the first and the last that decides

	// of levee's program
	RowBytes, Rows, NumSlots int
}

// Spec is the program with its maps, of which that of the counters is for the caller to replace.
func Spec(o Options) (*ebpf.CollectionSpec, *ebpf.ProgramSpec, error) {
	spec, err := loadHook()
	if err != nil {
		return nil, nil, fmt.Errorf("read the programs that capture: %w", err)
	}
	name, other := "capture_xdp", "capture_tc"
	if o.TC {
		name, other = other, name
	}
	delete(spec.Programs, other)
	p := spec.Programs[name]
	if p.AttachType = ebpf.AttachXDP; o.TC {
		p.AttachType = ebpf.AttachTCXIngress
	}
	if o.Frags {
		p.Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	p.Instructions = assembler.Older(p.Instructions)
	if o.Filter != nil {
		body, err := translate(o.Filter)
		if err != nil {
			return nil, nil, err
		}
		if p.Instructions, err = assembler.Replace(p.Instructions, "wanted", body); err != nil {
			return nil, nil, err
		}
	}
	verdicts := ^uint32(0)
	if o.Verdicts != nil {
		verdicts = 0
		for _, code := range o.Verdicts {
			verdicts |= 1 << (uint(code) & 31)
		}
	}
	for name, value := range map[string]uint32{
		"row_bytes": uint32(o.RowBytes), "row_mask": uint32(o.Rows - 1),
		"note_at": uint32(o.NumSlots * plan.SlotBytes), "snap": uint32(o.Snap),
		"bound": uint32(o.Bound), "verdicts": verdicts,
		"slots_from": uint32(o.Slots[0]), "slots_to": uint32(o.Slots[1]),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, nil, fmt.Errorf("set up the program that captures: %w", err)
		}
	}
	spec.Maps[CountersMap].ValueSize = uint32(o.RowBytes * o.Rows)
	return spec, p, nil
}

// Event is what the programs say of a packet; its bytes follow EventBytes.
type Event struct {
	Time    time.Duration // of CLOCK_MONOTONIC
	ID      uint64        // counts the packets of a CPU that the filter takes, also those lost
	Slot    int
	Verdict int // the code that the program returned
	Bytes   int // of the whole frame
	Queue   int
}

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

// Losses are packets that the filter took, and those of them that nobody was told of.
type Losses struct {
	Taken  uint64 // in all
	Above  uint64 // the bound
	Kernel uint64 // no place in a CPU's ring
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

// Counts is what a CPU says.
type Counts = hookCaptureCpu
