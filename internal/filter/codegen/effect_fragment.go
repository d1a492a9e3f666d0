package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/fragment"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/packet"
)

// Slots of what only policies with `fragments track` find malformed.
var malformedSlots = map[int32]int{
	fragment.Orphan:   packet.FragmentOrphan.Slot(),
	fragment.Overlaps: packet.FragmentOverlap.Slot(),
	fragment.Tiny:     packet.FragmentTiny.Slot(),
}

// fragments emits the effect of `fragments track`: the function judges fragments with an offset;
// all other packets go on.
func (c *compiler) fragments(_ *scope, r *ir.Rule, _ ir.Effect) {
	on, pass := c.Fresh("no_fragment"), c.Fresh("fragment_passes")
	c.Field(asm.R0, env.KeyFrag, asm.Half)
	c.Emit(
		asm.JEq.Imm(asm.R0, 0, on),
		asm.And.Imm(asm.R0, fragment.FirstBit),
		asm.JNE.Imm(asm.R0, 0, on),
	)
	if c.InFunction {
		c.Emit(asm.LoadMem(asm.R1, asm.R10, env.Pointer, asm.DWord))
	} else {
		c.giveEnv()
	}
	c.Emit(
		asm.Call.Label(fragment.Later),
		asm.JEq.Imm(asm.R0, fragment.Pass, pass),
	)
	for _, bad := range []int32{fragment.Overlaps, fragment.Tiny} {
		other := c.Fresh("other_reason")
		c.Emit(asm.JNE.Imm(asm.R0, bad, other))
		c.answer(plan.Response{Slot: malformedSlots[bad], Verdict: ir.Drop})
		c.Label(other)
	}
	c.answer(plan.Response{Slot: malformedSlots[fragment.Orphan], Verdict: ir.Drop})
	c.Label(pass)
	c.answer(plan.Response{Slot: r.Slot, Verdict: ir.Pass})
	c.Label(on)
}

// noFragment has nobody follow a malformed frame. R0 is kept.
func (c *compiler) noFragment() {
	if c.Plan.Fragments {
		c.Emit(asm.StoreImm(asm.R10, env.KeyFrag, 0, asm.Half))
	}
}

// noteFragment tells what becomes of a first fragment, where the verdict is in R7 and the slot in
// R6. One that overlaps what has passed is dropped.
func (c *compiler) noteFragment() {
	if !c.Plan.Fragments {
		return
	}
	noted, drops := c.Fresh("noted"), c.Fresh("fragment_dropped")
	c.Emit(
		asm.LoadMem(asm.R1, asm.R10, env.KeyFrag, asm.Half),
		asm.And.Imm(asm.R1, fragment.FirstBit),
		asm.JEq.Imm(asm.R1, 0, noted),
		asm.Mov.Imm(asm.R2, 0),
		asm.JNE.Imm32(asm.R7, c.PassCode(), drops),
		asm.Mov.Imm(asm.R2, 1),
	)
	c.Label(drops)
	c.giveEnv()
	c.Emit(
		asm.Call.Label(fragment.End),
		asm.JNE.Imm(asm.R0, fragment.Overlaps, noted),
		asm.Mov.Imm(asm.R6, int32(malformedSlots[fragment.Overlaps])),
		asm.Mov.Imm32(asm.R7, c.DropCode()),
	)
	c.Label(noted)
}
