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
	bits  int
}

func newRule(width int, b *Box, prio int) *rule {
	r := &rule{box: b, prio: prio, bits: min(width, 64)}
	r.field = [numFields]interval{
		upper(b.Src), upper(b.Dst),
		{uint64(b.Ports[0].Lo), uint64(b.Ports[0].Hi)}, {uint64(b.Ports[1].Lo), uint64(b.Ports[1].Hi)},
		lower(b.Src), lower(b.Dst),
	}
	return r
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
func (r *rule) wide(field int) bool {
	open := bits.Len64(r.field[field].hi - r.field[field].lo)
	if r.bits == 32 {
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

// Costs in ns, measured on hot memory; only their ratio matters.
const (
	levelCost = 6.0
	entryCost = 2.5
	leafCost  = 2.0
)

// expected guesses the cost of n rules below a node.
func expected(n float64) float64 {
	const small = 4
	if n <= small {
		return leafCost + entryCost*n/2
	}
	return leafCost + entryCost*small/2 + levelCost*math.Log2(n/small)/4
}

// window is a choice of index bits.
type window struct {
	field, shift, bits int
	base               uint64 // first value of the block that the window divides
	skipped            bool   // bits above it are not looked at
}

// block is the smallest aligned block that holds the rules which do not fill the region.
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
	return lo >> size << size, size, true
}

// span of the children that a rule falls into.
func (w *window) span(r *rule) (i, j int) {
	last := w.base + (uint64(1)<<(w.shift+w.bits) - 1)
	a, b := max(r.field[w.field].lo, w.base), min(r.field[w.field].hi, last)
	return int((a - w.base) >> w.shift), int((b - w.base) >> w.shift)
}

// copies is how many entries a rule may become on average in one step.
const copies = 2.5

// choose picks the window with the least expected cost, or none if comparing all is cheaper.
func choose(g *region, rules []*rule) (best window, ok bool) {
	n := float64(len(rules))
	least := leafCost + entryCost*n/2
	if len(rules) > maxLeaf {
		least = math.Inf(1)
	}
	counts := make([]int32, 1<<maxBits+1)
	middles := make([]int32, 1<<maxBits)
	for f := range numFields {
		base, size, ok2 := block(g, rules, f)
		if !ok2 {
			continue
		}
		w := window{field: f, base: base, skipped: bits.Len64(g.cut[f].hi-g.cut[f].lo) > size}
		for w.bits = 1; w.bits <= min(maxBits, size); w.bits++ {
			w.shift = size - w.bits
			kids := 1 << w.bits
			clear(counts[:kids+1])
			clear(middles[:kids])
			total := 0
			for _, r := range rules {
				i, j := w.span(r)
				counts[i]++
				counts[j+1]--
				middles[(i+j)/2]++
				total += j - i + 1
			}
			if float64(total) > copies*n+maxLeaf || kids > 8*len(rules)+16 {
				break
			}
			cost := levelCost + 0.3*float64(total)/n + 0.02*float64(kids)/n
			var here int32
			for k := range kids {
				here += counts[k]
				if middles[k] > 0 {
					cost += float64(middles[k]) / n * expected(float64(here))
				}
			}
			if cost < least {
				least, best, ok = cost, w, true
			}
		}
	}
	return best, ok
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

// build lays a region out and returns its descriptor. Rules that a leaf has no room for are added
// to spill.
func (b *layout) build(g region, rules []*rule, depth int) uint64 {
	for i, r := range rules {
		if r.covers(&g) {
			rules = rules[:i+1]
			break
		}
	}
	w, ok := window{}, false
	if depth < maxDepth && len(b.words) < b.limit {
		w, ok = choose(&g, rules)
	}
	if !ok {
		return b.leaf(rules)
	}
	kids := make([][]*rule, 1<<w.bits)
	for _, r := range rules {
		i, j := w.span(r)
		for k := i; k <= j; k++ {
			kids[k] = append(kids[k], r)
		}
	}
	at := b.reserve(len(kids))
	b.depth = max(b.depth, depth+1)
	for k := range kids {
		sub := g
		lo := w.base + uint64(k)<<w.shift
		sub.cut[w.field] = interval{lo, lo + (uint64(1)<<w.shift - 1)}
		if !w.skipped && g.hull[w.field] == g.cut[w.field] {
			sub.hull[w.field] = sub.cut[w.field]
		}
		d := b.build(sub, kids[k], depth+1)
		b.words[at+k] = d
	}
	return node(at, w)
}
