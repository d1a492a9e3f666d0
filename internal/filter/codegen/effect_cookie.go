package codegen

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/cookie"
	"levee/internal/filter/ir"
	"levee/internal/filter/names"
	"levee/internal/filter/plan"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// cookie emits the call of a cookie's function, for queries or for SYNs and the RSTs by which
// clients prove themselves. A shadow answers nobody: there these packets go on, like those of
// proven clients.
func (c *compiler) cookie(_ *scope, r *ir.Rule, e ir.Effect) {
	i := slices.IndexFunc(c.Plan.Cookies, func(k plan.Cookie) bool { return k.Slot == r.Slot })
	on, dropped := c.Fresh("no_cookie"), c.Fresh("cookie_dropped")
	of := c.Plan.Cookies[i].Rule.Cookie.Answers
	switch of {
	case action.A2SQueries:
		c.Emit(asm.Mov.Imm(asm.R4, int32(c.Plan.NumberTally())))
	case action.DNSQueries:
		c.Field(asm.R4, c.messageFacts(), asm.Word)
		c.Emit(asm.And.Imm(asm.R4, names.EDNS), asm.RSh.Imm(asm.R4, shiftOf(names.EDNS)))
	default:
		ask := c.Fresh("ask_cookie")
		at, n := c.FieldAt(field.TCPFlags)
		c.Field(asm.R0, at, env.SizeOf(n))
		c.Emit(
			asm.And.Imm(asm.R0, packet.FIN|packet.SYN|packet.RST|packet.ACK),
			asm.JEq.Imm(asm.R0, packet.RST, ask),
			asm.And.Imm(asm.R0, packet.SYN|packet.ACK), // also with FIN or RST
			asm.JNE.Imm(asm.R0, packet.SYN, on),
		)
		c.Label(ask)
	}
	c.Context(asm.R1)
	c.Emit(
		asm.Mov.Imm(asm.R2, int32(c.Plan.Cookies[i].Meter)),
		asm.Mov.Imm(asm.R3, int32(e.Value)),
		asm.Call.Label(cookie.Label(of)),
		asm.JEq.Imm(asm.R0, cookie.GoesOn, on),
		asm.JNE.Imm(asm.R0, cookie.Answered, dropped),
	)
	c.answer(plan.Response{Slot: r.Slot, Verdict: ir.Answer})
	c.Label(dropped)
	c.answer(plan.Response{Slot: r.Slot, Verdict: ir.Drop})
	c.Label(on)
}
