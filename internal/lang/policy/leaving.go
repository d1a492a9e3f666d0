package policy

import (
	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/field"
)

// Out is what a policy says of packets that leave by the interface. It shares the sets of the
// policy, and `essential off`, with what arrives.
type Out struct {
	Protect []*Rule
	Rules   []*Rule
	Inners  []*Inner
	// Default is pass where the policy does not say; then it has no place.
	Default Default
}

// Leaving is what the policy says of packets that leave, as a policy of its own, whose slots come
// behind those of this one; nil where it says nothing. It is made anew each time: who changes a
// copy of a policy gets what leaves of the copy.
func (p *Policy) Leaving() *Policy {
	if p.Out == nil {
		return nil
	}
	return &Policy{
		File: p.File, Interfaces: p.Interfaces, Sets: p.Sets, Protect: p.Out.Protect,
		Rules: p.Out.Rules, Inners: p.Out.Inners, NameLists: p.NameLists,
		Default: p.Out.Default, Essential: p.Essential,
		arriving: p,
	}
}

// Leaves reports whether the policy is about packets that leave.
func (p *Policy) Leaves() bool { return p.arriving != nil }

// Count is how many rules the policy has, on both sides.
func (p *Policy) Count() int {
	n := len(p.Protect) + len(p.Rules)
	if p.Out != nil {
		n += len(p.Out.Protect) + len(p.Out.Rules)
	}
	return n
}

// first is the slot of the first counter of the policy: the counters of what leaves come behind
// those of what arrives.
func (p *Policy) first() int {
	if p.arriving == nil {
		return 0
	}
	return p.arriving.DefaultSlot() + 1
}

// side is what stands before the names of what is built in.
func (p *Policy) side() string {
	if p.arriving == nil {
		return ""
	}
	return "out:"
}

// out is what the policy says of packets that leave, from the first statement on that does.
func (r *resolver) out() *Out {
	if r.pol.Out == nil {
		r.pol.Out = &Out{Default: Default{Action: action.Pass}}
	}
	return r.pol.Out
}

// outDefault resolves `out default`.
func (r *resolver) outDefault(s *ast.Default) {
	if r.once(&r.outDef, s, "out default") {
		r.out().Default = Default{Action: named(s.Action.Text), Pos: r.pos(s.Pos)}
	}
}

// leaves checks that a rule may be about what leaves.
func (r *resolver) leaves(s *ast.Rule, a action.Action) {
	r.out()
	if r.outDef != nil {
		r.c.Errorf(s.Pos, "move it above that line.", "this rule stands after \"out default\" in "+
			"line %d, which ends the rules for what leaves", r.outDef.Place().Line)
	}
	switch a {
	case action.Cookie:
		r.c.Errorf(s.Pos, "write it without out: it answers those who come.",
			"a cookie answers SYNs that arrive, and none that leave")
	case action.Divert:
		r.c.Errorf(s.Pos, "write it without out.",
			"divert leads connections that arrive to the trap, and none that leave")
	case action.Track:
		r.c.Errorf(s.Pos, "ask for the fragments that leave: out drop fragments.",
			"fragments are followed where they arrive; this machine sends whole datagrams")
	}
	for i := range s.Terms {
		switch t, info := &s.Terms[i], s.Terms[i].Field.Info(); {
		case info.Kernel == field.Leaving:
		case info.Remembered:
			r.c.Errorf(t.Pos, "ask for addresses and ports.",
				"%q is known of packets that arrive, and of none that leaves", t.Words())
		}
	}
}
