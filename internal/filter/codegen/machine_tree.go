package codegen

import (
	"fmt"
	"math"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/lang/field"
)

// The rules of a chain that the machine walks are put into two trees, one of those that decide and one of those
// that count: a packet is decided first, and then counted by the rules that stand before the one that
// decided. A node cuts one field at a bound. Rules on one side of the bound are in the tree of that
// side; those on both sides are in a tree of their own, which every packet of the node walks (an interval tree, with
// a choice of fields). So no rule is there twice, and the trees have the size of the list. Since the rules that a
// packet meets do not come in the order of the policy, each list ends early where a rule that stands
// before has decided; see opDecide and the compare of entries in machine_emit.go.

// fewRules is up to how many rules are compared one by one: a cut costs about as much as half a rule.
const fewRules = 6

// interval is inclusive.
type interval struct{ lo, hi uint64 }

var everywhere = interval{0, math.MaxUint64}

// item is a rule in a tree.
type item struct {
	entry uint64 // of a list
	at    int    // of its extents in the forest
}

// axis is what a tree can cut on: a field, or half of an IPv6 address.
type axis struct {
	field field.Field
	low   bool // the lower half of an IPv6 address
}

// axesOf lists what rules of a list ask for and trees can cut on.
func axesOf(part *chain) []axis {
	var out []axis
	for f := range field.NumFields {
		if !part.uses[f] || !f.Laws().Cut {
			continue
		}
		out = append(out, axis{f, false})
		if part.family() == ir.IPv6 && f.Info().Compare == field.ByPrefix {
			out = append(out, axis{f, true})
		}
	}
	return out
}

// extent is what a rule leaves of an axis: the least interval that holds all packets that it matches.
func extent(a axis, r *ir.Rule, ip4 bool) interval {
	out := everywhere
	for i := range r.Conds {
		q := &r.Conds[i]
		if q.Number == a.field && q.Number != 0 && len(q.Pairs) > 0 && !q.Not {
			out = out.intersect(numbersOf(q.Pairs))
		}
		if q.Field != a.field {
			continue
		}
		out = out.intersect(extentOf(a, q, ip4))
	}
	return out
}

// numbersOf is the least interval that holds the numbers of endpoints.
func numbersOf(pairs []ir.Pair) interval {
	out := interval{math.MaxUint64, 0}
	for _, p := range pairs {
		out = interval{min(out.lo, p.Range.Lo), max(out.hi, p.Range.Hi)}
	}
	return out
}

// intersect of two intervals; where a rule contradicts itself, one that holds too much.
func (i interval) intersect(j interval) interval {
	k := interval{max(i.lo, j.lo), min(i.hi, j.hi)}
	if k.lo > k.hi {
		return i
	}
	return k
}

func extentOf(a axis, q *ir.Cond, ip4 bool) interval {
	switch {
	case len(q.Ranges) > 0:
		return interval{q.Ranges[0].Lo, q.Ranges[len(q.Ranges)-1].Hi}
	case q.Not || q.Dynamic() || len(q.Prefixes) == 0:
		return everywhere
	}
	first, last := q.Prefixes[0], q.Prefixes[len(q.Prefixes)-1]
	if ip4 {
		lo, _ := bounds4(first)
		_, hi := bounds4(last)
		return interval{lo, hi}
	}
	lo, loLow := words6(first.Addr())
	hi, hiLow := words6(last.Addr())
	if n := last.Bits(); n < 64 {
		hi |= math.MaxUint64 >> n
	}
	if !a.low {
		return interval{lo, hi}
	}
	if lo != hi || first.Bits() < 64 || last.Bits() < 64 {
		return everywhere
	}
	if n := last.Bits() - 64; n < 64 {
		hiLow |= math.MaxUint64 >> n
	}
	return interval{loLow, hiLow}
}

// forest builds the trees of a part of a chain. All of its rules but those without questions have some.
type forest struct {
	*machine
	axes    []axis
	cuts    []record   // what reads each axis
	extents []interval // what rules leave of each axis, rule by rule
	scratch []item     // room for all of them
	ends    []uint64   // scratch of middle
	depth   int        // of nodes on the longest way
}

// extent is what a rule leaves of axis k.
func (f *forest) extent(it item, k int) interval { return f.extents[it.at+k] }

// walk makes the records of a part of a chain.
func (c *compiler) walk(part *chain) {
	f := &forest{machine: c.machine, axes: axesOf(part), scratch: make([]item, len(part.rules))}
	f.extents = make([]interval, 0, len(part.rules)*len(f.axes))
	before := c.machine.records.n
	for _, a := range f.axes {
		f.cuts = append(f.cuts, c.cut(a, part.family() == ir.IPv4))
	}
	var count, decide []item
	for i := range part.rules {
		r := &part.rules[i]
		it := item{uint64(r.Slot)<<32 | uint64(c.body(part, r)), len(f.extents)}
		for _, a := range f.axes {
			f.extents = append(f.extents, extent(a, r, part.family() == ir.IPv4))
		}
		if r.Action.Decides() {
			decide = append(decide, it)
		} else {
			count = append(count, it)
		}
	}
	var counting, deciding int
	part.start, counting = f.build(count, 0, 0)
	part.start, deciding = f.build(decide, part.start, 0)
	c.tellWalk(part, counting+deciding, f.depth, before)
}

