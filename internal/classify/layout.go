package classify

import (
	"encoding/binary"
	"net/netip"
)

// A table is an array of 64-bit words. A descriptor is one of:
//
//	node  mask<<48 | code*8<<40 | shift<<32 | first child   (mask = children - 1, not 0; code of the field)
//	leaf  count<<32 | first entry
//
// The children of a node are descriptors. An entry of a leaf is, for IPv4,
//
//	source<<32 | destination, the masks likewise, ports, priority<<32 | result
//
// and for IPv6 the four halves of the addresses (source upper, lower, destination upper, lower),
// the four masks, ports, priority<<32 | result. ports is
// lo0 | (hi0-lo0)<<16 | lo1<<32 | (hi1-lo1)<<48. Entries of a leaf are in order of priority.
const (
	entry4 = 4
	entry6 = 10
)

func entryWords(width int) int {
	if width == 32 {
		return entry4
	}
	return entry6
}

// layout lays out one tree behind those before it.
type layout struct {
	bits   int
	words  []uint64
	limit  int // words that may be used before regions stop being divided
	depth  int
	widest int
	leaves map[string]uint64 // descriptors by the rules of the leaf
	spill  map[*rule]bool
}

// add builds a tree of the rules and returns those that did not fit, in order.
func (t *Table) add(rules []*rule) []*rule {
	b := &layout{
		bits:   t.bits,
		words:  t.words,
		limit:  len(t.words) + 1<<14 + 64*len(rules),
		leaves: map[string]uint64{},
		spill:  map[*rule]bool{},
	}
	root := b.build(everything(t.bits), rules, 0)
	t.words = b.words
	t.trees = append(t.trees, tree{root: root, depth: b.depth, widest: b.widest, first: uint64(rules[0].prio) << 32, rules: len(rules)})
	var left []*rule
	for _, r := range rules {
		if b.spill[r] {
			left = append(left, r)
		}
	}
	return left
}

// pad makes room behind the last entry, so that the bounds check of the emitted code needs to
// look at the start of a leaf only.
func (t *Table) pad() {
	t.words = append(t.words, make([]uint64, maxLeaf*entryWords(t.bits)+1)...)
}

func (b *layout) reserve(n int) int {
	at := len(b.words)
	b.words = append(b.words, make([]uint64, n)...)
	return at
}

// code tells where on the stack a field lies, in words from fieldsAt. For IPv4 its lower two bits
// do, from SrcAt.
var code = [numFields]int{srcLo: 2, dstLo: 3, src: 4, dst: 5, port0: 6, port1: 7}

func node(first int, w window) uint64 {
	return uint64(1<<w.bits-1)<<48 | uint64(code[w.field]*8)<<40 | uint64(w.shift)<<32 | uint64(first)
}

// leaf writes the entries of the rules; equal leaves share them.
func (b *layout) leaf(rules []*rule) uint64 {
	if len(rules) > maxLeaf {
		for _, r := range rules[maxLeaf:] {
			b.spill[r] = true
		}
		rules = rules[:maxLeaf]
	}
	if len(rules) == 0 {
		return 0
	}
	b.widest = max(b.widest, len(rules))
	key := make([]byte, 0, 4*len(rules))
	for _, r := range rules {
		key = binary.LittleEndian.AppendUint32(key, uint32(r.prio))
	}
	if d, ok := b.leaves[string(key)]; ok {
		return d
	}
	d := uint64(len(rules))<<32 | uint64(len(b.words))
	for _, r := range rules {
		b.words = appendEntry(b.words, b.bits, r)
	}
	b.leaves[string(key)] = d
	return d
}

func appendEntry(words []uint64, width int, r *rule) []uint64 {
	sHi, sLo, sMaskHi, sMaskLo := halves(r.box.Src)
	dHi, dLo, dMaskHi, dMaskLo := halves(r.box.Dst)
	if width == 32 {
		words = append(words, sHi<<32|dHi, sMaskHi<<32|dMaskHi)
	} else {
		words = append(words, sHi, sLo, dHi, dLo, sMaskHi, sMaskLo, dMaskHi, dMaskLo)
	}
	p := r.box.Ports
	return append(words,
		uint64(p[0].Lo)|uint64(p[0].Hi-p[0].Lo)<<16|uint64(p[1].Lo)<<32|uint64(p[1].Hi-p[1].Lo)<<48,
		uint64(r.prio)<<32|uint64(r.box.Result))
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

// Lookup is the reference for the emitted code: the result of the first box that matches, or 0.
func (t *Table) Lookup(p Packet) uint32 {
	best := ^uint64(0)
	for i := range t.trees {
		if tr := &t.trees[i]; tr.first < best {
			best = min(best, t.find(tr.root, &p))
		}
	}
	if best == ^uint64(0) {
		return 0
	}
	return uint32(best)
}

func (t *Table) find(d uint64, p *Packet) uint64 {
	fields := [8]uint64{2: p.SrcLo, 3: p.DstLo, 4: p.SrcHi, 5: p.DstHi, 6: uint64(p.Ports[0]), 7: uint64(p.Ports[1])}
	for d>>48 != 0 {
		index := fields[d>>43&7] >> (d >> 32 & 63) & (d >> 48)
		d = t.words[uint64(uint32(d))+index]
	}
	n := entryWords(t.bits)
	for i := range int(d >> 32) {
		e := t.words[int(uint32(d))+i*n:][:n]
		if matches(e, p) {
			return e[n-1]
		}
	}
	return ^uint64(0)
}

func matches(e []uint64, p *Packet) bool {
	n := len(e)
	if n == entry4 {
		if ((p.SrcHi<<32|p.DstHi)^e[0])&e[1] != 0 {
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
