package classify

import (
	"math"
	"math/bits"
	"slices"
)

// window is a choice of index bits.
type window struct {
	field, shift, bits int
	base               uint64 // first value of the block that the window divides
	skipped            bool   // bits above it are not looked at
}

// span of the children that a rule falls into.
func (w *window) span(r *rule) (i, j int) {
	last := w.base + (uint64(1)<<(w.shift+w.bits) - 1)
	a, b := max(r.field[w.field].lo, w.base), min(r.field[w.field].hi, last)
	return int((a - w.base) >> w.shift), int((b - w.base) >> w.shift)
}

// block is the smallest aligned block that holds the rules which do not fill the region; where it would
// reach beyond the region, one that holds the region. So a child that a packet from outside the block comes to has all rules
// that fill the region.
func block(g *region, rules []*rule, f int) (base uint64, size int, ok bool) {
	lo, hi := uint64(math.MaxUint64), uint64(0)
	for _, r := range rules {
		if r.field[f].contains(g.cut[f]) {
			continue
		}
		lo = min(lo, max(r.field[f].lo, g.cut[f].lo))
		hi = max(hi, min(r.field[f].hi, g.cut[f].hi))
	}
	size = bits.Len64(lo ^ hi)
	if lo > hi || size == 0 {
		return 0, 0, false
	}
	if b := aligned(lo, hi); !g.cut[f].contains(b) {
		lo, hi = g.cut[f].lo, g.cut[f].hi
		size = bits.Len64(lo ^ hi)
	}
	return aligned(lo, hi).lo, size, true
}

// aligned is the smallest aligned block that holds an interval.
func aligned(lo, hi uint64) interval {
	mask := uint64(1)<<bits.Len64(lo^hi) - 1
	return interval{lo &^ mask, hi | mask}
}

// plan is how to divide a region.
type plan struct {
	w     window
	most  int32 // segments that a rule may span
	aside int   // rules that span more
}

// growth is how many entries a rule may become on average, in all.
const growth = 6

// Costs in ns, measured on hot memory; only their ratio matters.
const (
	levelCost = 6.0
	entryCost = 2.5
	leafCost  = 2.0
	copyCost  = 0.3  // an entry of a rule in memory
	childCost = 0.05 // a child in memory
)

// chooser picks plans by expected cost.
type chooser struct {
	counter
	spans []int32 // of the rules, sorted
}

// expected guesses the cost of n rules below a node.
func expected(n int) float64 {
	if n < len(guesses) {
		return guesses[n]
	}
	return guess(n)
}

func guess(n int) float64 {
	const small = 4
	if n <= small {
		return leafCost + entryCost*float64(n)/2
	}
	return leafCost + entryCost*small/2 + levelCost*math.Log2(float64(n)/small)/4
}

var guesses = func() (g [1 << 10]float64) {
	for n := range g {
		g[n] = guess(n)
	}
	return g
}()

// counter counts in how many segments of a window, neighbouring children with the same rules, rules are.
type counter struct {
	spanOf   [][2]int32
	segment  []int32 // number of the segment that a child belongs to; behind the last, as if it had one
	total    []int32
	segments int
}

func resize[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

func (c *counter) count(w window, rules []*rule) {
	kids := 1 << w.bits
	c.segment = resize(c.segment, kids+1)
	clear(c.segment)
	c.spanOf = resize(c.spanOf, len(rules))
	for x, r := range rules {
		i, j := w.span(r)
		c.spanOf[x] = [2]int32{int32(i), int32(j)}
		c.segment[i] = 1
		c.segment[j+1] = 1
	}
	c.segment[0] = 0
	for k := 1; k <= kids; k++ {
		c.segment[k] += c.segment[k-1]
	}
	c.segments = int(c.segment[kids-1]) + 1
}

func (c *counter) copies(x int) int32 {
	s := c.spanOf[x]
	return c.segment[s[1]] - c.segment[s[0]] + 1
}

// choose picks the plan with the least expected cost, or none if comparing all is cheaper.
func (c *chooser) choose(g *region, rules []*rule, at place) (best plan, ok bool) {
	n := len(rules)
	if n == 1 {
		return best, false
	}
	least := leafCost + entryCost*float64(n)/2
	if n > maxLeaf {
		least *= 2
	}
	for f := range numFields {
		base, size, ok2 := block(g, rules, f)
		if !ok2 {
			continue
		}
		last := base + (uint64(1)<<size - 1)
		w := window{field: f, base: base, skipped: !interval{base, last}.contains(g.cut[f])}
		// Of many rules few children would each have many.
		for w.bits = min(size, maxBits, max(1, bits.Len(uint(n))-8)); w.bits <= min(maxBits, size) && 1<<w.bits <= 4*n+16; w.bits++ {
			w.shift = size - w.bits
			c.count(w, rules)
			if c.segments < 2 {
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

// maxAsides is how often rules may be put aside from what was put aside.
const maxAsides = 24

// limits proposes how many segments a rule may span: as many as growth allows, and less.
func (c *chooser) limits(n int, at place) (out []int32) {
	c.spans = resize(c.spans, n)
	total := 0
	for x := range n {
		c.spans[x] = c.copies(x)
		total += int(c.spans[x])
	}
	allowed := int(at.growth * float64(n))
	if total <= allowed {
		out = append(out, math.MaxInt32)
	}
	if total <= min(allowed, 2*n) || at.asides == maxAsides {
		return out
	}
	slices.Sort(c.spans)
	sum, last := 0, int32(0)
	for x, s := range c.spans {
		if s != last && x > 0 && (last == 1 || s >= 2*last) {
			out = append(out, last)
		}
		last = s
		if sum += int(s); sum > allowed {
			break
		}
	}
	return out
}

// cost of dividing n rules by the window with those aside that span more than most segments.
func (c *chooser) cost(w window, n int, most int32) (cost float64, aside int) {
	kids := 1 << w.bits
	c.total = resize(c.total, c.segments+1)
	clear(c.total)
	copies := 0
	for x := range n {
		s := c.copies(x)
		if s > most {
			aside++
			continue
		}
		copies += int(s)
		c.total[c.segment[c.spanOf[x][0]]]++
		c.total[c.segment[c.spanOf[x][1]]+1]--
	}
	for s := 1; s < c.segments; s++ {
		c.total[s] += c.total[s-1]
	}
	for x := range n {
		if c.copies(x) <= most {
			middle := (c.spanOf[x][0] + c.spanOf[x][1]) / 2
			cost += expected(int(c.total[c.segment[middle]]))
		}
	}
	in := n - aside
	cost = levelCost + (cost+copyCost*float64(copies)+childCost*float64(kids))/float64(max(in, 1))
	if aside > 0 {
		cost += levelCost + expected(aside)
	}
	return cost, aside
}
