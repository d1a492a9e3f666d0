package codegen

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/greylist"
	"levee/internal/filter/ir"
	"levee/internal/filter/limit"
	"levee/internal/filter/plan"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

// greylist emits the effect of a greylist: it hashes the packet's client with the rule's number,
// and the function says whether the packet goes on. The number changes the tag, and not the line.
func (c *compiler) greylist(in *scope, r *ir.Rule, e ir.Effect) {
	i := slices.IndexFunc(c.Plan.Greylists,
		func(g plan.Greylist) bool { return g.Slot == r.Slot })
	g, on := &c.Plan.Greylists[i], c.Fresh("comes_again")
	limit.Hash(c.Builder, greylist.Map, 0, in.family == ir.IPv6, c.pieces(in, &policy.FlowKey))
	c.Emit(
		asm.LoadImm(asm.R1, int64(uint64(g.Salt())*ofSalt>>greylist.LineBits), asm.DWord),
		asm.Xor.Reg(asm.R1, asm.R0),
		asm.Mov.Imm(asm.R2, int32(g.Meter)),
		asm.LoadImm(asm.R3, int64(e.Value), asm.DWord),
		asm.Mov.Imm(asm.R4, greylist.Window(g.Greylist)),
		asm.Call.Label(greylist.Label),
		asm.JEq.Imm(asm.R0, greylist.GoesOn, on),
	)
	c.answer(plan.Response{Slot: r.Slot, Verdict: ir.Drop})
	c.Label(on)
}

// ofSalt spreads the number of a rule over the bits of a hash: 2^64 by the golden ratio (Knuth,
// The Art of Computer Programming, volume 3, section 6.4).
const ofSalt = 0x9e3779b97f4a7c15

// near is the number of bytes of a limit's memory that stay close to a core in a flood. A program
// does not wait for a line of so few.
const near = 1<<20 + limit.Head

// touchStranger emits a load of the line that the packet's client has in the memory of greylists,
// in front of a limit that waits for a line of its own: the CPU waits for both at once. What is in
// the line does not matter.
func (c *compiler) touchStranger(in *scope) {
	limit.Hash(c.Builder, greylist.Map, 0, in.family == ir.IPv6, c.pieces(in, &policy.FlowKey))
	greylist.Touch(c.Builder, c.Plan.State.Strangers)
}

func (c *compiler) isGreylist(r *plan.Rule) bool {
	return r.Rule.Action.Has(action.Greylist)
}
