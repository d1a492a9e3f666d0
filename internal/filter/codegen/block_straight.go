package codegen

import (
	"github.com/cilium/ebpf/asm"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/field"
)

// rule emits one rule: its questions, then what it does.
func (c *compiler) rule(in *scope, r *plan.Rule) {
	next := c.Fresh("next")
	for _, q := range r.Questions {
		if q.Lookup == nil {
			c.question(in, q, next)
		} else {
			c.measured(q.Lookup, func() { c.question(in, q, next) })
		}
	}
	c.emitExtras(r.Rule, next)
	for _, do := range r.Does {
		c.measured(do, func() { c.do(in, r.Rule, do) })
	}
	if in.within {
		c.noteMatch(r.Slot)
	}
	c.Label(next)
}

// do emits what a rule does to a packet that has met all of its questions.
func (c *compiler) do(in *scope, r *ir.Rule, do plan.Block) {
	switch do := do.(type) {
	case *plan.Effect:
		c.effect(in, r, do.Effect)
	case *plan.Verdict:
		c.answer(c.response(r))
	}
}

// answer decides the packet, in the main function or in one of rules.
func (c *compiler) answer(r plan.Response) {
	if c.InFunction {
		c.Emit(asm.Mov.Imm32(asm.R0, int32(r.Word())), asm.Return())
	} else {
		c.decide(r)
	}
}

// question emits one question; it falls through where the answer is yes.
func (c *compiler) question(in *scope, q *plan.Question, no string) {
	switch q.Field.Info().Compare {
	case field.ByPrefix:
		c.address(in, q, no)
	case field.ByPair:
		c.endpoint(in, q, no)
	case field.ByMask:
		c.Flags(q.Cond, no)
	case field.ByRange:
		c.Number(q, no)
	default:
		panic(env.Unknown(q.Field))
	}
}
