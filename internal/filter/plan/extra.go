package plan

import (
	"levee/internal/filter/ir"
	"levee/internal/filter/price"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
)

// Extension adds to rules questions about the packet itself, and effects that the language does not
// have.
type Extension struct {
	Asks func(r *ir.Rule) []Extra // further questions of a rule, nil for none of any
	// instructions of an effect, at most, of kinds from action.Foreign on
	Effects map[action.Action]int
}

// Extra is a question that a rule asks of the packet itself. It stands behind those for fields of
// the decoded packet and before what the rule does.
type Extra struct {
	Instructions int  // at most
	Asks         bool // it may end the rule
}

// of lists the Extra of a rule: its conditions and effects that are no plain comparison.
func (x *Extension) of(r *ir.Rule) (all []Extra) {
	for i := range r.Conds {
		switch c := &r.Conds[i]; {
		case c.Inner != nil:
			all = append(all, Extra{sizeInner, true})
		case c.Pattern != nil:
			all = append(all, Extra{sizeAskSearch, true})
		case AsksMessage(c):
			all = append(all, Extra{sizeMessage + 3*len(c.Ranges), true})
		case InPacket(c):
			all = append(all, Extra{sizeBytes, true})
		}
	}
	return append(all, x.further(r)...)
}

// further returns what a rule asks that the language does not have.
func (x *Extension) further(r *ir.Rule) []Extra {
	if x.Asks == nil {
		return nil
	}
	return x.Asks(r)
}

// InPacket reports whether a condition is an Extra: it reads the packet's bytes, or the facts that
// were found about a packet within.
func InPacket(c *ir.Cond) bool {
	by := c.Field.Info().Compare
	return by == field.ByBytes || by == field.ByPattern || by == field.ByInner || AsksMessage(c)
}

// AsksMessage reports whether a condition is on the DNS message in a packet.
func AsksMessage(c *ir.Cond) bool { return c.Field.OfMessage() }

// asks reports whether one of them may end the rule.
func (x *Extension) asks(r *ir.Rule) bool {
	for _, e := range x.of(r) {
		if e.Asks {
			return true
		}
	}
	return false
}

// size returns their instructions.
func (x *Extension) size(r *ir.Rule) (n int) {
	for _, e := range x.of(r) {
		n += e.Instructions
	}
	return n
}

// effect returns the instructions and time of an effect in straight code. An unknown effect counts
// as the largest one.
func (x *Extension) effect(k action.Action) effectCost {
	if c, ok := effectCosts[k]; ok {
		return c
	}
	if n, ok := x.Effects[k]; ok {
		return effectCost{size: n, time: price.Wait(price.Foreign)}
	}
	return effectCost{size: sizeForeign, time: price.Wait(price.Foreign)}
}
