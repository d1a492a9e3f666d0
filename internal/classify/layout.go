package classify

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// A pool is an array of 64-bit words. A descriptor is one of:
//
//	node  mask<<48 | code<<38 | shift<<32 | first child (mask = children - 1, below 1<<15)
//	leaf  1<<63 | rank<<56 | more<<54 | count<<49 | value<<41 | code<<38 | shift<<32 | first entry
//
// The children of a node are descriptors; the index is the field that code stands for, shifted by shift,
// under the mask. At a leaf the lowest eight bits of the field so shifted are value, or no entry matches:
// its gate. Its rank is the upper bits of the lowest result in it and in what follows: with a better match
// there is nothing in it. An entry of a leaf is, for IPv4,
//
//	source<<32 | destination, ports, result<<32 | open bits of the destination<<8 | of the source
//
// and for IPv6 the four halves of the addresses (source upper, lower, destination upper, lower),
// the four masks, ports, result<<32. ports is
// lo0 | (hi0-lo0)<<16 | lo1<<32 | (hi1-lo1)<<48. Entries of a leaf are in order of their results.
//
// Where more is 1 two words stand before the first entry: the descriptor to go on with, and the
// lowest result of what follows: a walk with a better match ends there.
const (
	entry4 = 3
	entry6 = 10

	header    = 2 // words before the first entry of a leaf that others follow
	firstWord = 8 // no descriptor points below: there is room for a header before it
	line      = 8 // words of a cache line

	rankBits   = 7
	leafFlag   = 1 << 63
	rankShift  = 56
	more       = 1 << 54
	countShift = 49
	countMask  = 0x1f
	valueShift = 41
	valueMask  = 0xff
	codeShift  = 38
	codeMask   = 7
	bitsShift  = 32 // of the shift
	bitsMask   = 63

	// nothing is a leaf without entries that any match is better than.
	nothing = leafFlag | (1<<rankBits-1)<<rankShift

	// open is the gate that all pass: a port has no bits beyond 16.
	open = 3<<codeShift | 32<<bitsShift

	// none is above all results, and none itself in its lower half.
	none = uint64(1) << 32
)

func entryWords(width int) int {
	if width == 32 {
		return entry4
	}
	return entry6
}

// room is how many words the emitted code may read from the first entry of a leaf.
func (p *Pool) room() int { return maxLeaf * entryWords(p.bits) }

// padded is the words with so much room behind them that the bounds check of the emitted code need
// look at the start of a leaf only.
func (p *Pool) padded() []uint64 { return append(p.words, make([]uint64, p.room())...) }

// align begins a new cache line unless n words fit into this one.
func (p *Pool) align(n int) {
	if used := len(p.words) % line; used != 0 && used+n > line {
		p.words = append(p.words, make([]uint64, line-used)...)
	}
}

func (p *Pool) reserve(n int) int {
	p.align(n)
	at := len(p.words)
	p.words = append(p.words, make([]uint64, n)...)
	return at
}

// code tells where a field lies in Fields, in words.
var code = [numFields]int{src: 0, dst: 1, port0: 2, port1: 3, srcLo: 4, dstLo: 5}

func node(first int, w window) uint64 {
	return uint64(1<<w.bits-1)<<48 | uint64(code[w.field])<<codeShift | uint64(w.shift)<<bitsShift | uint64(first)
}

// gate is the eight bits that all rules have in common and of which the region leaves most open, as a part of a leaf's descriptor.
func (g *region) gate(rules []*rule) uint64 {
	best, most := uint64(open), 0
	for f := range numFields {
		lo, hi := rules[0].field[f].lo, rules[0].field[f].hi
		for _, r := range rules[1:] {
			lo, hi = min(lo, r.field[f].lo), max(hi, r.field[f].hi)
		}
		unknown := ^g.known[f] & (uint64(1)<<bits.Len64(g.hull[f].hi) - 1)
		for shift := bits.Len64(lo ^ hi); unknown>>shift != 0; shift++ {
			if n := bits.OnesCount8(uint8(unknown >> shift)); n > most {
				most = n
				best = lo>>shift&valueMask<<valueShift | uint64(code[f])<<codeShift | uint64(shift)<<bitsShift
			}
		}
	}
	return best
}

// after is what a walk goes on with when it has been through a leaf.
type after struct {
	d     uint64 // descriptor, 0 for nothing
	first uint64 // lowest result of it and of what comes behind it
	steps int    // nodes from d to the leaf
}

// leaf gives the descriptor of a leaf with the rules in a region, and writes their entries.
func (b *builder) leaf(g *region, rules []*rule, then after) uint64 {
	if len(rules) > maxLeaf {
		first := rules[maxLeaf].result()
		if then.d != 0 {
			first = min(first, then.first)
		}
		then = after{d: b.leaf(g, rules[maxLeaf:], then), first: first}
		rules = rules[:maxLeaf]
	}
	lowest, gate := none-1, uint64(open)
	if then.d != 0 {
		lowest = then.first
	}
	if len(rules) > 0 {
		lowest, gate = min(lowest, rules[0].result()), g.gate(rules)
	}
	return leafFlag | lowest>>b.pool.scale<<rankShift | gate | b.entries(rules, then)
}

