package resolve

import (
	"slices"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// ring resolves where a rule redirects packets to.
func (r *resolver) ring(s *ast.Rule, rule *policy.Rule) {
	r.problem(s.Ring.Pos, literal.CheckRingName(s.Ring.Text))
	rule.Ring = &policy.Ring{Name: strings.Clone(s.Ring.Text), Else: named(s.Else.Text)}
	if slices.Contains(r.rings, rule.Ring.Name) {
		return
	}
	if r.rings = append(r.rings, rule.Ring.Name); len(r.rings) == policy.MaxRings+1 {
		r.c.Errorf(s.Ring.Pos, "one reader tells packets apart itself: redirect more to one ring.",
			"a policy has at most %d rings", policy.MaxRings)
	}
}
