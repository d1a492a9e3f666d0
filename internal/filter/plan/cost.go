package plan

import (
	"levee/internal/filter/ir"
	"levee/internal/lang/field"
)

// The cost model: what things cost a packet, in ns, measured on a core of an AMD EPYC guest at some
// 2.5 GHz. Only sums and comparisons of them matter.
const (
	nsDecode4  = 4.0  // the fast path of IPv4, to the rules
	nsDecode6  = 5.0  // of IPv6
	nsDecode0  = 3.0  // of others
	nsDecide   = 4.5  // the verdict: finding and adding to the counter
	nsCompare  = 0.2  // a compare that the CPU predicts
	nsMiss     = 6.0  // a branch that it does not
	nsEffect   = 2.0  // adding to a counter
	nsForeign  = 10.0 // an effect that nothing is known of
	nsCall     = 3.0  // a function of rules, its arguments and fields
	nsBits     = 1.5  // a bitmap
	nsLevel    = 2.5  // a level of prefixes
	nsDynamic  = 9.0  // a dynamic set
	nsEndpoint = 14.0 // of endpoints
	nsStep     = 1.8  // a node of a rule tree
	nsLeaf     = 2.5
	nsEntry    = 2.0
	nsFollow   = 4.0 // the function that walks what follows a leaf
	nsRoot     = 2.5 // each tree that a look-up begins with
	nsOp       = 4.0 // an operation of bytecode
	nsEnter    = 12.0
)

// price says what all blocks cost.
func (p *planner) price() {
	for _, c := range p.Chains {
		p.priceChain(c)
	}
	p.Cost.Least, p.Cost.Ns = p.average()
}

// flow is the packets of a chain: how many of its rules decide, and how many of these are behind.
type flow struct{ all, passed int }

// share is the part of packets that are not decided yet.
func (f *flow) share() float64 { return float64(f.all-f.passed) / float64(max(1, f.all)) }

func (p *planner) priceChain(c *Chain) {
	f := &flow{}
	for i := range c.Rules {
		if c.Rules[i].Action.Decides() {
			f.all++
		}
	}
	base := nsDecide + [...]float64{ir.NonIP: nsDecode0, ir.IPv4: nsDecode4, ir.IPv6: nsDecode6}[c.Family()]
	c.Cost = Cost{Least: base, Ns: base, Instructions: sizeChain}
	for _, b := range c.Do {
		c.Cost.add(p.priceBlock(b, f))
	}
}

// priceBlock says what a block costs a packet of a chain, and what of it is made here.
func (p *planner) priceBlock(b Block, f *flow) Cost {
	switch b := b.(type) {
	case *Straight:
		return p.priceStraight(b, f)
	case *RuleTree:
		return p.priceTree(b, f)
	case *Bytecode:
		return p.priceBytecode(b, f)
	case *Function:
		share := f.share()
		first := b.Cost == Cost{}
		cost := Cost{Least: nsCall * share, Ns: nsCall * share, Instructions: sizeFunction}
		for _, in := range b.Do {
			cost.add(p.priceBlock(in, f))
		}
		if first {
			b.Cost = cost
		} else {
			cost.Instructions, cost.Bytes = 0, 0
		}
		cost.Instructions += sizeCall
		return cost
	}
	return Cost{}
}

func (p *planner) priceStraight(s *Straight, f *flow) Cost {
	cost := Cost{}
	for _, r := range s.Rules {
		share := f.share()
		r.Cost.Ns, r.Cost.Least = 0, 0
		pass := 1.0 // the part of packets that come to a question
		for _, q := range r.Questions {
			least, ns := p.priceQuestion(q)
			q.Cost.Least, q.Cost.Ns = least*share*pass, ns*share*pass
			r.Cost.Least += q.Cost.Least
			r.Cost.Ns += q.Cost.Ns
			if q.Lookup != nil {
				q.Lookup.Cost.Least, q.Lookup.Cost.Ns = q.Cost.Least, q.Cost.Ns
				q.Lookup.Cost.Instructions = q.Cost.Instructions
				r.Cost.Bytes += q.Lookup.Cost.Bytes
			}
			pass = 0.3
		}
		for _, done := range r.Does {
			switch done := done.(type) {
			case *Effect:
				ns := p.extension.effect(done.Effect.Action).ns * share * pass
				done.Cost = Cost{Least: ns, Ns: ns, Instructions: p.extension.effect(done.Effect.Action).size}
				r.Cost.Least += ns
				r.Cost.Ns += ns
			case *Verdict:
				done.Cost.Instructions = sizeVerdict
				r.Cost.Ns += nsMiss / float64(max(1, f.all))
				f.passed++
			}
		}
		cost.add(r.Cost)
	}
	s.Cost = cost
	return cost
}

