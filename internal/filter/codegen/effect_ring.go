package codegen

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/filter/ring"
	"levee/internal/lang/action"
)

// redirect emits what hands a packet to who reads a ring. Where nobody does, it falls through to
// the verdict of the rule.
func (c *compiler) redirect(_ *scope, r *ir.Rule, e ir.Effect) {
	if c.Target.IsShadow() || c.Target.Hook != plan.XDP {
		return // it hands nothing over: who attaches sees to it that no other program judges
	}
	bypass, i := c.Fresh("bypass"), slices.Index(c.Plan.State.Rings, e.Ring)
	c.Context(asm.R1)
	c.Emit(asm.Call.Label(ring.Label(i)), asm.JEq.Imm(asm.R0, 0, bypass))
	c.answer(plan.Response{Slot: r.Slot, Verdict: ir.Redirect})
	c.Label(bypass)
}

// response returns what a rule that decides makes of a packet: in a shadow, which hands nothing
// over, what it would if somebody read the ring.
func (c *compiler) response(r *ir.Rule) plan.Response {
	out := plan.ResponseOf(r)
	if c.Target.IsShadow() && c.Target.Hook == plan.XDP && r.Action.Has(action.Redirect) {
		out.Verdict = ir.Redirect
	}
	return out
}
