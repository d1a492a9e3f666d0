package plan

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/lang/field"
)

// Cuts are a tree that says which rules of bytecode a packet meets. A node cuts one field at a
// bound. Rules on one side of the bound are in the tree of that side; those on both sides are in a
// tree of their own, which every packet of the node walks first (an interval tree, with a choice of
// fields). So no rule is there twice, and the tree has the size of the list.
type Cuts struct {
	Root  int // of Nodes, -1 if there are no rules
	Nodes []Cut
	Order []int32 // rules, as indices of Bytecode.Rules
	Depth int     // of nodes on the longest way
	Worst int     // rules that a packet meets at most
	// What a packet meets on average, if packets are spread evenly over the rules.
	Cuts, Rules float64
}

// Cut is a node: it cuts, or it is a list of rules. Sides are of Nodes, -1 for none.
type Cut struct {
	Axis               int8 // of Bytecode.Axes, -1 for a list
	Bound              uint64
	Below, Above, Both int32
	First, Len         int32 // of a list, in Order
}

// fewRules is up to how many rules are compared one by one: a cut costs about as much as half a
// rule.
const fewRules = 6

// Axis is a dimension of a tree's cuts: a field, or half of an IPv6 address.
type Axis struct {
	Field field.Field
	Low   bool // the lower half of an IPv6 address
}

// axesOf lists the fields of a bytecode's rules on which trees can cut.
func axesOf(b *Bytecode) []Axis {
	var out []Axis
	for f := range field.NumFields {
		if !b.Asks[f] || !f.Laws().Cut {
			continue
		}
		out = append(out, Axis{f, false})
		if b.Family == ir.IPv6 && f.Info().Compare == field.ByPrefix {
			out = append(out, Axis{f, true})
		}
	}
	return out
}

// interval is inclusive.
type interval struct{ lo, hi uint64 }

var everywhere = interval{0, math.MaxUint64}

// extent returns what a rule leaves of an axis: the least interval that holds all packets that it
// matches.
func extent(a Axis, r *ir.Rule, ip4 bool) interval {
	out := everywhere
	for i := range r.Conds {
		q := &r.Conds[i]
		if q.Number == a.Field && q.Number != 0 && len(q.Pairs) > 0 && !q.Not {
			out = out.intersect(numbersOf(q.Pairs))
		}
		if q.Field != a.Field {
			continue
		}
		out = out.intersect(extentOf(a, q, ip4))
	}
	return out
}

// numbersOf returns the least interval that holds the numbers of endpoints.
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

func extentOf(a Axis, q *ir.Cond, ip4 bool) interval {
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
	if !a.Low {
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

// bounds4 returns the first and the last address of an IPv4 prefix.
func bounds4(p netip.Prefix) (lo, hi uint64) {
	a := p.Addr().As4()
	lo = uint64(binary.BigEndian.Uint32(a[:]))
	return lo, lo | (1<<(32-p.Bits()) - 1)
}

func words6(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// forest grows both trees of bytecode.
type forest struct {
	rules   []ir.Rule
	axes    int
	extents []interval // what rules leave of each axis, rule by rule
	scratch []int32    // room for all rules
	ends    []uint64   // scratch of middle
	*Cuts
}

func newForest(b *Bytecode) *forest {
	f := &forest{rules: b.Rules, axes: len(b.Axes), scratch: make([]int32, len(b.Rules))}
	f.extents = make([]interval, 0, len(b.Rules)*f.axes)
	for i := range b.Rules {
		for _, a := range b.Axes {
			f.extents = append(f.extents, extent(a, &b.Rules[i], b.Family == ir.IPv4))
		}
	}
	return f
}

// extent returns what a rule leaves of axis k.
func (f *forest) extent(rule int32, k int) interval { return f.extents[int(rule)*f.axes+k] }

// grow makes the tree of some of the rules.
func (f *forest) grow(of func(*ir.Rule) bool) Cuts {
	f.Cuts = &Cuts{}
	for i := range f.rules {
		if of(&f.rules[i]) {
			f.Order = append(f.Order, int32(i))
		}
	}
	var m met
	f.Root, m = f.build(0, len(f.Order), 0)
	f.Worst, f.Cuts.Cuts, f.Cuts.Rules = m.worst, m.cuts, m.rules
	return *f.Cuts
}

// met counts the cuts and rules that a packet meets in a part of a tree.
type met struct {
	worst       int // rules, at most
	cuts, rules float64
}

// build makes the tree of n rules that begin at first, and returns its root.
func (f *forest) build(first, n, depth int) (root int, m met) {
	if n == 0 {
		return -1, m
	}
	items := f.Order[first : first+n]
	f.Depth = max(f.Depth, depth)
	k, bound, ok := f.choose(items)
	if !ok {
		f.Nodes = append(f.Nodes, Cut{Axis: -1, First: int32(first), Len: int32(n)})
		return len(f.Nodes) - 1, met{n, 0, float64(n)}
	}
	sides := f.part(items, k, bound)
	below, b := f.build(first, sides[0], depth+1)
	above, a := f.build(first+sides[0], sides[1], depth+1)
	both, o := f.build(first+sides[0]+sides[1], sides[2], depth+1)
	f.Nodes = append(f.Nodes, Cut{Axis: int8(k), Bound: bound, Below: int32(below),
		Above: int32(above), Both: int32(both)})
	share := float64(sides[0]) / float64(max(1, sides[0]+sides[1]))
	return len(f.Nodes) - 1, met{
		worst: o.worst + max(b.worst, a.worst),
		cuts:  1 + o.cuts + share*b.cuts + (1-share)*a.cuts,
		rules: o.rules + share*b.rules + (1-share)*a.rules,
	}
}

// part sorts rules by the side of a bound on which they are, in place: below, above, both. Each
// keeps its order.
func (f *forest) part(items []int32, k int, bound uint64) (sides [3]int) {
	n := 0
	for s := range sides {
		first := n
		for _, it := range items {
			if side(f.extent(it, k), bound) == s {
				f.scratch[n] = it
				n++
			}
		}
		sides[s] = n - first
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

// choose picks the cut that leaves the fewest rules in a packet's way, if there is one that is
// worth a node.
func (f *forest) choose(items []int32) (k int, bound uint64, ok bool) {
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

// middle returns the median of where the intervals of an axis begin and end, of not more than some
// hundred of them; no interval that leaves everything open counts.
func (f *forest) middle(items []int32, k int) (bound uint64, ok bool) {
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
