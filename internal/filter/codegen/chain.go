package codegen

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/field"
)

// scope says which fields the registers hold where blocks are emitted.
type scope struct {
	family ir.Family
	within bool        // the packet is one within a tunnel
	holds  plan.Fields // those with a register of their own are there; all are in struct key
	// strangers says that a rule behind this one, of the same block, is a greylist.
	strangers bool
}

// loadRegs fills the registers that blocks expect from struct key.
func (c *compiler) loadRegs(fields *plan.Fields) {
	for f, uses := range fields {
		if reg, hot := env.HotRegister(field.Field(f)); uses && hot {
			at, n := c.FieldAt(field.Field(f))
			c.Field(reg, at, env.SizeOf(n))
		}
	}
}

// chainLabel returns where the blocks of a chain begin, which find fields in the registers.
func chainLabel(ch *plan.Chain) string { return "chain_" + string(ch.ID) }

// enterLabel returns where a packet comes to a chain whose fields are in struct key only.
func enterLabel(ch *plan.Chain) string { return "enter_" + chainLabel(ch) }

// enterFromKey returns the entry of the slow path to the rules of a chain.
func (c *compiler) enterFromKey(ch *plan.Chain) {
	c.Label(enterLabel(ch))
	c.loadRegs(&ch.Registers)
	c.Emit(asm.Ja.Label(chainLabel(ch)))
}

// measured emits a block and, for tests, says how many instructions that took.
func (c *compiler) measured(b plan.Block, emit func()) {
	if c.extension.emitted == nil {
		emit()
		return
	}
	first := c.Len()
	emit()
	c.extension.emitted(b, c.Since(first))
}

// emitChain emits the blocks of a chain; the last decides.
func (c *compiler) emitChain(ch *plan.Chain) {
	c.Label(chainLabel(ch))
	in := &scope{family: ch.Family(), holds: ch.Registers}
	if ch.Tracked {
		c.LookUpFlow(ch)
	}
	for _, a := range ch.Answers() {
		at, _ := c.FieldAt(a.Field)
		c.CallSource(ch.Family() == ir.IPv6, a.Label)
		c.Emit(asm.StoreMem(asm.R10, at, asm.R0, asm.Byte))
	}
	c.noMessage(ch)
	if ch.Asks[field.ProvenFlow] {
		c.LookUpEcho(ch)
	}
	c.Tell(ch)
	if ch.Asks[field.Stream] {
		c.HashStream(ch)
	}
	inMain := false
	for i, b := range ch.Do {
		switch b := b.(type) {
		case *plan.Function:
			c.callFunction(b)
		case *plan.Bytecode:
			if plan.AsksMessages(b.Rules) { // not below the interpreter: the stack is too small
				c.facts()
			}
			c.measured(b, func() { c.callBytecode(b) })
		default:
			if !inMain {
				inMain = true
				c.BeginCounts(rulesOf(ch.Do))
			}
			c.block(in, b)
			continue
		}
		if i < len(ch.Do)-1 {
			c.Emit(asm.JNE.Imm(asm.R0, 0, "decided"))
		} else {
			c.Emit(asm.Ja.Label("decided"))
		}
	}
	// The last rule has no conditions: nothing jumps behind it.
	c.End()
}

// rulesOf returns the rules of straight code among blocks.
func rulesOf(blocks []plan.Block) (rules []ir.Rule) {
	for _, b := range blocks {
		if s, ok := b.(*plan.Straight); ok {
			for _, r := range s.Rules {
				rules = append(rules, *r.Rule)
			}
		}
	}
	return rules
}

// block emits a block where it stands. It falls through where no rule decides.
func (c *compiler) block(in *scope, b plan.Block) {
	c.measured(b, func() {
		switch b := b.(type) {
		case *plan.Straight:
			for i, r := range b.Rules {
				in.strangers = slices.ContainsFunc(b.Rules[i+1:], c.isGreylist)
				c.measured(r, func() { c.rule(in, r) })
			}
		case *plan.RuleTree:
			c.ruleTree(in, b)
		}
	})
}

// giveEnv puts the address of the environment where functions take it.
func (c *compiler) giveEnv() {
	c.Emit(asm.Mov.Reg(asm.R1, asm.R10), asm.Add.Imm(asm.R1, int32(env.At)))
}
