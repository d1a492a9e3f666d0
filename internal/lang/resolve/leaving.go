package resolve

import (
	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// out returns what the policy says of packets that leave, from the first statement on that does.
func (r *resolver) out() *policy.Out {
	r.pol.Out = r.pol.WithOut().Out
	return r.pol.Out
}

// outDefault resolves `out default`.
func (r *resolver) outDefault(s *ast.Default) {
	if r.once(&r.outDef, s, "out default") {
		r.out().Default = policy.Default{Action: named(s.Action.Text), Pos: r.pos(s.Pos)}
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
	case action.Greylist:
		r.c.Errorf(s.Pos, "write it without out: it drops strangers that come once.",
			"a greylist is about clients that arrive, and none that leave")
	case action.Divert:
		r.c.Errorf(s.Pos, "write it without out.",
			"divert leads connections that arrive to the trap, and none that leave")
	case action.Redirect:
		r.c.Errorf(s.Pos, "write it without out.",
			"a ring takes packets that arrive, in XDP, and none that leave")
	case action.Track:
		r.c.Errorf(s.Pos, "ask for the fragments that leave: out drop fragments.",
			"fragments are followed where they arrive; this machine sends whole datagrams")
	}
	for i := range s.Terms {
		switch t, info := &s.Terms[i], s.Terms[i].Field.Info(); {
		case info.Kernel == field.Leaving, t.Field == field.Flow:
		case info.Remembered:
			r.c.Errorf(t.Pos, "ask for addresses and ports.",
				"%q is known of packets that arrive, and of none that leaves", t.Words())
		}
	}
}
