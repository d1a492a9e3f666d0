package ruletree

import (
	"math/bits"
)

// A pool is an array of 64-bit words. What trees look at of a packet are keys, words of the packet:
// those of IPv4 are source<<32 | destination and ports, those of IPv6 the upper and lower half of
// the source and of the destination, and ports; ports are the first number<<16 | the second. A
// descriptor is one of:
//
//	node  mask<<48 | code<<38 | shift<<32 | first child (mask = children - 1)
//	leaf  3<<62 | rank<<55 | more<<54 | count<<49 | value<<41 | code<<38 | shift<<32 | first entry
//
// The children of a node are descriptors; the index is the key that code is the number of, shifted
// by shift, under the mask, which is below 1<<15. A node on the ports of an IPv4 packet has bit 63
// too, so that the way of addresses asks for leaves and ports at once, and a mask below 1<<14. At a
// leaf the lowest eight bits of the key so shifted are value, or no entry matches: its gate. Its
// rank is the upper bits of the lowest result in it and in what follows: with a better match there
// is nothing in it. An entry of a leaf is, for IPv4,
//
//	source<<32 | destination,
//	result<<41 | needs<<37 | pair<<12 | open bits of the destination<<6 | of the source
//
// and for IPv6 the four halves of the addresses (source upper, lower, destination upper, lower),
// the four masks, ports, result<<41 | needs<<37. Needs say where a better match may be (needs.go).
// ports is lo0 | (hi0-lo0)<<16 | lo1<<32 | (hi1-lo1)<<48, and
// pair the number of such a word in a table of its own: few are different. Entries of a leaf are in
// order of their results.
//
// Where more is 1 two words stand before the first entry: the descriptor to go on with, and the
// lowest result of what follows, as a match with all needs: a walk with a better one ends there.
const (
	entry4 = 2
	entry6 = 10

	header    = 2 // words before the first entry of a leaf that others follow
	firstWord = 8 // no descriptor points below: there is room for a header before it
	line      = 8 // words of a cache line

	leafKind   = 3 << 62
	portKind   = 1 << 63
	maskShift  = 48
	rankBits   = 7
	rankShift  = 55
	moreShift  = 54
	more       = 1 << moreShift
	countShift = 49
	countMask  = 0x1f
	valueShift = 41
	valueMask  = 0xff
	codeShift  = 38
	codeMask   = 7
	bitsShift  = 32 // of the shift
	bitsMask   = 63

	// the last word of an entry
	openBits    = 6
	pairShift   = 2 * openBits
	pairBits    = 25
	needShift   = pairShift + pairBits
	resultShift = needShift + needBits

	// nothing is a leaf without entries. Any match is better. Its lower half is 0, as that of no
	// other descriptor is.
	nothing = leafKind | (1<<rankBits-1)<<rankShift

	// A match is result<<needBits | needs. None is above all and needs all; its result is none in
	// its lower half.
	none = uint64(1)<<(32+needBits) | allNeeds
)

func isLeaf(d uint64) bool { return d>>62 == leafKind>>62 }

// key returns where a field lies in the keys of a packet, for a width of addresses: the number of
// the key, by how many bits it is shifted there, and how many it has.
func key(width, field int) (code, shift, bits int) {
	if width == 32 {
		return [...]int{src: 0, dst: 0, port0: 1, port1: 1}[field],
			[...]int{src: 32, dst: 0, port0: 16, port1: 0}[field],
			[...]int{src: 32, dst: 32, port0: 16, port1: 16}[field]
	}
	return [...]int{src: 0, srcLo: 1, dst: 2, dstLo: 3, port0: 4, port1: 4}[field],
		[...]int{port0: 16, dstLo: 0}[field],
		[...]int{src: 64, srcLo: 64, dst: 64, dstLo: 64, port0: 16, port1: 16}[field]
}

// portCode returns the number of the key of ports.
func portCode(width int) int { code, _, _ := key(width, port1); return code }

// open returns the gate that all pass: the ports have no bits beyond 32.
func open(width int) uint64 { return uint64(portCode(width))<<codeShift | 32<<bitsShift }

func entryWords(width int) int {
	if width == 32 {
		return entry4
	}
	return entry6
}

// room returns how many words the emitted code may read from the first entry of a leaf: so many are
// behind the last, so that its bounds check need look at the start of a leaf only.
func (p *Pool) room() int { return maxLeaf * entryWords(p.bits) }

