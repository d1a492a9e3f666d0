package codegen

import (
	"slices"

	"levee/internal/filter/codegen/env"
	"levee/internal/filter/ir"
	"levee/internal/filter/plan"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
)

// extra is a question that a rule asks of the packet itself, or that the language does not have. It
// stands behind the others and before what the rule does.
type extra struct {
	looks bool // at the packet: it asks for the context
	asks  bool // it may end the rule
	size  int  // instructions, at most
	// emit falls through where the rule goes on, and goes to no where the rule ends. R0 to R5 are
	// free. R6 to R9 keep their values.
	emit func(c *compiler, no string)
}

// extension adds matches and actions to a program that the language does not have.
type extension struct {
	extras  func(r *ir.Rule) []extra  // those of a rule
	effects map[action.Action]*effect // of kinds from action.Foreign on
	emitted func(b plan.Block, n int) // is told each block and how many instructions it took
	end     func(c *compiler)         // emits what becomes of effects; R6 to R9 keep their values
}

// of gives the extra questions of a rule.
func (x *extension) of(r *ir.Rule) (all []extra) {
	for i := range r.Conds {
		switch q := &r.Conds[i]; {
		case q.Inner != nil:
			all = append(all, matchWithin(q))
		case q.Field == field.Stream:
			all = append(all, looksAt(q, (*env.Code).InStream))
		case q.Pattern != nil:
			all = append(all, looksAt(q, (*env.Code).Contains))
		case plan.AsksMessage(q):
			all = append(all, inMessage(q))
		case plan.InPacket(q):
			all = append(all, looksAt(q, (*env.Code).Payload))
		}
	}
	if x.extras == nil {
		return all
	}
	return append(all, x.extras(r)...)
}

// looksAt returns a question of the packet itself.
func looksAt(q *ir.Cond, ask func(c *env.Code, q *ir.Cond, no string)) extra {
	return extra{looks: true, asks: true, emit: func(c *compiler, no string) { ask(c.Code, q, no) }}
}

// looks reports whether a rule looks at the packet.
func (x *extension) looks(rules []ir.Rule) bool {
	if x.anyEffect(rules, func(e *effect) bool { return e.looks }) {
		return true
	}
	for i := range rules {
		if slices.ContainsFunc(x.of(&rules[i]), func(q extra) bool { return q.looks }) {
			return true
		}
	}
	return false
}

func asks(q extra) bool { return q.asks }

// emitExtras emits the extra questions of a rule.
func (c *compiler) emitExtras(r *ir.Rule, no string) {
	for _, q := range c.extension.of(r) {
		q.emit(c, no)
	}
}

// extraRecords appends the records of the extra questions of a rule of bytecode: each is an arm
// that the interpreter calls.
func (c *compiler) extraRecords(at plan.ExtraKey, r *ir.Rule, out []record) []record {
	first := c.Plan.Interpreter.Extras[at]
	for i := range c.extension.of(r) {
		out = append(out, c.armRecord(first+i, false))
	}
	return out
}

// planned returns what the planner has to know.
func (x *extension) planned() plan.Extension {
	out := plan.Extension{Effects: map[action.Action]int{}}
	for k, e := range x.effects {
		out.Effects[k] = e.size
	}
	if x.extras != nil {
		out.Asks = func(r *ir.Rule) (all []plan.Extra) {
			for _, q := range x.extras(r) {
				all = append(all, plan.Extra{Instructions: q.size, Asks: q.asks})
			}
			return all
		}
	}
	return out
}
