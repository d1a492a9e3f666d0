package resolve

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// fragmentTerms says which terms a rule cannot have that decides later fragments: these have no
// transport header.
func (r *resolver) fragmentTerms(all []resolvedTerm) {
	for i := range all {
		if t := &all[i]; t.term.Field.Info().Header.Presence().Protos != nil {
			r.c.Errorf(t.src.Pos, "write: fragments track; the rules judge the first fragment, "+
				"and the others share its fate.", "a later fragment has no %s",
				t.term.Field.Info().Name)
		}
	}
}

// laterFragments returns the term that a rule `fragments track` has besides those that are written.
func (r *resolver) laterFragments(s *ast.Rule) policy.Term {
	return policy.Term{Field: field.Fragment, Ranges: []field.Range{{Lo: 1, Hi: 1}},
		Pos: r.pos(s.Pos)}
}
