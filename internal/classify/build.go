package classify

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"
)

// The fields that a tree cuts on. An IPv6 address has two, its upper and its lower half.
const (
	src = iota
	dst
	port0
	port1
	srcLo
	dstLo
	numFields
)

// interval is inclusive.
type interval struct{ lo, hi uint64 }

func (i interval) contains(j interval) bool { return i.lo <= j.lo && j.hi <= i.hi }

// rule is a box as the builder sees it.
type rule struct {
	field [numFields]interval
	box   *Box
	prio  int // place among the rules of the table
}

// result is what a match answers; the lower wins.
func (r *rule) result() uint64 { return uint64(r.box.Result) }

// ruleOf is the rule of a box, without its place.
func ruleOf(width int, b *Box) rule {
	return rule{box: b, field: [numFields]interval{
		upper(b.Src), upper(b.Dst),
		{uint64(b.Ports[0].Lo), uint64(b.Ports[0].Hi)}, {uint64(b.Ports[1].Lo), uint64(b.Ports[1].Hi)},
		lower(b.Src), lower(b.Dst),
	}}
}

// hash is the same for rules with the same fields, in every process.
func (r *rule) hash() uint64 {
	h := uint64(0)
	for _, f := range r.field {
		for _, v := range [2]uint64{f.lo, f.hi} {
			h = bits.RotateLeft64(h^v, 29) * 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, as in Knuth's multiplicative hashing
		}
	}
	return h
}

// upper is the range of a prefix in the address, or in its upper half.
func upper(p netip.Prefix) interval {
	if p.Addr().Is4() {
		a := p.Addr().As4()
		lo := uint64(binary.BigEndian.Uint32(a[:]))
		return interval{lo, lo | (1<<(32-p.Bits()) - 1)}
	}
	a := p.Addr().As16()
	lo := binary.BigEndian.Uint64(a[:8])
	if p.Bits() >= 64 {
		return interval{lo, lo}
	}
	return interval{lo, lo | (math.MaxUint64 >> p.Bits())}
}

// lower is the range of a prefix in the lower half of an IPv6 address; 0 for IPv4.
func lower(p netip.Prefix) interval {
	if p.Addr().Is4() {
		return interval{}
	}
	a := p.Addr().As16()
	lo := binary.BigEndian.Uint64(a[8:])
	return interval{lo, lo | uint64(math.MaxUint64)>>max(p.Bits()-64, 0)}
}

// wide reports whether cutting on an address would copy the rule into many branches: the prefix leaves
// more than half of the bits that tell prefixes apart open.
func (r *rule) wide(width, field int) bool {
	open := bits.Len64(r.field[field].hi - r.field[field].lo)
	if width == 32 {
		return open >= 20
	}
	return open >= 40
}

// region is a part of the space of packets during building.
type region struct {
	cut  [numFields]interval // where the rules of the region are compared with windows of bits
	hull [numFields]interval // all packets that can come here; larger than cut where bits were skipped

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

// covers reports whether the rule matches every packet that can come to the region.
func (r *rule) covers(g *region) bool {
	for f := range r.field {
		if !r.field[f].contains(g.hull[f]) {
			return false
		}
	}
	return true
}

// builder makes the trees of one table.
type builder struct {
	pool   *Pool
	table  *Table
	leaves map[string]uint64 // descriptors by rules and by what follows
	name   []byte            // scratch
	work   int               // rules of regions that may still be looked at
	chooser
}

// workPerRule bounds the time that building takes: real sets need a tenth of it. What is left then
// is rows of leaves.
const workPerRule = 300

func newBuilder(p *Pool, t *Table, rules int) *builder {
	return &builder{pool: p, table: t, leaves: map[string]uint64{}, work: workPerRule * rules}
}

// place is where in the trees a region is.
type place struct {
	depth  int     // nodes above it in its tree
	asides int     // trees in front of its tree, from which its rules were put aside
	growth float64 // how many entries a rule may still become on average
}

// build lays a region out, in front of what follows it, and returns its descriptor and how many
// nodes there are from there to a leaf at most.
func (b *builder) build(g region, rules []*rule, then after, at place) (d uint64, steps int) {
	for i, r := range rules {
		if r.covers(&g) {
			rules = rules[:i+1]
			if r.result() <= then.first {
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
	if p.aside > 0 {
		var aside []*rule
		rules, aside = b.part(p, rules)
		then = b.behind(g, aside, then, at)
	}
	return b.divide(g, p.w, rules, then, at)
}

// behind builds the tree of rules that are put aside, and says how a walk comes to it.
func (b *builder) behind(g region, aside []*rule, then after, at place) after {
	b.table.stats.aside++
	d, steps := b.build(g, aside, then, place{asides: at.asides + 1, growth: at.growth})
	first := aside[0].result()
	if then.d != 0 {
		first = min(first, then.first)
	}
	return after{d, first, steps}
}

// child is the region of the children from k up to end. Where packets from outside the block come to it
// too its cut stays aligned, so that a block within it is no larger than the region that rules of theirs fill.
func (g region) child(w window, k, end int) region {
	f := w.field
	cut := interval{w.base + uint64(k)<<w.shift, w.base + uint64(end)<<w.shift - 1}
	if exact := !w.skipped && g.hull[f] == g.cut[f]; exact {
		g.cut[f], g.hull[f] = cut, cut
	} else {
		g.cut[f] = aligned(cut.lo, cut.hi)
	}
	same := ^uint64(0) << bits.Len(uint(k^(end-1))) // bits of the index that the children have in common
	g.known[f] |= (same & (1<<w.bits - 1)) << w.shift
	return g
}

// divide makes a node. Neighbouring children with the same rules are one.
func (b *builder) divide(g region, w window, rules []*rule, then after, at place) (d uint64, steps int) {
	b.count(w, rules)
	number := slices.Clone(b.segment[:1<<w.bits])
	lists := make([][]*rule, b.segments)
	total := 0
	for _, r := range rules {
		i, j := w.span(r)
		for s := number[i]; s <= number[j]; s++ {
			lists[s] = append(lists[s], r)
			total++
		}
	}
	below := place{at.depth + 1, at.asides, max(1, at.growth*float64(len(rules))/float64(total))}
	first := b.pool.reserve(len(number))
	for k := 0; k < len(number); {
		end := k + 1
		for end < len(number) && number[end] == number[k] {
			end++
		}
		d, n := b.build(g.child(w, k, end), lists[number[k]], then, below)
		steps = max(steps, n+1)
		for ; k < end; k++ {
			b.pool.words[first+k] = d
		}
	}
	return node(first, w), steps
}

// part parts the rules into those that span no more segments of the plan's window than it says, and the others.
func (b *builder) part(p plan, rules []*rule) (in, aside []*rule) {
	b.count(p.w, rules)
	for i, r := range rules {
		if b.copies(i) <= p.most {
			in = append(in, r)
		} else {
			aside = append(aside, r)
		}
	}
	return in, aside
}
