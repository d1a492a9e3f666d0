package resolve

import (
	"time"

	"levee/internal/lang/ast"
	"levee/internal/lang/policy"
	"levee/internal/lang/scope"
)

// maxGreylists is the largest number of greylists that a policy may have.
const maxGreylists = 16

// greylist resolves what stands behind the match of a greylist.
func (r *resolver) greylist(s *ast.Rule, rule *policy.Rule) {
	g := &policy.Greylist{}
	rule.Greylist = g
	if r.greylists++; r.greylists == maxGreylists+1 {
		r.c.Errorf(s.Pos, "put what comes again alike into one rule.",
			"a policy has at most %d greylists", maxGreylists)
	}
	after, first := r.moment(s.After)
	within, last := r.moment(s.Within)
	if first && last && within <= after {
		r.c.Errorf(s.Within.Pos, "write first the shorter time: after 100ms within 10s.",
			"nobody comes again after %s and within %s", s.After.Text, s.Within.Text)
	}
	g.After, g.Within, g.Above = after, within, r.above(s)
}

// moment resolves a time of a greylist.
func (r *resolver) moment(w *ast.Word) (time.Duration, bool) {
	d, p := policy.GreylistTime(w.Text)
	r.problem(w.Pos, p)
	return d, !p.Found()
}

// flowTerms are terms that hold for packets that have ports, which tell clients apart. The rule
// matches no other.
func (r *resolver) flowTerms(s *ast.Rule, all []resolvedTerm) []resolvedTerm {
	so := scope.Everything
	for i := range all {
		so = so.With(r.scopeOf(&all[i].term))
	}
	all, ok := present(policy.FlowKey.Fields, &so, all)
	if !ok {
		r.c.Errorf(s.Pos, "greylist packets that have ports, as those of TCP and UDP do.",
			"no packet that the rule matches has ports, which tell clients apart")
	}
	return all
}
