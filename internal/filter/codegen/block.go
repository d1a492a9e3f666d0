package codegen

import (
	"slices"

	"levee/internal/filter/ir"
)

// block is code of a rule's own, behind the rule's questions and before what the rule does.
type block struct {
	looks   bool // at the packet: it asks for the context
	effects bool // it leaves effects in the environment
	asks    bool // it may end the rule
	// emit falls through where the rule goes on, and goes to no where the rule ends. R0 to R5 are
	// free. R6 to R9 keep their values.
	emit func(c *compiler, no string)
}

// extension is what a program has beside the matches and actions of the language.
type extension struct {
	blocks func(r *ir.Rule) []block // those of a rule
	end    func(c *compiler)        // emits what becomes of effects; R6 to R9 keep their values
}

// of gives the blocks of a rule.
func (x *extension) of(r *ir.Rule) []block {
	if x.blocks == nil {
		return nil
	}
	return x.blocks(r)
}

// any reports whether a block of the rules is of some kind.
func (x *extension) any(rules []ir.Rule, is func(block) bool) bool {
	if x.blocks == nil {
		return false
	}
	for i := range rules {
		if slices.ContainsFunc(x.of(&rules[i]), is) {
			return true
		}
	}
	return false
}

func looks(b block) bool      { return b.looks }
func hasEffects(b block) bool { return b.effects }
func asks(b block) bool       { return b.asks }

// emitBlocks emits the blocks of a rule.
func (c *compiler) emitBlocks(r *ir.Rule, no string) {
	for _, b := range c.extension.of(r) {
		b.emit(c, no)
	}
}

// blockRecords appends the records of a rule's blocks: each is an arm that the interpreter calls.
func (c *compiler) blockRecords(r *ir.Rule, out []record) []record {
	for _, b := range c.extension.of(r) {
		arm := c.newArm(func(no string) { b.emit(c, no) })
		out = append(out, c.armRecord(arm, false))
	}
	return out
}
