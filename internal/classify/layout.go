package classify

import (
	"encoding/binary"
	"math"
	"net/netip"
)

// A pool is an array of 64-bit words. A descriptor is one of:
//
//	0     nothing
//	node  mask<<48 | code*8<<40 | shift<<32 | first child   (mask = children - 1, not 0; code of the field)
//	leaf  more<<40 | count<<32 | first entry
//
// The children of a node are descriptors. An entry of a leaf is, for IPv4,
//
//	source<<32 | destination, the masks likewise, ports, priority<<32 | result
//
// and for IPv6 the four halves of the addresses (source upper, lower, destination upper, lower),
// the four masks, ports, priority<<32 | result. ports is
// lo0 | (hi0-lo0)<<16 | lo1<<32 | (hi1-lo1)<<48. Entries of a leaf are in order of priority.
//
// Where more is 1 two words stand before the first entry: the descriptor to go on with, and the
// lowest priority number of what follows, as the last word of an entry has it: a walk with a better match
// ends there.
const (
	entry4 = 4
	entry6 = 10

	header    = 2       // words before the first entry of a leaf that others follow
	more      = 1 << 40 // of a descriptor
	firstWord = 8       // no descriptor points below: there is room for a header before it
	line      = 8       // words of a cache line
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
	return uint64(1<<w.bits-1)<<48 | uint64(code[w.field]*8)<<40 | uint64(w.shift)<<32 | uint64(first)
}

// after is what a walk goes on with when it has been through a leaf.
type after struct {
	d     uint64 // descriptor, 0 for nothing
	first uint64 // lowest priority number of it and of what comes behind it
	steps int    // nodes from d to the leaf
}

// leaf writes the entries of the rules; equal leaves share them.
func (b *builder) leaf(rules []*rule, then after) uint64 {
	if len(rules) > maxLeaf {
		first := key(rules[maxLeaf])
		if then.d != 0 {
			first = min(first, then.first)
		}
		then = after{d: b.leaf(rules[maxLeaf:], then), first: first}
		rules = rules[:maxLeaf]
	}
	b.name = binary.LittleEndian.AppendUint64(b.name[:0], then.d)
	for _, r := range rules {
		b.name = binary.LittleEndian.AppendUint32(b.name, uint32(r.prio))
	}
	if d, ok := b.leaves[string(b.name)]; ok {
		return d
	}
	p := b.pool
	d := uint64(len(rules)) << 32
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

// none is above all keys; its lower half is no result.
const none = uint64(math.MaxUint32) << 32

// key is the last word of a rule's entry: of two the lower wins.
func key(r *rule) uint64 { return uint64(r.prio)<<32 | uint64(r.box.Result) }

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
		key(r))
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
	best := none
	for _, tr := range t.trees {
		if tr.first < best {
			best = min(best, t.pool.walk(tr.root, &p))
		}
	}
	return uint32(best)
}

// walk goes from a descriptor through a leaf and through what follows it, and gives the last word of the
// best entry, or none.
func (p *Pool) walk(d uint64, q *Packet) uint64 {
	best := none
	fields := [...]uint64{q.SrcHi, q.DstHi, uint64(q.Ports[0]), uint64(q.Ports[1]), q.SrcLo, q.DstLo}
	n := entryWords(p.bits)
	for {
		for d>>48 != 0 {
			index := fields[d>>43&7] >> (d >> 32 & 63) & (d >> 48)
			d = p.words[uint64(uint32(d))+index]
		}
		first := p.words[uint32(d):]
		for i := range int(d >> 32 & 0xff) {
			if e := first[i*n:][:n]; matches(e, q) {
				best = min(best, e[n-1])
				break
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
