package ruletree

import (
	"math"
	"math/bits"
)

// region is a part of the space of packets during building.
type region struct {
	cut [numFields]interval // where the rules of the region are compared with windows of bits
	// all packets that can come here; larger than cut where bits were skipped
	hull [numFields]interval

	known [numFields]uint64 // bits that are the same in all packets that come here
}

func everything(width int) region {
	var g region
	top := uint64(math.MaxUint64) >> (64 - min(width, 64))
	g.cut = [numFields]interval{{0, top}, {0, top}, {0, 0xffff}, {0, 0xffff}}
	if width == 128 {
		g.cut[srcLo], g.cut[dstLo] = interval{0, top}, interval{0, top}
	}
	g.hull = g.cut
	return g
}

// builder makes the trees of one table.
type builder struct {
	pool     *Pool
	table    *Table
	leaves   index    // numbers of descriptors, by their entries and by what follows
	made     []uint64 // descriptors of leaves, without rank and gate
	entry    []uint64 // scratch: the entries of a leaf
	lists    []int32  // see take
	work     int      // rules of regions that searches may still visit
	number   int      // of the tree in the table
	later    []uint8  // what rules need of later trees, 0 where that was not asked yet
	search   search   // scratch
	searches int      // visits that searches have left
	chooser
}

// workPerRule bounds the time that building takes: real sets need a tenth of it. What is left then
// is rows of leaves.
const workPerRule = 300

func newBuilder(p *Pool, t *Table, s *ruleSet) *builder {
	return &builder{pool: p, table: t, leaves: newIndex(0), work: workPerRule * s.len(),
		later: make([]uint8, s.len()), searches: searchPerRule * s.len(),
		chooser: chooser{ruleSet: s, costs: costsOf(s.len())}}
}

// take gives room for a list until b.lists is cut again to the length that it had before: regions
// are built one within the other.
func (b *builder) take(n int) []int32 {
	at := len(b.lists)
	if at+n > cap(b.lists) { // who has lists of the old one keeps it alive
		b.lists = make([]int32, at, max(2*cap(b.lists), at+n))
	}
	b.lists = b.lists[:at+n]
	return b.lists[at : at+n : at+n]
}

// position is the place of a region in the trees.
type position struct {
	depth  int     // nodes above it in its tree
	asides int     // trees in front of its tree, from which its rules were put aside
	growth float64 // how many entries a rule may still become on average
}

// build lays a region out, in front of what follows it, and returns its descriptor and how many
// nodes there are from there to a leaf at most.
func (b *builder) build(g region, rules []int32, then after, at position) (d uint64, steps int) {
	for i, r := range rules {
		if b.covers(r, &g) {
			rules = rules[:i+1]
			if b.result(r) <= then.first {
				then = after{}
			}
			break
		}
	}
	if len(rules) == 0 {
		switch {
		case then.d == 0:
			return nothing, 0
		case at.depth+then.steps > maxSteps:
			return b.leaf(&g, nil, then), 0
		}
		return then.d, then.steps
	}
	p, ok := plan{}, false
	if b.work -= len(rules); at.depth < maxDepth && b.work > 0 {
		p, ok = b.choose(&g, rules, at)
	}
	if !ok {
		return b.leaf(&g, rules, then), 0
	}
	defer func(n int) { b.lists = b.lists[:n] }(len(b.lists))
	if p.aside > 0 {
		var aside []int32
		rules, aside = b.part(p, rules)
		then = b.behind(g, aside, then, at)
	}
	return b.divide(g, p.w, rules, then, at)
}

// behind builds the tree of rules that are put aside, and says how a walk comes to it.
func (b *builder) behind(g region, aside []int32, then after, at position) after {
	b.table.stats.aside++
	d, steps := b.build(g, aside, then, position{asides: at.asides + 1, growth: at.growth})
	first := b.result(aside[0])
	if then.d != 0 {
		first = min(first, then.first)
	}
	return after{d, first, steps}
}

// child returns the region of the children from k up to end. Where packets from outside the block
// come to it too its cut stays aligned, so that a block within it is no larger than the region that
// rules of theirs fill.
func (g region) child(w window, k, end int) region {
	f := w.field
	cut := interval{w.base + uint64(k)<<w.shift, w.base + uint64(end)<<w.shift - 1}
	if exact := !w.skipped && g.hull[f] == g.cut[f]; exact {
		g.cut[f], g.hull[f] = cut, cut
	} else {
		g.cut[f] = aligned(cut.lo, cut.hi)
	}
	// bits of the index that the children have in common
	same := ^uint64(0) << bits.Len(uint(k^(end-1)))
	g.known[f] |= (same & (1<<w.bits - 1)) << w.shift
	return g
}

// divide makes a node. Neighbouring children with the same rules are one.
func (b *builder) divide(g region, w window, rules []int32, then after, at position) (d uint64,
	steps int) {
	ends, starts, lists := b.parted(w, rules)
	below := position{at.depth + 1, at.asides,
		max(1, at.growth*float64(len(rules))/float64(len(lists)))}
	first := b.pool.reserve(1 << w.bits)
	k := 0
	for s, end := range ends {
		d, n := b.build(g.child(w, k, int(end)), lists[starts[s]:starts[s+1]], then, below)
		steps = max(steps, n+1)
		for ; k < int(end); k++ {
			b.pool.words.set(first+k, d)
		}
	}
	return node(b.width, first, w), steps
}

// parted lists for each segment of a window the child that it ends before, and the rules in it:
// those of segment s are from starts[s] to starts[s+1].
func (b *builder) parted(w window, rules []int32) (ends, starts, lists []int32) {
	b.spans(b.ruleSet, w, rules)
	b.count(w.bits, 0)
	ends, starts, lists = b.take(b.segments), b.take(b.segments+2), b.take(b.copies)
	b.ends(w.bits, ends)
	clear(starts)
	for _, in := range b.in {
		for s := int(in.first); s <= int(in.last); s++ {
			starts[s+2]++
		}
	}
	for s := range b.segments {
		starts[s+2] += starts[s+1]
	}
	for x, in := range b.in {
		for s := int(in.first); s <= int(in.last); s++ {
			lists[starts[s+1]] = rules[x]
			starts[s+1]++
		}
	}
	return ends, starts, lists
}

// part parts the rules into those that span no more segments of the plan's window than it says, and
// the others.
func (b *builder) part(p plan, rules []int32) (in, aside []int32) {
	b.spans(b.ruleSet, p.w, rules)
	b.count(p.w.bits, 0)
	in, aside = b.take(len(rules) - p.aside)[:0], b.take(p.aside)[:0]
	for x, r := range rules {
		if b.in[x].copies() <= p.most {
			in = append(in, r)
		} else {
			aside = append(aside, r)
		}
	}
	return in, aside
}
