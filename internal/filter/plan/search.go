package plan

import (
	"fmt"

	"levee/internal/lang/policy"
)

// Search is a search of payloads that rules ask for. It is two functions and a table, whatever the
// number of rules and chains.
type Search struct {
	*policy.Pattern
	Table *Table
}

// findSearches lists the searches that packets may come to.
func (p *planner) findSearches() {
	known := map[*policy.Pattern]bool{}
	note := func(q *policy.Pattern) {
		if q == nil || known[q] {
			return
		}
		known[q] = true
		m := q.Machine
		p.Searches = append(p.Searches, &Search{q, &Table{
			For:  "payload contains " + q.Text,
			Kind: fmt.Sprintf("automaton of %d states", m.States),
			Why:  fmt.Sprintf("one load a byte; %d bytes a state", m.Stride()), Bytes: len(m.Table),
			States: m.Table,
		}})
	}
	for _, rules := range p.Program.Lists {
		for i := range rules {
			for k := range rules[i].Conds {
				note(rules[i].Conds[k].Pattern)
			}
		}
	}
	for _, l := range p.Program.Inners {
		for i := range l.Rules {
			for k := range l.Rules[i].Conds {
				note(l.Rules[i].Conds[k].Pattern)
			}
		}
	}
}

// SearchOf is the number of a search.
func (p *Plan) SearchOf(q *policy.Pattern) int {
	for i, s := range p.Searches {
		if s.Pattern == q {
			return i
		}
	}
	panic("a search of payloads that no rule asks for")
}
