package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/shadow"
)

// A shadow is a program behind that of the policy in force, at the place of one that captures. It
// judges the packet, notes the pair of decisions, and returns the decision of the policy in force,
// or leaves that to a program that captures.

// beginShadow leaves a packet alone that the policy in force has turned into an answer.
func (c *compiler) beginShadow() {
	own := c.Fresh("own")
	c.judged()
	c.Emit(
		asm.LoadMem(asm.R7, asm.R8, 12, asm.Word),
		asm.JNE.Imm32(asm.R7, c.AnswerCode(), own),
		// The slot of nobody, and no bytes: they are those of the answer.
		asm.Mov.Imm32(asm.R6, -1),
	)
	shadow.Call(c.Builder, c.Context, c.loadJudged,
		func(to asm.Register) { c.Emit(asm.Mov.Imm(to, 0)) })
	c.OwnRow()
	c.Emit(asm.Mov.Reg(asm.R9, asm.R1))
	c.takeJudged()
	c.capture()
	c.Emit(asm.Mov.Reg32(asm.R0, asm.R7), asm.Return())
	c.Label(own)
	c.Context(env.RegCtx)
}

// shadow notes what the policies decided. The slot is in R6, the code in R7, the row in R9.
func (c *compiler) shadow() {
	bytes := func(to asm.Register) { c.Field(to, env.KeyBytes, asm.Word) }
	if c.Target.Leaves && !c.Target.Handed() {
		// Nobody has judged: the packet passes, and the slot is one behind those of the policy.
		nobody := int64(uint64(uint32(c.PassCode()))<<32 | uint64(c.Target.Shadow.Slots))
		shadow.Call(c.Builder, c.Context,
			func(to asm.Register) { c.Emit(asm.LoadImm(to, nobody, asm.DWord)) }, bytes)
		c.Emit(asm.Mov.Imm32(asm.R7, c.PassCode()))
		return
	}
	c.judged()
	shadow.Call(c.Builder, c.Context, c.loadJudged, bytes)
	c.takeJudged()
}

// loadJudged loads slot and code of the policy in force, to which R8 points.
func (c *compiler) loadJudged(to asm.Register) {
	c.Emit(asm.LoadMem(to, asm.R8, 8, asm.DWord))
}

// takeJudged makes the decision of the policy in force, at R8, the program's own: slot in R6,
// verdict in R7.
func (c *compiler) takeJudged() {
	c.Emit(
		asm.LoadMem(asm.R6, asm.R8, 8, asm.Word),
		asm.LoadMem(asm.R7, asm.R8, 12, asm.Word),
	)
}

// judged leaves in R8 where the program in force has written what it decided. R6, R7 and R9 keep
// their values.
func (c *compiler) judged() {
	of := c.Target.Shadow
	if c.Plan.CPUs > 1 {
		c.Emit(
			asm.FnGetSmpProcessorId.Call(),
			asm.And.Imm(asm.R0, int32(c.Plan.CPUs-1)),
			asm.Mul.Imm(asm.R0, int32(of.RowBytes)),
		)
	}
	c.Emit(asm.LoadMapValue(asm.R8, 0, 0).WithReference(shadow.JudgedMap))
	if c.Plan.CPUs > 1 {
		c.Emit(asm.Add.Reg(asm.R8, asm.R0))
	}
	c.Emit(asm.Add.Imm(asm.R8, int32(of.Note())))
}
