package env

import (
	"math"
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/action"
)

// SlotLog is log2 of plan.SlotBytes.
const SlotLog = 4

// Where this compiles, it is.
const _ = -uint(plan.SlotBytes ^ 1<<SlotLog)

// Count counts the packet for a rule that decides nothing, in the row that beginCounts found.
func (c *Code) Count(slot int) {
	at := slot * plan.SlotBytes
	c.Emit(asm.LoadMem(asm.R1, asm.R10, c.rowSlot(), asm.DWord))
	if at > math.MaxInt16-plan.SlotBytes {
		c.Emit(asm.Add.Imm(asm.R1, int32(at)))
		at = 0
	}
	c.Bump(int16(at))
}

// BeginCounts keeps the address of this CPU's row of counters for the rules that only count:
// finding it takes a call, and the kernel rewrites the whole program for each of them while it
// loads.
func (c *Code) BeginCounts(rules []ir.Rule) {
	if slices.ContainsFunc(rules, Counts) {
		c.Row()
		c.Emit(asm.StoreMem(asm.R10, c.rowSlot(), asm.R1, asm.DWord))
	}
}

// Row leaves the address of this CPU's row of counters in R1.
func (c *Code) Row() { c.row(func() { c.Field(asm.R0, RowAt, asm.Word) }) }

// RowBy is Row where R1 has the address of the environment.
func (c *Code) RowBy() {
	c.row(func() { c.Emit(asm.LoadMem(asm.R0, asm.R1, RowAt-At, asm.Word)) })
}

func (c *Code) row(begins func()) {
	if !c.RowInEnv { // as with one CPU
		c.OwnRow()
		return
	}
	there := c.Fresh("row")
	begins()
	c.Emit(
		asm.JLE.Imm(asm.R0, int32((c.Plan.CPUs-1)*c.Plan.RowBytes), there),
		asm.Mov.Imm(asm.R0, 0), // never: for the verifier
	)
	c.Label(there)
	if c.Target.Hook.OfService() {
		c.Emit(asm.And.Imm(asm.R0, -64)) // it is: atomic additions ask for it
	}
	c.Emit(
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(plan.CountersMap),
		asm.Add.Reg(asm.R1, asm.R0),
	)
}

// OwnRow leaves this CPU's row of counters in R1, wherever the environment has not begun.
func (c *Code) OwnRow() {
	if c.Plan.CPUs == 1 {
		c.Emit(asm.LoadMapValue(asm.R1, 0, 0).WithReference(plan.CountersMap))
		return
	}
	c.RowOffset()
	c.Emit(
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(plan.CountersMap),
		asm.Add.Reg(asm.R1, asm.R0),
	)
}

// RowOffset leaves where this CPU's row of counters begins in R0.
func (c *Code) RowOffset() {
	c.Emit(
		asm.FnGetSmpProcessorId.Call(),
		asm.And.Imm(asm.R0, int32(c.Plan.CPUs-1)),
		asm.Mul.Imm(asm.R0, int32(c.Plan.RowBytes)),
	)
}

func Counts(r ir.Rule) bool { return r.Action.Has(action.Count) }

// Bump adds 1 packet and its bytes to the counter at the address R1 + at. Programs of this hook do
// not interrupt each other on a CPU, so plain additions are exact.
func (c *Code) Bump(at int16) {
	c.Field(asm.R2, KeyBytes, asm.Word)
	c.BumpBy(at)
}

// BumpBy adds a packet with as many bytes as R2 says. What a service sends, it sends in a process,
// which packets that arrive interrupt: there the additions are atomic.
func (c *Code) BumpBy(at int16) {
	if c.Target.Hook.OfService() {
		c.Emit(
			asm.Mov.Imm(asm.R3, 1),
			asm.AddAtomic.Mem(asm.R1, asm.R3, asm.DWord, at),
			asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, at+8),
		)
		return
	}
	c.Emit(
		asm.LoadMem(asm.R3, asm.R1, at, asm.DWord),
		asm.Add.Imm(asm.R3, 1),
		asm.StoreMem(asm.R1, at, asm.R3, asm.DWord),
		asm.LoadMem(asm.R3, asm.R1, at+8, asm.DWord),
		asm.Add.Reg(asm.R3, asm.R2),
		asm.StoreMem(asm.R1, at+8, asm.R3, asm.DWord),
	)
}
