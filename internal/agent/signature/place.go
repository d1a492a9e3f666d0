package signature

import (
	"fmt"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
)

// forget returns a policy without the rules that remember packets: limits, cookies and what follows
// fragments. Of a sample they do not see all packets, nor the times between them.
func forget(p *policy.Policy) (*policy.Policy, bool) {
	q := *p
	q.Rules = nil
	for _, r := range p.Rules {
		if !r.Action.DecidesSome() {
			q.Rules = append(q.Rules, r)
		}
	}
	return &q, len(q.Rules) != len(p.Rules)
}

// judge judges all packets of a sample by a policy, in which rules are chosen.
func (w *work) judge(p *policy.Policy, rules []chosen, s *Sample,
	tell func(n, slot int, act action.Action)) {
	newer := func(r *policy.Rule) bool {
		return w.Newer != nil && w.Newer(r) ||
			slices.ContainsFunc(rules, func(c chosen) bool { return c.resolved == r })
	}
	s.judge(s.all(), p, newer, func(n int, _ []byte, slot int, act action.Action) {
		tell(n, slot, act)
	})
}

// inserted returns the policy with rules in it, and where in its list each of them stands.
func (w *work) inserted(rules []chosen, tail bool) (*policy.Policy, []int) {
	q := *w.base
	q.Rules = nil
	at := make([]int, len(rules))
	for i := 0; i <= len(w.base.Rules); i++ {
		for k := range rules {
			if rules[k].at == i {
				at[k] = len(q.Rules)
				q.Rules = append(q.Rules, rules[k].resolved)
			}
		}
		if i < len(w.base.Rules) {
			q.Rules = append(q.Rules, w.base.Rules[i])
		}
	}
	if tail {
		p, _ := resolve.Parse("tail", []byte(passFragments+"\ndefault pass\n"), nil)
		q.Rules = append(q.Rules, p.Rules...)
	}
	return &q, at
}

// passFragments is the rule by which a policy means to pass fragments by its default.
const passFragments = "pass fragments"

// accept puts a rule where it should stand, if the samples as a whole and `levee check` have
// nothing against it.
func (w *work) accept(r *rule, s *search) bool {
	resolved := ruleOf(r.text(), len(w.chosen))
	if resolved == nil {
		return false
	}
	c := chosen{rule: r, resolved: resolved, covers: full(s.n)}
	for _, t := range r.terms {
		c.covers = and(c.covers, t.holds[0])
	}
	c.at = w.place(c)
	rules := append(slices.Clone(w.chosen), c)
	tail, clean := w.clean(rules)
	if !clean {
		return false
	}
	dropped, harmed := w.measure(rules)
	sum := 0
	for _, n := range harmed {
		sum += n
	}
	if float64(sum) > w.Collateral*float64(w.good.Len()) ||
		float64(dropped[len(rules)-1]) < 0.8*w.Least*float64(len(w.targets)) {
		return false
	}
	w.chosen, w.tail = rules, tail
	return true
}

// ruleOf gives a rule its meaning and its layout; nil where the language refuses it.
func ruleOf(text string, n int) *policy.Rule {
	p, _ := resolve.Parse("proposal", []byte(text+"\ndefault pass\n"), nil)
	if p == nil || len(p.Rules) != 1 {
		return nil
	}
	r := p.Rules[0]
	r.Pos.Line = int32(syntax.MaxSource + n) // no line of any policy
	return r
}

// place returns where a rule stands: in front of the first rule of the policy that passes some of
// what it is to drop. Rules in front of that go on to decide first.
func (w *work) place(c chosen) int {
	alone := []chosen{{resolved: c.resolved}}
	front, _ := w.inserted(alone, false)
	mine := front.RuleSlot(0)
	by, n := map[int]int{}, 0
	target := 0
	w.judge(front, alone, w.flood, func(k, slot int, _ action.Action) {
		if target < len(w.targets) && w.targets[target] == k {
			target++
			if slot == mine {
				by[w.slots[k]]++
				n++
			}
		}
	})
	for i := range w.base.Rules {
		if count := by[w.base.RuleSlot(i)]; count > 0 && float64(count) >= 0.01*float64(n) {
			return i
		}
	}
	return len(w.base.Rules)
}

// measure judges both samples by the policy with rules, and counts what each drops.
func (w *work) measure(rules []chosen) (dropped, harmed []int) {
	p, at := w.inserted(rules, false)
	of := map[int]int{}
	for k, i := range at {
		of[p.RuleSlot(i)] = k
	}
	count := func(s *Sample, passed []int) []int {
		out := make([]int, len(rules))
		next := 0
		w.judge(p, rules, s, func(n, slot int, _ action.Action) {
			if passed != nil {
				if next >= len(passed) || passed[next] != n {
					return
				}
				next++
			}
			if k, mine := of[slot]; mine {
				out[k]++
			}
		})
		return out
	}
	return count(w.flood, w.targets), count(w.good, nil)
}

// findings are warnings of `levee check`.
type findings map[string]bool

func findingsOf(p *policy.Policy, known findings) findings {
	out := findings{}
	for _, f := range ir.Build(p).Findings {
		if text := fmt.Sprint(f.Pos, f.Message); !known[text] {
			out[text] = true
		}
	}
	return out
}

// clean says whether `levee check` warns of no more than before, and whether it takes a rule about
// fragments in front of the default for that.
func (w *work) clean(rules []chosen) (tail, clean bool) {
	p, _ := w.inserted(rules, false)
	if len(findingsOf(p, w.before)) == 0 {
		return false, true
	}
	if w.base.Default.Action != action.Pass {
		return false, false
	}
	p, _ = w.inserted(rules, true)
	return true, len(findingsOf(p, w.before)) == 0
}
