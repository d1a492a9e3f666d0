package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/divert"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
)

// divert emits the note by which the connection of a packet reaches the trap. A packet that finds
// no place is dropped, since it would reach who listens there.
func (c *compiler) divert(in *scope, r *ir.Rule, _ ir.Effect) {
	noted := c.Fresh("noted")
	ports := func(to asm.Register) {
		c.Emit(asm.Mov.Reg(to, env.RegSrcPort), asm.LSh.Imm(to, 16), asm.Or.Reg(to, env.RegDstPort))
	}
	c.Emit(asm.Mov.Reg(asm.R1, env.RegSrc))
	if in.family == ir.IPv4 {
		c.Emit(asm.Mov.Reg(asm.R2, env.RegDst))
		ports(asm.R3)
		c.Emit(asm.Call.Label(divert.NoteIPv4))
	} else {
		c.Field(asm.R2, env.KeySrcLo, asm.DWord)
		c.Emit(asm.Mov.Reg(asm.R3, env.RegDst))
		c.Field(asm.R4, env.KeyDstLo, asm.DWord)
		ports(asm.R5)
		c.Emit(asm.Call.Label(divert.NoteIPv6))
	}
	c.Emit(asm.JNE.Imm(asm.R0, divert.Full, noted))
	c.answer(plan.Response{Slot: r.Slot, Verdict: ir.Drop})
	c.Label(noted)
}
