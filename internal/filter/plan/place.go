package plan

import (
	"cmp"
	"fmt"
	"slices"

	"levee/internal/lang/field"
)

// place says which groups of all chains are in the main function: all, if it takes them, or those
// of few instructions, of which a call would be a large part. The others become functions.
func (p *planner) place() {
	p.Functions = nil
	p.within()
	var groups []*group
	for _, c := range p.Chains {
		c.Do, c.Registers, c.Calls = nil, Fields{}, false
		for _, g := range c.groups {
			if g.bytecode == nil {
				groups = append(groups, g)
			}
		}
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(a.bound, b.bound) })
	inMain, size := fill(groups, maxMain, maxMainQuestions)
	if len(inMain) < len(groups) {
		inMain, size = fill(groups, maxBeside, maxQuestions)
	}
	p.mainSize = sizeMain + sizeChain*len(p.Chains) + size
	for _, c := range p.Chains {
		if c.Tracked {
			c.Registers.askFlow(c.Classes[0])
			p.mainSize += sizeFlow
		}
		for _, a := range c.Answers() {
			c.Registers[field.SrcAddr] = true
			p.mainSize += a.Size
		}
		if AsksMessages(c.Rules) {
			p.mainSize += sizeMessage
		}
		if c.Asks[field.Stream] {
			c.Registers.askFlow(c.Classes[0])
			p.mainSize += sizeStream
		}
		if c.Asks[field.ProvenFlow] {
			c.Registers.askFlow(c.Classes[0])
			p.mainSize += sizeEcho
		}
		if c.AsksRoute() {
			c.Registers.askRoute()
			p.mainSize += sizeRoute
		}
		if c.asksOrigin() {
			p.mainSize += sizeSender
		}
		for _, g := range c.groups {
			switch {
			case g.bytecode != nil:
				c.call(g.bytecode)
			case inMain[g]:
				c.Do = append(c.Do, g.do...)
				for _, b := range g.do {
					c.Registers.askAll(rulesOf(b))
				}
				continue
			default:
				for _, part := range p.split(g) {
					c.call(p.function(c, part))
				}
			}
		}
		if c.Calls {
			p.mainSize += sizeCall * len(c.Do)
		}
	}
}

// fill takes groups from the first on that together have at most so many instructions and
// questions.
func fill(groups []*group, instructions, questions int) (taken map[*group]bool, size int) {
	taken = map[*group]bool{}
	asks := 0
	for _, g := range groups {
		if size+g.bound > instructions || asks+g.asks > questions {
			break
		}
		size, asks = size+g.bound, asks+g.asks
		taken[g] = true
	}
	return taken, size
}

// call adds a block that is called.
func (c *Chain) call(b Block) {
	c.Do = append(c.Do, b)
	c.Calls = true
}

// shape finds a division that the kernel takes. Where the rules would be more functions or
// instructions than it does, those of the chain with the most functions become bytecode, one chain
// after the other.
func (p *planner) shape() error {
	forced := map[*Chain]string{}
	for _, c := range p.Chains {
		if p.Target.Bytecode {
			forced[c] = "asked for"
		}
	}
	for {
		p.restart()
		for _, c := range p.Chains {
			p.divide(c, forced[c] != "", forced[c])
		}
		p.place()
		functions, size := p.count()
		if functions <= maxFunctions && size <= maxInstructions {
			return nil
		}
		most := p.mostFunctions(forced)
		if most == nil {
			return p.errorf("the rules take %d functions and %d instructions, the kernel takes "+
				"%d and %d: put what they share into sets",
				functions, size, maxFunctions, maxInstructions)
		}
		forced[most] = fmt.Sprintf("with these rules straight there would be %d functions and %d "+
			"instructions; the kernel takes %d and %d",
			functions, size, maxFunctions, maxInstructions)
	}
}

// mostFunctions returns the chain with the most functions of those that may have more bytecode than
// they do.
func (p *planner) mostFunctions(forced map[*Chain]string) (most *Chain) {
	n := 0
	for _, c := range p.Chains {
		functions := 0
		for _, b := range c.Do {
			if _, ok := b.(*Function); ok {
				functions++
			}
		}
		if forced[c] == "" && p.own(c.Rules) > 0 && (most == nil || functions > n) {
			most, n = c, functions
		}
	}
	return most
}