// entries writes the entries of a leaf, and gives the rest of its descriptor; leaves with the same rules and the same
// behind them share their entries.
func (b *builder) entries(rules []*rule, then after) uint64 {
	b.name = binary.LittleEndian.AppendUint64(b.name[:0], then.d)
	for _, r := range rules {
		b.name = binary.LittleEndian.AppendUint32(b.name, uint32(r.prio))
	}
	if d, ok := b.leaves[string(b.name)]; ok {
		return d
	}
	p := b.pool
	d := uint64(len(rules)) << countShift
	size := len(rules) * entryWords(p.bits)
	if then.d != 0 {
		d |= more
		p.align(size + header)
		p.words = append(p.words, then.d, then.first)
	} else {
		p.align(size)
	}
	d |= uint64(len(p.words))
	for _, r := range rules {
		p.words = appendEntry(p.words, p.bits, r)
	}
	b.table.stats.entries += len(rules)
	b.leaves[string(b.name)] = d
	return d
}

func appendEntry(words []uint64, width int, r *rule) []uint64 {
	sHi, sLo, sMaskHi, sMaskLo := halves(r.box.Src)
	dHi, dLo, dMaskHi, dMaskLo := halves(r.box.Dst)
	last := r.result() << 32
	if width == 32 {
		words = append(words, sHi<<32|dHi)
		last |= uint64(32-r.box.Dst.Bits())<<8 | uint64(32-r.box.Src.Bits())
	} else {
		words = append(words, sHi, sLo, dHi, dLo, sMaskHi, sMaskLo, dMaskHi, dMaskLo)
	}
	p := r.box.Ports
	return append(words, uint64(p[0].Lo)|uint64(p[0].Hi-p[0].Lo)<<16|uint64(p[1].Lo)<<32|uint64(p[1].Hi-p[1].Lo)<<48, last)
}

// halves gives value and mask of a prefix; an IPv4 prefix fills the upper half's low 32 bits.
func halves(p netip.Prefix) (hi, lo, maskHi, maskLo uint64) {
	const ones = ^uint64(0)
	if p.Addr().Is4() {
		a := p.Addr().As4()
		return uint64(binary.BigEndian.Uint32(a[:])), 0, uint64(uint32(ones << (32 - p.Bits()))), 0
	}
	a := p.Addr().As16()
	hi, lo = binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])
	if p.Bits() <= 64 {
		return hi, lo, ones << (64 - p.Bits()), 0
	}
	return hi, lo, ones, ones << (128 - p.Bits())
}

// Packet is what a look-up asks about: addresses as the upper and lower half in host order, an
// IPv4 address in the upper half's low 32 bits.
type Packet struct {
	SrcHi, SrcLo, DstHi, DstLo uint64
	Ports                      [2]uint16
}

// Lookup is the reference for the emitted code: the lowest result of the boxes that match, or 0.
func (t *Table) Lookup(p Packet) uint32 {
	best := none
	for _, tr := range t.trees {
		if tr.first < best {
			best = t.pool.walk(tr.root, &p, best)
		}
	}
	return uint32(best)
}

// walk goes from a descriptor through a leaf and through what follows it, and gives the lowest result there, or best if that is lower.
func (p *Pool) walk(d uint64, q *Packet, best uint64) uint64 {
	fields := [...]uint64{q.SrcHi, q.DstHi, uint64(q.Ports[0]), uint64(q.Ports[1]), q.SrcLo, q.DstLo}
	shifted := func() uint64 { return fields[d>>codeShift&codeMask] >> (d >> bitsShift & bitsMask) }
	n := entryWords(p.bits)
	for {
		for d&leafFlag == 0 {
			d = p.words[uint64(uint32(d))+shifted()&(d>>48)]
		}
		if d>>rankShift&(1<<rankBits-1) > best>>p.scale {
			return best
		}
		if shifted()&valueMask == d>>valueShift&valueMask {
			first := p.words[uint32(d):]
			for i := range int(d >> countShift & countMask) {
				if e := first[i*n:][:n]; matches(e, q) {
					best = min(best, e[n-1]>>32)
					break
				}
			}
		}
		if d&more == 0 {
			return best
		}
		next := p.words[uint32(d)-header:]
		if best <= next[1] {
			return best
		}
		d = next[0]
	}
}

func matches(e []uint64, p *Packet) bool {
	n := len(e)
	if n == entry4 {
		if uint32(p.SrcHi^e[0]>>32)>>(e[2]&0xff) != 0 || uint32(p.DstHi^e[0])>>(e[2]>>8&0xff) != 0 {
			return false
		}
	} else {
		for i, v := range [4]uint64{p.SrcHi, p.SrcLo, p.DstHi, p.DstLo} {
			if (v^e[i])&e[4+i] != 0 {
				return false
			}
		}
	}
	ports := e[n-2]
	return p.Ports[0]-uint16(ports) <= uint16(ports>>16) && p.Ports[1]-uint16(ports>>32) <= uint16(ports>>48)
}
