package plan

import (
	"fmt"

	"levee/internal/filter/ir"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

// maxStraight is up to how many compares rules in a row are straight code. Beyond it they become
// bytecode: a packet passes some hundred rules of instructions in the time that it takes to find
// the few that it meets there (0.2 ns a rule, docs/explanation/decisions/0015-bytecode.md), and
// bytecode costs the verifier nothing.
const maxStraight = 1000

// Straight is rules that are instructions: each asks its questions, one rule after the other.
type Straight struct {
	Node
	Rules []*Rule
	rules []ir.Rule
	bound int // of instructions
	asks  int // as maxQuestions counts them
}

func (*Straight) Kind() string { return "straight" }

func (s *Straight) Blocks() []Block {
	out := make([]Block, len(s.Rules))
	for i, r := range s.Rules {
		out[i] = r
	}
	return out
}

// Counts reports whether a rule counts and goes on.
func (s *Straight) Counts() bool {
	for _, r := range s.Rules {
		if r.Action.Has(action.Count) {
			return true
		}
	}
	return false
}

// Rule is a rule of straight code.
type Rule struct {
	Node
	*ir.Rule
	Questions []*Question
	Does      []Block // effects, then perhaps a verdict

	extra int // instructions of what an Extension asks
}

func (*Rule) Kind() string { return "rule" }

// Blocks returns the look-ups of the rule and what it does.
func (r *Rule) Blocks() []Block {
	var out []Block
	for _, q := range r.Questions {
		if q.Lookup != nil {
			out = append(out, q.Lookup)
		}
	}
	return append(out, r.Does...)
}

// straight makes straight code of rules.
func (p *planner) straight(c *Chain, rules []ir.Rule) *Straight {
	s := &Straight{rules: rules, Rules: make([]*Rule, len(rules))}
	s.What = count(len(rules), "rule")
	for i := range rules {
		r := p.rule(c, &rules[i])
		s.Rules[i] = r
		s.bound += r.Cost.Instructions
		for _, q := range r.Questions {
			s.asks += q.asks()
		}
	}
	return s
}

func (p *planner) rule(c *Chain, from *ir.Rule) *Rule {
	r := &Rule{Rule: from, extra: p.extension.size(from)}
	r.Cost.Instructions = r.extra
	if c.within {
		r.What = fmt.Sprintf("match %d", from.Slot+1)
		r.Cost.Instructions += sizeNote
	} else {
		r.What = p.nameOf(from.Slot)
	}
	for i := range from.Conds {
		if InPacket(&from.Conds[i]) {
			continue
		}
		q := p.question(c.Family(), &from.Conds[i])
		r.Questions = append(r.Questions, q)
		r.Cost.Instructions += q.Cost.Instructions
	}
	for _, e := range from.Action.Effects {
		takes := p.extension.effect(e.Action)
		r.Does = append(r.Does, &Effect{Effect: e, Slot: from.Slot, takes: takes})
		r.Cost.Instructions += takes.size
	}
	if from.Action.Decides() {
		r.Does = append(r.Does, &Verdict{Response: ResponseOf(from)})
		r.Cost.Instructions += sizeVerdict
	}
	return r
}

// ruleSize returns the instructions of a rule as straight code.
func (p *planner) ruleSize(c *Chain, r *ir.Rule) int {
	n := sizeVerdict + p.extension.size(r)
	for _, e := range r.Action.Effects {
		n += p.extension.effect(e.Action).size
	}
	for i := range r.Conds {
		if !InPacket(&r.Conds[i]) {
			n += p.sizeOf(c.Family(), &r.Conds[i])
		}
	}
	return n
}

// weight returns what rules ask, in compares: a look-up of prefixes or endpoints in a table takes
// as many instructions as some dozen of them.
func weight(rules []ir.Rule) (n int) {
	const prefixTable = 24
	for i := range rules {
		n++
		for j := range rules[i].Conds {
			q := &rules[i].Conds[j]
			switch {
			case len(q.Pairs) > 0:
				n += min(2*len(q.Pairs), tableQuestions)
			case len(q.Prefixes) > maxPrefixes:
				n += prefixTable
			default:
				n += max(1, min(maxHalving, len(q.Ranges)+len(q.Prefixes)))
			}
		}
	}
	return n
}

// split parts straight code and rule trees so that no part asks more than maxQuestions or has more
// instructions than a function may have. A rule tree is not parted.
func (p *planner) split(g *group) (parts [][]Block) {
	var part []Block
	asked, size := 0, 0
	end := func() {
		if len(part) > 0 {
			parts, part = append(parts, part), nil
		}
		asked, size = 0, sizeFunction
	}
	end()
	for _, b := range g.do {
		s, ok := b.(*Straight)
		if !ok {
			if asked+tableQuestions > maxQuestions || size+sizeTree > maxFunction {
				end()
			}
			part = append(part, b)
			asked, size = asked+tableQuestions, size+sizeTree
			continue
		}
		first := 0
		cut := func(to int) {
			if to > first {
				part = append(part, p.straight(g.chain, s.rules[first:to]))
			}
			first = to
		}
		for i, r := range s.Rules {
			asks, n := 0, r.Cost.Instructions
			for _, q := range r.Questions {
				asks += q.asks()
			}
			if (asked+asks > maxQuestions || size+n > maxFunction) && (len(part) > 0 || i > first) {
				cut(i)
				end()
			}
			asked, size = asked+asks, size+n
		}
		cut(len(s.Rules))
	}
	end()
	return parts
}

// count returns a number of things in English.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%s %ss", thousands(n), thing)
}

// thousands returns a number with commas.
func thousands(n int) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// nameOf returns the place of a rule in the policy, and its label.
func (p *Plan) nameOf(slot int) string {
	s := p.Slots[slot]
	name := p.Program.Policy.Where(s)
	if label := p.Program.Policy.LabelOf(s); s.Reason == policy.ByRule && label != "" {
		name += fmt.Sprintf(" %q", label)
	}
	return name
}
