package env

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/echo"
	"levee/internal/filter/flow"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/field"
)

// Tells reports whether packets of a chain may prove their flows.
func (c *Code) Tells(ch *plan.Chain) bool {
	return ch.Asks[field.ProvenFlow] && len(c.Plan.Echoes) > 0 && !c.Target.IsShadow()
}

// LookUpEcho stores whether the flow of a packet is proven, or is by this very packet. The fields
// of the packet are in the registers of a chain.
func (c *Code) LookUpEcho(ch *plan.Chain) {
	class := ch.Classes[0]
	six, done := class.Family == ir.IPv6, c.Fresh("echo")
	if len(c.Plan.Echoes) == 0 {
		c.Emit(asm.StoreImm(asm.R10, keyEcho, 0, asm.Byte))
		return
	}
	flow.HashIn(c.Builder, echo.Map, six, class.Proto(), c.flowPieces(class))
	if !c.Tells(ch) {
		c.Emit(asm.Mov.Reg(asm.R1, asm.R0), asm.Call.Label(echo.Seen),
			asm.StoreMem(asm.R10, keyEcho, asm.R0, asm.Byte))
		return
	}
	c.Emit(
		asm.StoreMem(asm.R10, mainEcho, asm.R0, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Call.Label(echo.Proven),
		asm.JNE.Imm(asm.R0, 0, done),
	)
	c.Context(asm.R1)
	c.Emit(
		asm.LoadMem(asm.R2, asm.R10, mainEcho, asm.DWord),
		asm.LoadMem(asm.R3, asm.R10, KeyLeft, asm.Half),
		asm.LSh.Imm(asm.R3, 16),
		asm.LoadMem(asm.R0, asm.R10, KeyOff, asm.Half),
		asm.Or.Reg(asm.R3, asm.R0),
		asm.Mov.Reg(asm.R4, RegDstPort),
		asm.Call.Label(echo.Tell),
	)
	c.Label(done)
	c.Emit(asm.StoreMem(asm.R10, keyEcho, asm.R0, asm.Byte))
}
