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
	if no := a.Info().NoOut; no != nil {
		r.c.Errorf(s.Pos, no.Instead, "%s", no.Why)
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
