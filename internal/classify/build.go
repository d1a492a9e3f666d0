package classify

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
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
	prio  int
}

func newRule(width int, b *Box, prio int) *rule {
	return &rule{box: b, prio: prio, field: [numFields]interval{
		upper(b.Src), upper(b.Dst),
		{uint64(b.Ports[0].Lo), uint64(b.Ports[0].Hi)}, {uint64(b.Ports[1].Lo), uint64(b.Ports[1].Hi)},
		lower(b.Src), lower(b.Dst),
	}}
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
	chooser
}

func newBuilder(p *Pool, t *Table) *builder {
	return &builder{pool: p, table: t, leaves: map[string]uint64{}}
}

// build lays a region out, in front of what follows it, and returns its descriptor and how many
// nodes there are from there to a leaf at most. growth is how many entries a rule may
// become on average.
func (b *builder) build(g region, rules []*rule, then after, growth float64, depth int) (d uint64, steps int) {
	for i, r := range rules {
		if r.covers(&g) {
			rules = rules[:i+1]
			if key(r) < then.first {
				then = after{}
			}
			break
		}
	}
	if len(rules) == 0 {
		if depth+then.steps > maxSteps {
			return b.leaf(nil, then), 0
		}
		return then.d, then.steps
	}
	p, ok := plan{}, false
	if depth < maxDepth {
		p, ok = b.choose(&g, rules, growth)
	}
	if !ok {
		return b.leaf(rules, then), 0
	}
	if p.aside > 0 {
		var aside []*rule
		rules, aside = part(p.w, rules, p.most)
		d, steps := b.build(g, aside, then, growth, 0)
		b.table.stats.aside++
		first := key(aside[0])
		if then.d != 0 {
			first = min(first, then.first)
		}
		then = after{d, first, steps}
	}
	return b.divide(g, p.w, rules, then, growth, depth)
}

// divide makes a node. Neighbouring children with the same rules are one.
func (b *builder) divide(g region, w window, rules []*rule, then after, growth float64, depth int) (d uint64, steps int) {
	starts := make([]bool, 1<<w.bits+1)
	for _, r := range rules {
		i, j := w.span(r)
		starts[i], starts[j+1] = true, true
	}
	starts[0] = true
	number := make([]int32, 1<<w.bits) // of the segment that a child belongs to
	var segments [][2]int
	for k := range number {
		if starts[k] {
			segments = append(segments, [2]int{k, k})
		}
		number[k] = int32(len(segments) - 1)
		segments[len(segments)-1][1] = k
	}
	lists := make([][]*rule, len(segments))
	total := 0
	for _, r := range rules {
		i, j := w.span(r)
		for s := number[i]; s <= number[j]; s++ {
			lists[s] = append(lists[s], r)
			total++
		}
	}
	growth = max(1, growth*float64(len(rules))/float64(total))
	at := b.pool.reserve(len(number))
	for s, seg := range segments {
		sub := g
		lo, hi := w.base+uint64(seg[0])<<w.shift, w.base+uint64(seg[1]+1)<<w.shift-1
		sub.cut[w.field] = interval{lo, hi}
		if !w.skipped && g.hull[w.field] == g.cut[w.field] {
			sub.hull[w.field] = sub.cut[w.field]
		}
		d, n := b.build(sub, lists[s], then, growth, depth+1)
		steps = max(steps, n+1)
		for k := seg[0]; k <= seg[1]; k++ {
			b.pool.words[at+k] = d
		}
	}
	return node(at, w), steps
}

// part parts the rules into those that span at most most segments of the window, and the others.
func part(w window, rules []*rule, most int32) (in, aside []*rule) {
	var c counter
	c.count(w, rules)
	for i, r := range rules {
		if c.copies(i) <= most {
			in = append(in, r)
		} else {
			aside = append(aside, r)
		}
	}
	return in, aside
}
