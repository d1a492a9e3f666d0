package env

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/route"
	"levee/internal/lang/field"
)

// Tell has the kernel tell what rules of a chain ask. The fields of the packet are in the registers
// of a chain.
func (c *Code) Tell(ch *plan.Chain) {
	fields := ch.Told()
	if len(fields) == 0 {
		return
	}
	if c.Target.Trace {
		for _, f := range fields {
			at, n := c.FieldAt(f)
			c.Emit(
				asm.LoadMapValue(asm.R1, 0, 0).WithReference(plan.TraceMap),
				asm.LoadMem(asm.R1, asm.R1, plan.TraceAt(f), SizeOf(n)),
				asm.StoreMem(asm.R10, at, asm.R1, SizeOf(n)),
			)
		}
		return
	}
	if ch.AsksRoute() {
		c.tellRoute(ch)
	}
}

// tellRoute stores whether there is a way back to the source of a packet, and whether it is by this
// interface.
func (c *Code) tellRoute(ch *plan.Chain) {
	c.Context(asm.R1)
	if ch.Family() == ir.IPv6 {
		c.Emit(
			asm.Mov.Reg(asm.R2, RegSrc),
			asm.LoadMem(asm.R3, asm.R10, KeySrcLo, asm.DWord),
			asm.Mov.Reg(asm.R4, RegDst),
			asm.LoadMem(asm.R5, asm.R10, KeyDstLo, asm.DWord),
			asm.Call.Label(route.Find6),
		)
	} else {
		c.Emit(
			asm.Mov.Reg(asm.R2, RegSrc),
			asm.Mov.Reg(asm.R3, RegDst),
			asm.Call.Label(route.Find4),
		)
	}
	vlan, _ := c.FieldAt(field.VLAN)
	inner, _ := c.FieldAt(field.InnerVLAN)
	both, _ := c.FieldAt(field.StrictPath)
	c.Emit(
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.LoadMem(asm.R2, asm.R10, vlan, asm.Half),
		asm.LoadMem(asm.R3, asm.R10, inner, asm.Half),
		asm.Call.Label(route.Tell),
		asm.StoreMem(asm.R10, both, asm.R0, asm.Half),
	)
}

// EmitTelling emits the functions by which the kernel is asked.
func (c *Code) EmitTelling() error {
	return route.Emit(c.Builder, c.ContextParam(), c.Target.Hook.OfSKB())
}
