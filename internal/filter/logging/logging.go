// Package logging makes the functions by which `log` rules report packets to watchers, and lays out
// the memory that counts lost reports. It takes the numbers of the logs; it returns instructions.
// It opens, pins and loads nothing, and knows no policies.
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
	EventsMap = "events" // an array of one ring: that of who watches
	LossesMap = "losses" // a row for each CPU
)

// An event is EventBytes, and the packet behind it: which rule, the bytes of the whole frame, and
// the CPU, u32 each in the order of the machine. Of the packet there are up to EventPacket bytes;
// what is behind those of a shorter one means nothing.
const (
	EventBytes  = 12
	EventPacket = 128
)

// EventsPerSecond limits the events of a CPU, of all logs together.
const EventsPerSecond = 10_000

// MaxInstructions limits the instructions of the function of a log.
const MaxInstructions = 80

// Number names a rule in events. It follows the identity of the rule, so that a watcher knows it
// after a replace, too.
func Number(id string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(id)) // which does not fail
	return h.Sum32()
}

// Row returns the size of one CPU's row of losses for so many logs, a multiple of 64: how many
// events the CPU has sent in the present jiffy, and for each log, u64, those above the bound and
// those that found nobody, or no place.
func Row(logs int) int { return (8 + 16*logs + 63) &^ 63 }

// EventsSpec describes the map into which who watches puts his ring.
func EventsSpec() *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: EventsMap, Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4,
		MaxEntries: 1, InnerMap: RingSpec(64 << 10)}
}

// RingSpec describes a ring of so many bytes, a power of two.
func RingSpec(bytes uint32) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: "event_ring", Type: ebpf.RingBuf, MaxEntries: bytes}
}

// Label returns the function of a log, which is given the context and the bytes of the frame.
func Label(i int) string { return fmt.Sprintf("log_%d", i) }

// Functions emits the functions of all logs of a program.
type Functions struct {
	*assembler.Builder
	Context assembler.Param
	TCX     bool     // the context is an skb
	CPUs    int      // rows, a power of two
	HZ      uint64   // jiffies a second
	Numbers []uint32 // of the logs
	// Before are the logs of the other program that has the same memory, of All of both.
	Before, All int
}

// The function's stack, and a field of struct __sk_buff.
const (
	keyAt  = -4 // names the ring
	cpuAt  = -8
	skbLen = 0
)

// EmitAll emits them.
func (f *Functions) EmitAll() {
	for i := range f.Numbers {
		f.one(i)
	}
}

// places are labels within the function of a log.
type places struct{ over, unread, discard, end string }

// one emits the function of a log. R6 is the context, R7 the bytes of the frame, R8 the event and
// R9 this CPU's row of losses.
func (f *Functions) one(i int) {
	to := places{f.Fresh("over"), f.Fresh("unread"), f.Fresh("discard"), f.Fresh("end")}
	f.Global(Label(i), f.Context, assembler.Number("bytes"))
	f.findRow()
	f.bound(to.over)
	f.reserve(f.Numbers[i], to.unread)
	f.copyPacket(&to)
	f.countLosses(int16(8+16*(f.Before+i)), &to)
	f.Label(to.end)
	f.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// findRow leaves this CPU's row of losses in R9.
func (f *Functions) findRow() {
	f.Emit(
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Reg(asm.R7, asm.R2),
		asm.FnGetSmpProcessorId.Call(),
		asm.And.Imm(asm.R0, int32(f.CPUs-1)),
		asm.StoreMem(asm.R10, cpuAt, asm.R0, asm.Word),
		asm.Mul.Imm(asm.R0, int32(Row(f.All))),
		asm.LoadMapValue(asm.R9, 0, 0).WithReference(LossesMap),
		asm.Add.Reg(asm.R9, asm.R0),
	)
}

// bound counts an event of this CPU in this jiffy, and goes to over if there are too many. The
// count and, above it, the jiffy are one word.
func (f *Functions) bound(over string) {
	same := f.Fresh("same")
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
	)
}

// reserve takes a place for an event in the ring of who watches, and writes its head. It goes to
// unread if there is no ring or no place.
func (f *Functions) reserve(number uint32, unread string) {
	f.Emit(
		asm.StoreImm(asm.R10, keyAt, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference(EventsMap),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, keyAt),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, unread),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Mov.Imm(asm.R2, EventBytes+EventPacket),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, unread),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.StoreImm(asm.R8, 0, int64(int32(number)), asm.Word),
		asm.StoreMem(asm.R8, 4, asm.R7, asm.Word),
		asm.LoadMem(asm.R1, asm.R10, cpuAt, asm.Word),
		asm.StoreMem(asm.R8, 8, asm.R1, asm.Word),
	)
}

// copyPacket copies the beginning of the frame into the event and hands it to the reader.
func (f *Functions) copyPacket(to *places) {
	short, some := f.Fresh("short"), f.Fresh("some")
	load := asm.FnXdpLoadBytes
	if f.TCX { // which counts a tag that the stack has taken off
		load = asm.FnSkbLoadBytes
		f.Emit(asm.LoadMem(asm.R7, asm.R6, skbLen, asm.Word))
	}
	// A frame has 14 bytes at least, which the verifier cannot know.
	f.Emit(
		asm.JLE.Imm(asm.R7, EventPacket, short),
		asm.Mov.Imm(asm.R7, EventPacket),
	)
	f.Label(short)
	f.Emit(
		asm.JGE.Imm(asm.R7, 1, some),
		asm.Mov.Imm(asm.R7, 1),
	)
	f.Label(some)
	f.Emit(
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.Add.Imm(asm.R3, EventBytes),
		asm.Mov.Reg(asm.R4, asm.R7),
		load.Call(),
		asm.Mov.Reg(asm.R1, asm.R8),
		asm.Mov.Imm(asm.R2, 0), // the reader is woken if he has read all else
		asm.JNE.Imm(asm.R0, 0, to.discard),
		asm.FnRingbufSubmit.Call(),
		asm.Ja.Label(to.end),
	)
	f.Label(to.discard)
	f.Emit(asm.FnRingbufDiscard.Call())
}

// countLosses counts events that nobody read, at lost + 8 of the row, and those above the bound, at
// lost.
func (f *Functions) countLosses(lost int16, to *places) {
	count := func(at int16) {
		f.Emit(
			asm.LoadMem(asm.R1, asm.R9, at, asm.DWord),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R9, at, asm.R1, asm.DWord),
		)
	}
	f.Label(to.unread)
	count(lost + 8)
	f.Emit(asm.Ja.Label(to.end))
	f.Label(to.over)
	count(lost)
}
