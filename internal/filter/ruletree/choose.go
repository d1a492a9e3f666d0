package ruletree

import (
	"math"
	"math/bits"

	"levee/internal/filter/price"
)

// window is a choice of index bits.
type window struct {
	field, shift, bits int
	base               uint64 // first value of the block that the window divides
	skipped            bool   // bits above it are not looked at
}

// span of the children that an interval falls into.
func (w *window) span(i interval) span {
	last := w.base + (uint64(1)<<(w.shift+w.bits) - 1)
	return span{uint16((max(i.lo, w.base) - w.base) >> w.shift),
		uint16((min(i.hi, last) - w.base) >> w.shift)}
}

// block returns the smallest aligned block that holds the rules which do not fill the region; where
// it would reach beyond the region, one that holds the region. So a child that a packet from
// outside the block comes to has all rules that fill the region.
func (s *ruleSet) block(g *region, rules []int32, f int) (base uint64, size int, ok bool) {
	cut := g.cut[f]
	lo, hi := uint64(math.MaxUint64), uint64(0)
	for _, r := range rules {
		if i := s.field(r, f); !i.contains(cut) {
			lo, hi = min(lo, max(i.lo, cut.lo)), max(hi, min(i.hi, cut.hi))
		}
	}
	size = bits.Len64(lo ^ hi)
	if lo > hi || size == 0 {
		return 0, 0, false
	}
	if b := aligned(lo, hi); !cut.contains(b) {
		lo, hi = cut.lo, cut.hi
		size = bits.Len64(lo ^ hi)
	}
	return aligned(lo, hi).lo, size, true
}

// aligned returns the smallest aligned block that holds an interval.
func aligned(lo, hi uint64) interval {
	mask := uint64(1)<<bits.Len64(lo^hi) - 1
	return interval{lo &^ mask, hi | mask}
}

// plan says how to divide a region.
type plan struct {
	w     window
	most  int32 // segments that a rule may span
	aside int   // rules that span more
}

// costs are the weights of building. Times are in ns; only their ratios matter.
type costs struct {
	level  float64 // of a node on a packet's way
	child  float64 // of a child in memory, shared by the rules of its node
	bits   int     // of an index, at most
	growth float64 // how many entries a rule may become on average, in all
}

// Further costs, the same for all tables.
const (
	entryCost = 2.5
	leafCost  = 2.0
	copyCost  = 0.3 // an entry of a rule in memory
)

// Up to fewRules a table is in the cache, where a level takes some ns and memory nothing; from
// manyRules on a packet waits for most of what it meets, and the less memory all of it takes the
// less often.
const (
	fewRules  = 1 << 11
	manyRules = 1 << 16
)

// costsOf gives the costs for a table of n rules.
func costsOf(n int) costs {
	x := math.Log2(float64(max(n, 1))/fewRules) / math.Log2(manyRules/fewRules)
	x = min(max(x, 0), 1)
	between := func(small, large float64) float64 { return small + x*(large-small) }
	return costs{
		level: between(6, 20), child: between(0.05, 0.6), bits: int(between(maxBits, 12)),
		growth: between(6, 2),
	}
}

// expected guesses the cost of n rules below a node.
func (c *costs) expected(n int) float64 {
	const small = 4
	if n <= small {
		return leafCost + entryCost*float64(n)/2
	}
	return leafCost + entryCost*small/2 + c.level/4*levels(n)
}

// levels returns the binary logarithm of a quarter.
func levels(n int) float64 {
	if n < len(logarithms) {
		return logarithms[n]
	}
	return math.Log2(float64(n) / 4)
}

var logarithms = func() (l [1 << 10]float64) {
	for n := range l {
		l[n] = math.Log2(float64(n) / 4)
	}
	return l
}()

// chooser picks plans by expected cost.
type chooser struct {
	*ruleSet
	costs
	counter
	limit []int32 // scratch of limits
}

// choose picks the plan with the least expected cost, or none if comparing all is cheaper.
func (c *chooser) choose(g *region, rules []int32, at position) (best plan, ok bool) {
	n := len(rules)
	if n == 1 {
		return best, false
	}
	least := leafCost + entryCost*float64(n)/2
	if n > maxLeaf {
		least *= 2
	}
	for f := range c.fields {
		base, size, ok2 := c.block(g, rules, f)
		if !ok2 {
			continue
		}
		last := base + (uint64(1)<<size - 1)
		w := window{field: f, base: base, skipped: !interval{base, last}.contains(g.cut[f])}
		finest := min(c.bits, maxBitsOf(f), size, bits.Len(uint(4*n+16))-1)
		w.bits, w.shift = finest, size-finest
		c.spans(c.ruleSet, w, rules)
		c.merge()
		// Of many rules few children would each have many.
		for w.bits = min(finest, max(1, bits.Len(uint(n))-8)); w.bits <= finest; w.bits++ {
			if c.level+c.expected(1)+copyCost+c.child*float64(int(1)<<w.bits)/float64(n) >= least {
				break // if each child had one rule, and more children cost more
			}
			w.shift = size - w.bits
			if c.count(w.bits, finest-w.bits); c.segments < 2 {
				continue
			}
			for _, most := range c.limits(n, at) {
				if cost, aside := c.cost(w, n, most); cost < least && aside < n {
					least, best, ok = cost, plan{w, most, aside}, true
				}
			}
		}
	}
	return best, ok
}

// maxAsides is the number of times that rules may be put aside from what was put aside.
const maxAsides = 24

// limits proposes how many segments a rule may span: as many as growth allows, and less.
func (c *chooser) limits(n int, at position) []int32 {
	c.limit = c.limit[:0]
	allowed := int(at.growth * float64(n))
	if c.copies <= allowed {
		c.limit = append(c.limit, math.MaxInt32)
	}
	if c.copies <= min(allowed, 2*n) || at.asides == maxAsides {
		return c.limit
	}
	spanning := resize(&c.scratch, c.segments+1) // how many rules span so many segments
	clear(spanning)
	for x, in := range c.in {
		spanning[in.copies()] += c.rules[x]
	}
	sum, last := 0, int32(0)
	for copies, rules := range spanning {
		if rules == 0 {
			continue
		}
		if last == 1 || last > 0 && int32(copies) >= 2*last {
			c.limit = append(c.limit, last)
		}
		last = int32(copies)
		if sum += copies * int(rules); sum > allowed {
			break
		}
	}
	return c.limit
}

// cost of dividing n rules by the window with those aside that span more than most segments.
func (c *chooser) cost(w window, n int, most int32) (cost float64, aside int) {
	both := resize(&c.scratch, 2*c.segments+1)
	clear(both)
	// rules of a segment, and those in whose middle it is
	total, middle := both[:c.segments+1], both[c.segments+1:]
	copies := 0
	for x, in := range c.in {
		s, rules := in.copies(), c.rules[x]
		if s > most {
			aside += int(rules)
			continue
		}
		copies += int(s) * int(rules)
		total[in.first] += rules
		total[in.last+1] -= rules
		middle[in.middle] += rules
	}
	sum := int32(0)
	for s, m := range middle {
		if sum += total[s]; m != 0 {
			cost += float64(m) * c.expected(int(sum))
		}
	}
	in := n - aside
	cost = c.level +
		(cost+copyCost*float64(copies)+c.child*float64(int(1)<<w.bits))/float64(max(in, 1))
	if aside > 0 {
		cost += price.Walk + c.level + c.expected(aside)
	}
	return cost, aside
}