// reserve returns the place of n words. It takes the shortest rest of a cache line into which they
// fit. Otherwise it takes new words, on a new line unless they fit into the last one; what is left
// of a line becomes a rest.
func (p *Pool) reserve(n int) int {
	for size := n; size < line; size++ {
		if k := len(p.rests[size]) - 1; k >= 0 {
			at := p.rests[size][k]
			p.rests[size] = p.rests[size][:k]
			p.leave(at+n, size-n)
			return at
		}
	}
	if used := p.words.n % line; used != 0 && used+n > line {
		p.leave(p.words.grow(line-used), line-used)
	}
	return p.words.grow(n)
}

// leave keeps n words as a rest.
func (p *Pool) leave(at, n int) {
	if n > 0 {
		p.rests[n] = append(p.rests[n], at)
	}
}

func node(width, first int, w window) uint64 {
	code, shift, _ := key(width, w.field)
	d := uint64(1<<w.bits-1)<<maskShift | uint64(code)<<codeShift |
		uint64(w.shift+shift)<<bitsShift | uint64(first)
	if width == 32 && code == portCode(width) {
		d |= portKind
	}
	return d
}

// maxBitsOf returns the most bits that the index of a node on a field has.
func maxBitsOf(field int) int {
	if field == port0 || field == port1 {
		return maxBits - 1
	}
	return maxBits
}

// gate returns the eight bits that all rules have in common and of which the region leaves most
// open, as a part of a leaf's descriptor.
func (s *ruleSet) gate(g *region, rules []int32) uint64 {
	best, most := open(s.width), 0
	for f := 0; f < s.fields && most < 8; f++ {
		i := s.field(rules[0], f)
		for _, r := range rules[1:] {
			j := s.field(r, f)
			i.lo, i.hi = min(i.lo, j.lo), max(i.hi, j.hi)
		}
		code, at, wide := key(s.width, f)
		unknown := ^g.known[f] & (uint64(1)<<bits.Len64(g.hull[f].hi) - 1)
		for shift := bits.Len64(i.lo ^ i.hi); unknown>>shift != 0 && most < 8; shift++ {
			if at+wide < keyBits(s.width, code) && shift+8 > wide {
				break // the next field of the key is not this one's
			}
			if n := bits.OnesCount8(uint8(unknown >> shift)); n > most {
				most = n
				best = i.lo>>shift&valueMask<<valueShift | uint64(code)<<codeShift |
					uint64(shift+at)<<bitsShift
			}
		}
	}
	return best
}

// keyBits returns how many bits of a key are not always 0.
func keyBits(width, code int) int {
	if code == portCode(width) {
		return 32
	}
	return 64
}

// after is the place where a walk goes on behind a leaf.
type after struct {
	d     uint64 // descriptor, 0 for nothing
	first uint64 // lowest result of it and of what comes behind it
	steps int    // nodes from d to the leaf
}

// leaf gives the descriptor of a leaf with the rules in a region, and writes their entries.
func (b *builder) leaf(g *region, rules []int32, then after) uint64 {
	if len(rules) > maxLeaf {
		first := b.result(rules[maxLeaf])
		if then.d != 0 {
			first = min(first, then.first)
		}
		then = after{d: b.leaf(g, rules[maxLeaf:], then), first: first}
		rules = rules[:maxLeaf]
	}
	lowest, gate := none-1, open(b.pool.bits)
	if then.d != 0 {
		lowest = then.first
	}
	if len(rules) > 0 {
		lowest, gate = min(lowest, b.result(rules[0])), b.gate(g, rules)
	}
	return leafKind | lowest>>b.pool.scale<<rankShift | gate | b.entries(rules, then)
}

// entries writes the entries of a leaf, and gives the rest of its descriptor; leaves with the same
// entries and the same behind them share them.
func (b *builder) entries(rules []int32, then after) uint64 {
	kind, before := uint64(len(rules))<<countShift, 0
	b.entry = b.entry[:0]
	if then.d != 0 {
		kind, before = kind|more, header
		b.entry = append(b.entry, then.d, then.first<<needBits|allNeeds)
	}
	for _, r := range rules {
		b.entry = b.appendEntry(b.entry, r, b.needs(r, then))
	}
	p, hash := b.pool, hashOf(b.entry)
	number, at, ok := b.leaves.find(hash, func(number uint32) bool {
		d := b.made[number]
		return d>>countShift == kind>>countShift && p.words.have(int(uint32(d))-before, b.entry)
	})
	if ok {
		return b.made[number]
	}
	first := p.reserve(len(b.entry))
	p.words.write(first, b.entry)
	d := kind | uint64(first+before)
	b.table.stats.entries += len(rules)
	b.leaves.put(at, hash, uint32(len(b.made)))
	b.made = append(b.made, d)
	return d
}

