package codegen

import (
	"levee/internal/filter/ir"
	"levee/internal/lang/action"
)

// effect emits an effect of a rule, where the packet has met all questions of the rule.
type effect struct {
	looks  bool // at the packet: it asks for the context
	leaves bool // something in the environment, for what follows the verdict
	size   int  // most instructions; set for kinds from action.Foreign on
	// emit falls through. R0 to R5 are free; R6 to R9 keep their values.
	// in says what they hold; it is nil of malformed frames.
	emit func(c *compiler, in *scope, r *ir.Rule, e ir.Effect)
	// record is the effect in bytecode, for kinds that may be bytecode. The list goes on behind it.
	record func(r *ir.Rule, e ir.Effect) record
}

// effectsOf has the effects of the language.
var effectsOf = map[action.Action]*effect{
	action.Count: {
		emit: func(c *compiler, _ *scope, r *ir.Rule, _ ir.Effect) { c.Count(r.Slot) },
		record: func(r *ir.Rule, _ ir.Effect) record {
			return record{uint64(opCount), uint64(r.Slot * SlotBytes)}
		},
	},
	action.Limit:    {emit: (*compiler).limit},
	action.Log:      {looks: true, emit: (*compiler).log},
	action.Cookie:   {looks: true, emit: (*compiler).cookie},
	action.Greylist: {emit: (*compiler).greylist},
	action.Track:    {emit: (*compiler).fragments},
	action.Divert:   {emit: (*compiler).divert},
	action.Redirect: {looks: true, emit: (*compiler).redirect},
}

// effect finds how effects of a kind are emitted, nil if nobody emits them.
func (x *extension) effect(k action.Action) *effect {
	if k >= action.Foreign {
		return x.effects[k]
	}
	return effectsOf[k]
}

// leaves reports whether a rule leaves something in the environment.
func (x *extension) leaves(rules []ir.Rule) bool {
	return x.anyEffect(rules, func(e *effect) bool { return e.leaves })
}

func (x *extension) anyEffect(rules []ir.Rule, is func(*effect) bool) bool {
	for i := range rules {
		for _, e := range rules[i].Action.Effects {
			if how := x.effect(e.Action); how != nil && is(how) {
				return true
			}
		}
	}
	return false
}

// emitEffects emits all effects of a rule about malformed frames, in their order.
func (c *compiler) emitEffects(r *ir.Rule) {
	for _, e := range r.Action.Effects {
		c.effect(nil, r, e)
	}
}

// has reports whether the program has an effect: a shadow has those only that nobody sees.
func (c *compiler) has(e ir.Effect) bool {
	return !c.Target.IsShadow() || e.Action.Info().May&action.MayShadow != 0
}

func (c *compiler) effect(in *scope, r *ir.Rule, e ir.Effect) {
	if !c.has(e) {
		return
	}
	how := c.extension.effect(e.Action)
	if how == nil {
		c.failed = c.errorf("a rule has effect %d, which nobody emits", e.Action)
		return
	}
	how.emit(c, in, r, e)
}

// effectRecords appends the records of a rule's effects.
func (c *compiler) effectRecords(r *ir.Rule, out []record) []record {
	for _, e := range r.Action.Effects {
		if !c.has(e) {
			continue
		}
		how := c.extension.effect(e.Action)
		if how == nil || how.record == nil {
			c.failed = c.errorf("a rule that became bytecode has effect %d, which cannot be "+
				"bytecode", e.Action)
			return out
		}
		out = append(out, how.record(r, e))
	}
	return out
}
