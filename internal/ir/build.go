package ir

import (
	"cmp"
	"slices"

	"levee/internal/policy"
)

// Pass names, in the order they run. Each can be left out in tests: a Program without it decides
// the same, only slower.
const (
	PassShadow = "shadow" // drop rules that an earlier deciding rule covers
	PassOrder  = "order"  // ask the cheapest question first
)

// Build lowers a policy. skip names passes to leave out.
func Build(p *policy.Policy, skip ...string) *Program {
	prog := &Program{Policy: p}
	trace := newReach(p)
	known := newConditions(p.DefaultSlot() + 1)
	for _, c := range Classes() {
		rules := lower(p, c, trace.memo)
		rules = cut(rules)
		trace.matchable(rules)
		if !slices.Contains(skip, PassShadow) {
			rules = shadow(rules, trace)
		}
		trace.alive(rules)
		if !slices.Contains(skip, PassOrder) {
			order(rules)
		}
		known.share(rules, c.Family)
		prog.Lists[c.Index()] = rules
	}
	prog.Malformed = malformed(p)
	prog.Findings = trace.findings()
	return prog
}

// lower lists the rules that can match in class c, in the order they are tried.
func lower(p *policy.Policy, c Class, m memo) []Rule {
	var out []Rule
	add := func(slot int, action policy.Action, match []policy.Term) {
		if conds, ok := specialise(match, c, m); ok {
			out = append(out, Rule{Slot: slot, Action: action, Conds: conds})
		}
	}
	for i, r := range p.Protect {
		add(p.ProtectSlot(i), policy.Pass, r.Match)
	}
	for i, r := range p.Rules {
		if !r.Malformed {
			add(p.RuleSlot(i), r.Action, r.Match)
		}
	}
	if p.Essential {
		for i, alternatives := range essentialTerms {
			for _, match := range alternatives {
				add(p.EssentialSlot(i), policy.Pass, match)
			}
		}
	}
	return append(out, Rule{Slot: p.DefaultSlot(), Action: p.Default.Action})
}

// malformed lists what decides a malformed frame besides the built-in drop.
func malformed(p *policy.Policy) []Rule {
	var out []Rule
	for i, r := range p.Rules {
		if r.Malformed {
			out = append(out, Rule{Slot: p.RuleSlot(i), Action: r.Action})
			if r.Action != policy.Count {
				break
			}
		}
	}
	return out
}

// cut ends the list at the first rule that decides without a question.
func cut(rules []Rule) []Rule {
	for i := range rules {
		if len(rules[i].Conds) == 0 && rules[i].Action != policy.Count {
			return rules[:i+1]
		}
	}
	return rules
}

// order sorts the conditions of each rule by what they cost; conditions have no side effects, so
// any order gives the same answer.
func order(rules []Rule) {
	for i := range rules {
		slices.SortStableFunc(rules[i].Conds, func(a, b Cond) int { return cmp.Compare(cost(&a), cost(&b)) })
	}
}

// cost ranks a condition: compares by their number, table look-ups behind them, the growing
// dynamic sets last.
func cost(c *Cond) int {
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
