package plan

import (
	"fmt"

	"levee/internal/filter/ir"
	"levee/internal/lang/action"
)

// minBetween is from how many compares on rules become bytecode that stand between rules which
// cannot. Fewer are straight code with these: each piece is a call and a function more.
const minBetween = 48

// group is a run of neighbouring blocks of a chain that are made in one place: bytecode, or
// straight code and rule trees, in the main function or in a function of their own.
type group struct {
	chain    *Chain
	bytecode *Bytecode
	do       []Block // straight code and rule trees
	bound    int     // of their instructions
	asks     int     // questions, as maxQuestions counts them
}

// divide says of all rules of a chain which are straight, in rule trees or bytecode. all has all
// rules of the policy become bytecode, for the reason why.
func (p *planner) divide(c *Chain, all bool, why string) {
	c.groups = nil
	n := p.own(c.Rules)
	own, builtIn := c.Rules[:n], c.Rules[n:]
	stretches, trees := p.stretches(c, own)
	if !all && trees > maxRuleTrees {
		all, why = true, fmt.Sprintf("%d rule trees with other rules between them: more than %d",
			trees, maxRuleTrees)
	}
	if all && len(own) > 0 {
		p.addBytecodes(c, own, why)
		stretches = nil
	}
	for _, s := range stretches {
		switch rules := own[:s.rules]; {
		case s.tree:
			p.addTree(c, rules)
		default:
			if why := p.tooMany(c, rules); why != "" {
				p.addBytecodes(c, rules, why)
			} else {
				p.addStraight(c, rules)
			}
		}
		own = own[s.rules:]
	}
	p.addStraight(c, builtIn)
}

// stretch is a number of neighbouring rules that together become a rule tree, or do not.
type stretch struct {
	rules int
	tree  bool
}

// stretches divides a list into stretches, and returns how many of them are rule trees.
func (p *planner) stretches(c *Chain, rules []ir.Rule) (all []stretch, trees int) {
	others := 0 // since the last tree
	for len(rules) > 0 {
		n := p.fits(c, rules)
		if n >= MinTree {
			if others > 0 {
				all = append(all, stretch{others, false})
			}
			all, trees, others = append(all, stretch{n, true}), trees+1, 0
		} else {
			n = max(n, 1)
			others += n
		}
		rules = rules[n:]
	}
	if others > 0 {
		all = append(all, stretch{others, false})
	}
	return all, trees
}

// tooMany says why rules in a row do not stay straight; "" if they do.
func (p *planner) tooMany(c *Chain, rules []ir.Rule) string {
	if n := weight(rules); n > maxStraight {
		return fmt.Sprintf("%d compares that no rule tree takes: more than %d", n, maxStraight)
	}
	for i := range rules {
		if n := p.ruleSize(c, &rules[i]); n > maxFunction {
			return fmt.Sprintf("a rule of %d instructions: a function has %d at most", n,
				maxFunction)
		}
	}
	return ""
}

// last gives the group that more code of a chain joins.
func (p *planner) last(c *Chain) *group {
	if n := len(c.groups); n > 0 && c.groups[n-1].bytecode == nil {
		return c.groups[n-1]
	}
	g := &group{chain: c}
	c.groups = append(c.groups, g)
	return g
}

func (p *planner) addStraight(c *Chain, rules []ir.Rule) {
	if len(rules) == 0 {
		return
	}
	g := p.last(c)
	if n := len(g.do); n > 0 {
		if before, ok := g.do[n-1].(*Straight); ok { // they follow one another
			rules = before.rules[:len(before.rules)+len(rules)]
			g.do = g.do[:n-1]
			g.bound -= before.bound
			g.asks -= before.asks
		}
	}
	s := p.straight(c, rules)
	g.do = append(g.do, s)
	g.bound += s.bound
	g.asks += s.asks
}

func (p *planner) addTree(c *Chain, rules []ir.Rule) {
	g := p.last(c)
	g.do = append(g.do, p.ruleTree(c.Family(), rules))
	g.bound += sizeTree
	g.asks += tableQuestions
}

// addBytecodes turns rules into bytecode. Straight code are rules with effects that bytecode cannot
// have, and short runs between these.
func (p *planner) addBytecodes(c *Chain, rules []ir.Rule, why string) {
	whole := len(rules)
	for len(rules) > 0 {
		n, may := ir.Stretch(rules, action.MayBeBytecode)
		if may && (n == whole || weight(rules[:n]) >= minBetween) {
			c.groups = append(c.groups, &group{chain: c, bytecode: p.bytecode(c, rules[:n], why)})
		} else {
			p.addStraight(c, rules[:n])
		}
		rules = rules[n:]
	}
}
