package resolve

import (
	"fmt"
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// rule resolves the statement of a rule.
func (r *resolver) rule(s *ast.Rule) {
	r.rules++
	errors := r.c.Errors()
	if s.Out {
		r.leaves(s, named(s.Action))
	} else if r.def != nil {
		r.c.Errorf(s.Pos, fmt.Sprintf("move it above line %d.", r.def.Place().Line),
			"this rule stands after \"default\", which ends the rules")
	}
	rule := &policy.Rule{Action: named(s.Action), Out: s.Out, Pos: r.pos(s.Pos)}
	r.inners = &r.pol.Inners
	if s.Out {
		r.inners = &r.out().Inners
	} else {
		r.arrives(s)
	}
	r.name(rule, s)
	if s.Limit != nil {
		r.limit(s.Limit, rule)
		match := *s
		match.Limit, match.Label = nil, nil
		rule.Limit.Alike = match.String()
	}
	if rule.Action == action.Log {
		r.sample(s, rule)
	}
	if rule.Action == action.Cookie {
		r.cookie(s, rule)
	}
	if rule.Action == action.Greylist {
		r.greylist(s, rule)
	}
	if s.Ring != nil {
		r.ring(s, rule)
	}
	r.match(s, rule)
	if rule.Action == action.Track {
		rule.Match = append(rule.Match, r.laterFragments(s))
	}
	rule.Match = r.queries(s, rule.Match)
	if r.c.Errors() == errors {
		r.resolved = append(r.resolved, rule)
	}
}

// name gives a rule its texts. Its ID is that of the first of its text: see identify.
func (r *resolver) name(rule *policy.Rule, s *ast.Rule) {
	const before, behind = "text:", "#1"
	r.text = append(s.AppendText(append(r.text[:0], before...)), behind...)
	if s.Label == nil {
		rule.ID = string(r.text)
		rule.Text = rule.ID[len(before) : len(rule.ID)-len(behind)]
		return
	}
	rule.Text = string(r.text[len(before) : len(r.text)-len(behind)])
	rule.Label = strings.Clone(s.Label.Text) // the source may go
	r.problem(s.Label.Pos, literal.CheckLabel(s.Label.Text))
	r.labelled = append(r.labelled, labelled{rule.Label, s.Label.Pos, rule.Pos.Line, r.rules - 1})
}

// maxLogs is the largest number of logs that a policy may have.
const maxLogs = 64

// sample reads how many packets a log tells of.
func (r *resolver) sample(s *ast.Rule, rule *policy.Rule) {
	rule.Sample = 1
	if r.logs++; r.logs == maxLogs+1 {
		r.c.Errorf(s.Pos, "log what is alike with one rule.", "a policy has at most %d logs",
			maxLogs)
	}
	if s.Sample == nil {
		return
	}
	of, p := literal.Part(s.Sample.Text)
	rule.Sample = of
	r.problem(s.Sample.Pos, p)
}
