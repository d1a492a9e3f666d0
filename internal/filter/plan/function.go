package plan

import (
	"slices"

	"levee/internal/filter/ir"
)

// Function is straight code and rule trees that the verifier walks by themselves, once. Chains that
// ask the same share it.
type Function struct {
	Node
	Number int
	Family ir.Family
	Rules  []ir.Rule
	Do     []Block
	Asks   Fields
	// Ends is set where a rule decides whatever comes to it.
	Ends bool
	// Within is set where it notes which matches on a packet within a tunnel hold.
	Within bool

	bound int
}

func (*Function) Kind() string      { return "function" }
func (f *Function) Blocks() []Block { return f.Do }

// Counts reports whether one of its rules counts packets and lets them go on.
func (f *Function) Counts() bool { return counts(f.Do) }

// counts reports whether straight code among blocks counts and goes on.
func counts(blocks []Block) bool {
	return slices.ContainsFunc(blocks, func(b Block) bool {
		s, ok := b.(*Straight)
		return ok && s.Counts()
	})
}

// function returns the function for blocks: an existing one that asks the same, else a new one.
func (p *planner) function(c *Chain, do []Block) *Function {
	first, n, bound := rulesOf(do[0]), 0, sizeFunction
	for _, b := range do {
		n += len(rulesOf(b))
		bound += blockSize(b)
	}
	rules := first[:n] // they follow one another
	for _, f := range p.Functions {
		if f.Family == c.Family() && sameRules(f.Rules, rules) {
			return f
		}
	}
	f := &Function{Number: len(p.Functions), Family: c.Family(), Rules: rules, Do: do, bound: bound}
	f.What = count(len(rules), "rule")
	f.Asks.askAll(rules)
	last := &rules[n-1]
	f.Ends = len(last.Conds) == 0 && !p.extension.asks(last) && last.Action.Decides()
	p.Functions = append(p.Functions, f)
	return f
}

// rulesOf returns the rules of straight code or a rule tree.
func rulesOf(b Block) []ir.Rule {
	if s, ok := b.(*Straight); ok {
		return s.rules
	}
	return b.(*RuleTree).Rules
}

// blockSize returns the instructions of straight code or a rule tree, at most.
func blockSize(b Block) int {
	if s, ok := b.(*Straight); ok {
		return s.bound
	}
	return sizeTree
}
