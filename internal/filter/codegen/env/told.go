package env

import (
	"errors"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/route"
	"levee/internal/filter/sender"
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
	c.tellSender(ch)
}

// tellSender stores who sends a packet that leaves. What is forwarded came by an interface, and has
// no sender.
func (c *Code) tellSender(ch *plan.Chain) {
	store := func(f field.Field) {
		at, n := c.FieldAt(f)
		c.Emit(asm.StoreMem(asm.R10, at, asm.R0, SizeOf(n)))
	}
	call := func(label string) { c.Emit(asm.Call.Label(label)) }
	if ch.Asks[field.Local] {
		sent := c.Fresh("sent")
		c.Context(asm.R1)
		c.Emit(
			asm.LoadMem(asm.R1, asm.R1, SkbCameBy, asm.Word),
			asm.Mov.Imm(asm.R0, 1),
			asm.JEq.Imm(asm.R1, 0, sent),
			asm.Mov.Imm(asm.R0, 0),
		)
		c.Label(sent)
		store(field.Local)
	}
	for _, ids := range []struct {
		number, name   field.Field
		label, nameIts string
	}{
		{field.UID, field.User, sender.UID, sender.User},
		{field.GID, field.Group, sender.GID, sender.Group},
	} {
		if !ch.Asks[ids.number] && !ch.Asks[ids.name] {
			continue
		}
		c.Context(asm.R1)
		call(ids.label)
		if ch.Asks[ids.number] {
			store(ids.number)
		}
		if ch.Asks[ids.name] {
			c.Emit(asm.Mov.Reg(asm.R1, asm.R0))
			call(ids.nameIts)
			store(ids.name)
		}
	}
	if !ch.Asks[field.Service] && !ch.Asks[field.Container] {
		return
	}
	c.Context(asm.R1)
	call(sender.Cgroup)
	if ch.Asks[field.Service] {
		store(field.Service)
	}
	if ch.Asks[field.Container] {
		c.Emit(asm.RSh.Imm(asm.R0, 8))
		store(field.Container)
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
	return errors.Join(route.Emit(c.Builder, c.ContextParam(), c.Target.Hook.OfSKB()),
		sender.Emit(c.Builder, c.ContextParam()))
}
