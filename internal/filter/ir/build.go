package ir

import (
	"cmp"
	"slices"

	"levee/internal/lang/policy"
)

// Pass names, in the order they run. Each can be left out in tests: a Program without it decides
// the same, only slower.
const (
	PassCovered = "covered" // drop rules that an earlier deciding rule covers
	PassOrder   = "order"   // ask the cheapest question first
)

// Build lowers a policy. skip names passes to leave out. Classes with the same rules share the
// memory of their lists.
func Build(p *policy.Policy, skip ...string) *Program { return BuildWith(p, nil, skip...) }

// BuildWith is Build with effects that the language does not have.
func BuildWith(p *policy.Policy, x Extension, skip ...string) *Program {
	prog := &Program{Policy: p}
	trace := newReach(p)
	for _, l := range lower(p, trace, x, !slices.Contains(skip, PassOrder)) {
		trace.matchable(l.rules)
		if !slices.Contains(skip, PassCovered) {
			l.rules = uncovered(l.rules, trace)
		}
		trace.alive(l)
		for _, c := range l.classes {
			prog.Lists[c.Index()] = l.rules
		}
	}
	prog.Inners = lowerInners(p, trace.work)
	prog.Malformed = malformed(p, x)
	prog.Findings = append(Taken(prog), trace.findings()...) // of many, the first are shown
	prog.Findings = append(prog.Findings, trace.inVain(prog)...)
	prog.Findings = append(prog.Findings, neverTold(p)...)
	if out := p.Leaving(); out != nil {
		prog.Out = BuildWith(out, x, skip...)
		prog.Findings = append(prog.Findings, prog.Out.Findings...)
		prog.Findings = append(prog.Findings, asksCut(prog.Out)...)
	}
	return prog
}

// malformed lists what decides a malformed frame besides the built-in drop.
func malformed(p *policy.Policy, x Extension) []Rule {
	var out []Rule
	for i, r := range p.Rules {
		if r.Malformed {
			does := x.of(r)
			out = append(out, Rule{Slot: p.RuleSlot(i), Action: does})
			if does.Decides() {
				break
			}
		}
	}
	return out
}

// order sorts conditions by what they cost; conditions have no side effects, so any order gives the
// same answer. One of a field that the table says nothing of may need those in front of it.
func order(conds []Cond) {
	if slices.ContainsFunc(conds, func(q Cond) bool { return !lawsOf[q.Field].Reorder }) {
		return
	}
	slices.SortStableFunc(conds, func(a, b Cond) int { return cmp.Compare(rank(&a), rank(&b)) })
}

// rank orders a condition: compares by their number, table look-ups behind them, the growing
// dynamic sets last.
func rank(c *Cond) int {
	switch {
	case c.Dynamic():
		return 1000
	case c.Prefixes != nil:
		return min(2*len(c.Prefixes), 500)
	case c.Pairs != nil:
		return min(3*len(c.Pairs), 600)
	case c.Mask != 0:
		return 1
	}
	return min(len(c.Ranges), 100)
}