// priceQuestion says what a question costs a packet that is asked.
func (p *planner) priceQuestion(q *Question) (least, ns float64) {
	switch {
	case q.By == InTable:
		l := q.Lookup
		switch {
		case l.Table == nil && l.Tree == nil && q.Number != 0:
			return nsEndpoint, nsEndpoint + nsMiss
		case l.Table == nil && l.Tree == nil:
			return nsDynamic, nsDynamic + nsMiss
		case l.Tree != nil:
			return p.priceWalk(l.Tree)
		case l.Table.Bits != nil:
			return nsBits, nsBits
		}
		n := nsLevel * float64(l.Table.Prefixes.Levels())
		return n, n
	case q.Field.Info().Compare == field.ByMask:
		return nsCompare, nsCompare
	}
	n := nsCompare * float64(1+len(q.Ranges)+len(q.Prefixes)+2*len(q.Pairs))
	return n, n
}

// priceWalk says what a look-up in a rule tree costs.
func (p *planner) priceWalk(t *Tree) (least, ns float64) {
	n := nsRoot*float64(t.Trees()) + nsLeaf + nsEntry + 3*nsStep
	return n, n + 2*nsMiss
}

func (p *planner) priceTree(t *RuleTree, f *flow) Cost {
	share := f.share()
	least, ns := p.priceWalk(t.Tree)
	t.Cost.Least, t.Cost.Ns = least*share, ns*share
	t.Cost.Instructions = sizeTree
	f.passed += len(t.Rules)
	return t.Cost
}

func (p *planner) priceBytecode(b *Bytecode, f *flow) Cost {
	share := f.share()
	each := float64(max(1, b.Questions)) / float64(len(b.Rules))
	ops := b.Counting.Cuts + b.Deciding.Cuts + (b.Counting.Rules+b.Deciding.Rules)*each
	cost := b.Cost
	cost.Least = (nsEnter + nsOp*ops) * share
	cost.Ns = cost.Least + nsMiss*2*share
	for i := range b.Rules {
		if b.Rules[i].Action.Decides() {
			f.passed++
		}
	}
	first := b.Cost.Ns == 0
	b.Cost = cost
	if !first {
		cost.Bytes = 0
	}
	cost.Instructions = sizeCall
	return cost
}

// average is the cost of a packet of the policy, if packets are spread evenly over the rules that
// decide, each in the classes that are the most common of those in which the rule decides: TCP and
// UDP; ICMP and others; the rest.
func (p *planner) average() (least, ns float64) {
	weight := make([]float64, ir.NumClasses)
	bySlot := make([][]int, len(p.Slots)) // classes
	for _, c := range p.Chains {
		for i := range c.Rules {
			if r := &c.Rules[i]; r.Action.Decides() {
				for _, class := range c.Classes {
					bySlot[r.Slot] = append(bySlot[r.Slot], class.Index())
				}
			}
		}
	}
	classes := ir.Classes()
	var rank [ir.NumClasses]int
	for i, c := range classes {
		rank[i] = rankOf(c)
	}
	all := 0.0
	for _, in := range bySlot {
		best, n := len(classes), 0
		for _, i := range in {
			switch {
			case rank[i] < best:
				best, n = rank[i], 1
			case rank[i] == best:
				n++
			}
		}
		for _, i := range in {
			if rank[i] == best {
				weight[i] += 1 / float64(n)
				all += 1 / float64(n)
			}
		}
	}
	for i, w := range weight {
		c := p.ChainOf[i]
		if c == nil {
			continue
		}
		least += c.Cost.Least * w / max(all, 1)
		ns += c.Cost.Ns * w / max(all, 1)
	}
	return least, ns
}

// rankOf tells common classes of packets, 0, from rare ones.
func rankOf(c ir.Class) int {
	switch {
	case c.Family == ir.NonIP:
		return 3
	case c.Fragment:
		return 2
	}
	switch c.Transport {
	case ir.TCP, ir.UDP:
		return 0
	case ir.ICMP, ir.Other:
		return 1
	}
	return 2
}
