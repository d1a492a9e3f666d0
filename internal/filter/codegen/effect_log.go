package codegen

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/assembler"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
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

// log emits what a log does where it stands.
func (c *compiler) log(_ *scope, r *ir.Rule, e ir.Effect) {
	i := slices.IndexFunc(c.plan.Logs, func(l plan.Log) bool { return l.Slot == r.Slot })
	on := c.Fresh("logged")
	if e.Value > 1 {
		c.Emit(
			asm.FnGetPrandomU32.Call(),
			asm.Mod.Imm32(asm.R0, int32(e.Value)),
			asm.JNE.Imm(asm.R0, 0, on),
		)
	}
	c.context(asm.R1)
	c.field(asm.R2, keyBytes, asm.Word)
	c.Emit(asm.Call.Label(logLabel(i)))
	c.Label(on)
}

func logLabel(i int) string { return fmt.Sprintf("log_%d", i) }

// Stack of the functions of logs.
const (
	logEvent = -8 // the event
)

// emitLogs emits a function for each log, which is given the context and the bytes of the frame.
func (c *compiler) emitLogs() {
	for i := range c.plan.Logs {
		c.logFunction(i)
	}
}

func (c *compiler) logFunction(i int) {
	row := plan.LogRow(len(c.plan.Logs))
	lost := int16(8 + 16*i)
	same, short, over, unread, end := c.Fresh("same"), c.Fresh("short"), c.Fresh("over"),
		c.Fresh("unread"), c.Fresh("end")
	c.Global(logLabel(i), c.contextParam(), assembler.Number("bytes"))
	c.Emit(
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Reg(asm.R7, asm.R2),
		asm.FnGetSmpProcessorId.Call(),
		asm.And.Imm(asm.R0, int32(c.plan.CPUs-1)),
		asm.Mul.Imm(asm.R0, int32(row)),
		asm.LoadMapValue(asm.R9, 0, 0).WithReference(plan.LossesMap),
		asm.Add.Reg(asm.R9, asm.R0),
	)
	// A jiffy's events are counted in one word, with the jiffy above.
	c.Jiffies()
	c.Emit(
		asm.LSh.Imm(asm.R0, 16),
		asm.LoadMem(asm.R1, asm.R9, 0, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Sub.Reg(asm.R2, asm.R0),
		asm.JLT.Imm(asm.R2, 1<<16, same),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Mov.Imm(asm.R2, 0),
	)
	c.Label(same)
	c.Emit(
		asm.JGE.Imm(asm.R2, int32(max(1, EventsPerSecond/c.target.Rate())), over),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R9, 0, asm.R1, asm.DWord),
		asm.StoreImm(asm.R10, logEvent, int64(int32(c.plan.Logs[i].Number())), asm.Word),
		asm.StoreMem(asm.R10, logEvent+4, asm.R7, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, 0).WithReference(plan.EventsMap),
	)
	if c.target.Hook == TCX { // which counts a tag that the stack has taken off
		c.Emit(asm.LoadMem(asm.R7, asm.R6, skbLen, asm.Word))
	}
	c.Emit(
		asm.JLE.Imm(asm.R7, EventPacket, short),
		asm.Mov.Imm(asm.R7, EventPacket),
	)
	c.Label(short)
	c.Emit(
		asm.Mov.Reg(asm.R3, asm.R7),
		asm.LSh.Imm(asm.R3, 32), // BPF_F_CTXLEN_MASK
		asm.LoadImm(asm.R4, currentCPU, asm.DWord),
		asm.Or.Reg(asm.R3, asm.R4),
		asm.Mov.Reg(asm.R4, asm.R10),
		asm.Add.Imm(asm.R4, logEvent),
		asm.Mov.Imm(asm.R5, EventBytes),
		asm.FnPerfEventOutput.Call(),
		asm.JNE.Imm(asm.R0, 0, unread),
		asm.Ja.Label(end),
	)
	for _, l := range []struct {
		label string
		at    int16
	}{{unread, lost + 8}, {over, lost}} {
		c.Label(l.label)
		c.Emit(
			asm.LoadMem(asm.R1, asm.R9, l.at, asm.DWord),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R9, l.at, asm.R1, asm.DWord),
		)
		if l.label == unread {
			c.Emit(asm.Ja.Label(end))
		}
	}
	c.Label(end)
	c.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// currentCPU is BPF_F_CURRENT_CPU of include/uapi/linux/bpf.h.
const currentCPU = 0xffffffff
