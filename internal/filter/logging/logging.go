// Package logging makes the functions by which rules tell whoever watches of packets, and lays out
// the memory of what nobody was told. It takes the numbers of the logs; it returns instructions. It
// opens, pins and loads nothing, and knows no policies.
package logging

import (
	"fmt"
	"hash/fnv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
)

// Maps of a program with logs.
const (
	EventsMap = "events" // a perf event array: it has an entry for each who watches
	LossesMap = "losses" // a row for each CPU
)

// An event is EventBytes, and the packet behind it: which rule, and the bytes of the whole frame,
// u32 each in the order of the machine. Of the packet there are up to EventPacket bytes, and then
// perhaps more, up to a multiple of 8.
const (
	EventBytes  = 8
	EventPacket = 128
)

// EventsPerSecond is how many events a CPU sends at most, of all logs together.
const EventsPerSecond = 10_000

// MaxInstructions is how many instructions the function of a log has, at most.
const MaxInstructions = 80

// Number names a rule in events. It goes with the identity of the rule, so that whoever watches
// knows it also after a replace.
func Number(id string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(id)) // which does not fail
	return h.Sum32()
}

// Row is the size of one CPU's row of losses for so many logs, a multiple of 64: how many events
// the CPU has sent in the present jiffy, and for each log, u64, those above the bound and those
// that found nobody, or no place.
func Row(logs int) int { return (8 + 16*logs + 63) &^ 63 }

// EventsSpec describes the map of those who watch.
func EventsSpec() *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: EventsMap, Type: ebpf.PerfEventArray, KeySize: 4, ValueSize: 4}
}

// Label is the function of a log, which is given the context and the bytes of the frame.
func Label(i int) string { return fmt.Sprintf("log_%d", i) }

// Functions is what the functions of all logs of a program are made for.
type Functions struct {
	*assembler.Builder
	Context assembler.Param
	TCX     bool     // the context is an skb
	CPUs    int      // rows, a power of two
	HZ      uint64   // jiffies a second
	Numbers []uint32 // of the logs
}

// The function's stack, and a field of struct __sk_buff.
const (
	eventAt = -8
	skbLen  = 0
)

// currentCPU is BPF_F_CURRENT_CPU of include/uapi/linux/bpf.h.
const currentCPU = 0xffffffff

// EmitAll emits them.
func (f *Functions) EmitAll() {
	for i := range f.Numbers {
		f.one(i)
	}
}

// one emits the function of a log.
func (f *Functions) one(i int) {
	row := Row(len(f.Numbers))
	lost := int16(8 + 16*i)
	same, short, over, unread, end := f.Fresh("same"), f.Fresh("short"), f.Fresh("over"),
		f.Fresh("unread"), f.Fresh("end")
	f.Global(Label(i), f.Context, assembler.Number("bytes"))
	f.Emit(
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Reg(asm.R7, asm.R2),
		asm.FnGetSmpProcessorId.Call(),
		asm.And.Imm(asm.R0, int32(f.CPUs-1)),
		asm.Mul.Imm(asm.R0, int32(row)),
		asm.LoadMapValue(asm.R9, 0, 0).WithReference(LossesMap),
		asm.Add.Reg(asm.R9, asm.R0),
	)
	// A jiffy's events are counted in one word, with the jiffy above.
	f.Jiffies()
	f.Emit(
		asm.LSh.Imm(asm.R0, 16),
		asm.LoadMem(asm.R1, asm.R9, 0, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Sub.Reg(asm.R2, asm.R0),
		asm.JLT.Imm(asm.R2, 1<<16, same),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Mov.Imm(asm.R2, 0),
	)
	f.Label(same)
	f.Emit(
		asm.JGE.Imm(asm.R2, int32(max(1, EventsPerSecond/f.HZ)), over),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R9, 0, asm.R1, asm.DWord),
		asm.StoreImm(asm.R10, eventAt, int64(int32(f.Numbers[i])), asm.Word),
		asm.StoreMem(asm.R10, eventAt+4, asm.R7, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, 0).WithReference(EventsMap),
	)
	if f.TCX { // which counts a tag that the stack has taken off
		f.Emit(asm.LoadMem(asm.R7, asm.R6, skbLen, asm.Word))
	}
	f.Emit(
		asm.JLE.Imm(asm.R7, EventPacket, short),
		asm.Mov.Imm(asm.R7, EventPacket),
	)
	f.Label(short)
	f.Emit(
		asm.Mov.Reg(asm.R3, asm.R7),
		asm.LSh.Imm(asm.R3, 32), // BPF_F_CTXLEN_MASK
		asm.LoadImm(asm.R4, currentCPU, asm.DWord),
		asm.Or.Reg(asm.R3, asm.R4),
		asm.Mov.Reg(asm.R4, asm.R10),
		asm.Add.Imm(asm.R4, eventAt),
		asm.Mov.Imm(asm.R5, EventBytes),
		asm.FnPerfEventOutput.Call(),
		asm.JNE.Imm(asm.R0, 0, unread),
		asm.Ja.Label(end),
	)
	for _, l := range []struct {
		label string
		at    int16
	}{{unread, lost + 8}, {over, lost}} {
		f.Label(l.label)
		f.Emit(
			asm.LoadMem(asm.R1, asm.R9, l.at, asm.DWord),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R9, l.at, asm.R1, asm.DWord),
		)
		if l.label == unread {
			f.Emit(asm.Ja.Label(end))
		}
	}
	f.Label(end)
	f.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}