// appendEntry appends the entry of a rule.
func (b *builder) appendEntry(words []uint64, rule int32, needs uint64) []uint64 {
	from, to := b.field(rule, src), b.field(rule, dst)
	last := b.result(rule)<<resultShift | needs<<needShift
	if b.width == 32 {
		last |= uint64(bits.Len64(to.lo^to.hi))<<openBits | uint64(bits.Len64(from.lo^from.hi))
		return append(words, from.lo<<32|to.lo,
			last|uint64(b.pool.pairs.number(b.ports(rule)))<<pairShift)
	}
	fromLo, toLo := b.field(rule, srcLo), b.field(rule, dstLo)
	return append(words, from.lo, fromLo.lo, to.lo, toLo.lo, ^(from.lo ^ from.hi),
		^(fromLo.lo ^ fromLo.hi), ^(to.lo ^ to.hi), ^(toLo.lo ^ toLo.hi),
		b.ports(rule), last)
}

// ports packs the ports of a rule into a word.
func (s *ruleSet) ports(rule int32) uint64 {
	a, b := s.field(rule, port0), s.field(rule, port1)
	return a.lo | (a.hi-a.lo)<<16 | b.lo<<32 | (b.hi-b.lo)<<48
}

// pairs are the different words of ports.
type pairs struct {
	words   []uint64
	numbers map[uint64]int
}

// number returns the number of a word, which becomes one of them.
func (p *pairs) number(ports uint64) int {
	n, ok := p.numbers[ports]
	if !ok {
		n = len(p.words)
		p.numbers[ports], p.words = n, append(p.words, ports)
	}
	return n
}

// Packet has the fields of a look-up: addresses as the upper and lower half in host order, an IPv4
// address in the upper half's low 32 bits.
type Packet struct {
	SrcHi, SrcLo, DstHi, DstLo uint64
	Ports                      [2]uint16
}

// Lookup returns the reference for the emitted code: the lowest result of the boxes that match, or
// 0.
func (t *Table) Lookup(p Packet) uint32 {
	best := none
	for i, tr := range t.trees {
		if i == 0 || best&needOf(i) != 0 {
			best = t.pool.walk(tr.root, &p, best)
		}
	}
	return uint32(best >> needBits)
}

// keys returns the bytes that trees compare.
func (q *Packet) keys(width int) (k [keys6]uint64) {
	ports := uint64(q.Ports[0])<<16 | uint64(q.Ports[1])
	if width == 32 {
		return [keys6]uint64{q.SrcHi<<32 | q.DstHi, ports}
	}
	return [keys6]uint64{q.SrcHi, q.SrcLo, q.DstHi, q.DstLo, ports}
}

// mask returns the mask of a node.
func (p *Pool) mask(d uint64) uint64 {
	if p.bits == 32 && d&portKind != 0 {
		d &^= leafKind
	}
	return d >> maskShift
}

// child returns the place of the child of a node that a packet with these keys reaches.
func (p *Pool) child(d uint64, keys *[keys6]uint64) int {
	return int(uint64(uint32(d)) + keys[d>>codeShift&codeMask]>>(d>>bitsShift&bitsMask)&p.mask(d))
}

// walk goes from a descriptor through a leaf and through what follows it, and gives the lowest
// result there, or best if that is lower.
func (p *Pool) walk(d uint64, q *Packet, best uint64) uint64 {
	keys := q.keys(p.bits)
	shifted := func() uint64 { return keys[d>>codeShift&codeMask] >> (d >> bitsShift & bitsMask) }
	n := entryWords(p.bits)
	for {
		for !isLeaf(d) {
			d = p.words.at(p.child(d, &keys))
		}
		if d>>rankShift&(1<<rankBits-1) > best>>needBits>>p.scale {
			return best
		}
		if shifted()&valueMask == d>>valueShift&valueMask {
			for i := range int(d >> countShift & countMask) {
				if e := p.words.slice(int(uint32(d))+i*n, n); p.matches(e, q) {
					found := e[n-1] >> needShift
					if best = min(best, found); found&needBehind == 0 {
						return best
					}
					break
				}
			}
		}
		if d&more == 0 {
			return best
		}
		next := p.words.slice(int(uint32(d))-header, header)
		if best <= next[1] {
			return best
		}
		d = next[0]
	}
}

func (p *Pool) matches(e []uint64, q *Packet) bool {
	if !addressesAgree(e, q) {
		return false
	}
	ports := e[len(e)-2]
	if len(e) == entry4 {
		ports = p.pairs.words[e[1]>>pairShift&(1<<pairBits-1)]
	}
	return q.Ports[0]-uint16(ports) <= uint16(ports>>16) &&
		q.Ports[1]-uint16(ports>>32) <= uint16(ports>>48)
}
