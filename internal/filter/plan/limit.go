package plan

import (
	"fmt"

	"levee/internal/filter/ir"
	"levee/internal/lang/policy"
)

// Limit is a limit that packets may come to. It is one function, whatever the number of chains.
type Limit struct {
	*policy.Limit
	Rule *policy.Rule
	Slot int    // of the rule
	Map  string // with its memory
}

// findLimits lists the limits that packets may come to.
func (p *planner) findLimits() {
	reached := map[*policy.Limit]bool{}
	for _, rules := range p.Program.Lists {
		for i := range rules {
			if l := LimitOf(&rules[i]); l != nil {
				reached[l] = true
			}
		}
	}
	for i, r := range p.Program.Policy.Rules {
		if r.Limit != nil && reached[r.Limit] {
			p.Limits = append(p.Limits, Limit{
				Limit: r.Limit, Rule: r, Slot: p.Program.Policy.RuleSlot(i),
				Map: fmt.Sprintf("limit_%d", len(p.Limits)),
			})
		}
	}
}

// LimitOf is the limit that a rule is, nil if it is none.
func LimitOf(r *ir.Rule) *policy.Limit {
	for _, e := range r.Action.Effects {
		if e.Limit != nil {
			return e.Limit
		}
	}
	return nil
}