// tellWalk says what was made of the rules, and what they cost: about as measured, see docs/decisions/0015-bytecode.md.
func (c *compiler) tellWalk(part *chain, worst, depth, before int) {
	asked := weight(part.rules)
	c.table(fmt.Sprintf("%d rules, %s", len(part.rules), part), "records in trees", recordBytes*(c.machine.records.n-before)+8*len(part.rules),
		fmt.Sprintf("more than %d compares that no table of rules takes; a packet passes up to %d cuts and meets %d rules at most, about %d ns",
			maxStraight, depth, worst, 4*(depth+worst*max(1, asked/len(part.rules)))))
}

// cut is the record that compares an axis, but for bound and targets.
func (c *compiler) cut(a axis, ip4 bool) record {
	at, n := c.fieldAt(a.field)
	mask := maskOf(n)
	if ip4 && a.field.Info().Compare == field.ByPrefix {
		mask = maskOf(4)
	}
	if a.low {
		at += 8
	}
	return record{wordOf(opCut, at, n, false), mask}
}

// build makes the tree of some rules, in order, behind which the packet goes to then, and says how many rules
// it meets there at most.
func (f *forest) build(items []item, then uint32, depth int) (start uint32, worst int) {
	if len(items) == 0 {
		return then, 0
	}
	f.depth = max(f.depth, depth)
	k, bound, ok := f.choose(items)
	if !ok {
		return f.list(items, then), len(items)
	}
	sides := f.part(items, k, bound)
	below, worstBelow := f.build(sides[0], then, depth+1)
	above, worstAbove := f.build(sides[1], then, depth+1)
	r := f.cuts[k]
	r[2], r[3] = bound, uint64(above)<<32|uint64(below)
	start, worst = f.build(sides[2], f.add(r), depth+1)
	return start, worst + max(worstBelow, worstAbove)
}

// part sorts items by the side of a bound on which they are, in place: below, above, both. Each keeps its order.
func (f *forest) part(items []item, k int, bound uint64) (sides [3][]item) {
	n := 0
	for s := range sides {
		first := n
		for _, it := range items {
			if side(f.extent(it, k), bound) == s {
				f.scratch[n] = it
				n++
			}
		}
		sides[s] = items[first:n]
	}
	copy(items, f.scratch)
	return sides
}

// side of a bound on which an interval lies.
func side(i interval, bound uint64) int {
	switch {
	case i.hi < bound:
		return 0
	case i.lo >= bound:
		return 1
	}
	return 2
}

// choose picks the cut that leaves the fewest rules in a packet's way, if there is one that is worth a node.
func (f *forest) choose(items []item) (k int, bound uint64, ok bool) {
	if len(items) <= fewRules {
		return 0, 0, false
	}
	least := float64(len(items)) - 2 // a cut costs as much as a rule or two
	for i := range f.axes {
		b, some := f.middle(items, i)
		if !some {
			continue
		}
		var n [3]int
		for _, it := range items {
			n[side(f.extent(it, i), b)]++
		}
		// Rules on both sides can be cut on another field or bound.
		cost := float64(max(n[0], n[1])) + 0.8*float64(n[2])
		if n[0]+n[1] > len(items)/32 && cost < least {
			least, k, bound, ok = cost, i, b, true
		}
	}
	return k, bound, ok
}

// middle is the median of where the intervals of an axis begin and end, of not more than some hundred of them;
// no interval that leaves everything open counts.
func (f *forest) middle(items []item, k int) (bound uint64, ok bool) {
	const enough = 128
	stride := max(1, len(items)/enough)
	ends := f.ends[:0]
	for i := 0; i < len(items); i += stride {
		if a := f.extent(items[i], k); a != everywhere {
			ends = append(ends, a.lo)
			if a.hi != math.MaxUint64 {
				ends = append(ends, a.hi+1)
			}
		}
	}
	f.ends = ends
	if len(ends) == 0 {
		return 0, false
	}
	slices.Sort(ends)
	bound = ends[len(ends)/2]
	return bound, bound > 0
}

// list makes the list of some rules.
func (f *forest) list(items []item, then uint32) uint32 {
	entries := f.number[:0]
	for _, it := range items {
		entries = append(entries, it.entry)
	}
	f.number = append(entries, endOfList)
	return f.add(record{uint64(opList), uint64(f.lists.add(f.number)), uint64(then)})
}
