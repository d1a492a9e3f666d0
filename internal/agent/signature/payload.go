package signature

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"levee/internal/lang/field"
)

const (
	// looked is the number of payload bytes, from the UDP header on, that the search reads.
	looked = 48
	// bytesOf is the largest number of bytes that a term about them has; the language takes 16.
	bytesOf = 8
)

// payload makes terms of bytes behind the UDP header: runs that all packets share, the bits in
// which they differ from good packets, and the beginnings that many have.
func (g *group) payload(ph *field.Phrase) {
	flood := bodiesOf(g.flood, g.inFlood)
	if len(flood) == 0 || float64(len(flood)) < core*float64(len(g.inFlood)) {
		return
	}
	good := bodiesOf(g.good, g.inGood)
	var same [looked]struct {
		value, bits byte
		has         bool // all packets are as long, and bits are the same in core of them
	}
	for at := range same {
		f, n := bitsAt(flood, at)
		if float64(n) < core*float64(len(flood)) {
			continue
		}
		s := &same[at]
		s.has = true
		for bit := range 8 {
			switch ones := f[bit]; {
			case float64(ones) >= 0.998*float64(n):
				s.value |= 1 << bit
				s.bits |= 1 << bit
			case float64(n-ones) >= 0.998*float64(n):
				s.bits |= 1 << bit
			}
		}
		if gb, m := bitsAt(good, at); m > 0 {
			g.apart(ph, at, s.value, s.bits, gb, m)
		}
	}
	for at := 0; at < looked; at++ {
		end := at
		for end < looked && same[end].has && same[end].bits == 0xff && end-at < bytesOf {
			end++
		}
		if end-at >= 2 {
			var run []byte
			for _, s := range same[at:end] {
				run = append(run, s.value)
			}
			g.bytes(ph, at, run, nil)
			at = end - 1
		}
	}
	for _, size := range []int{4, 8} {
		g.beginnings(ph, flood, size)
	}
}

// bytes notes a term.
func (g *group) bytes(ph *field.Phrase, at int, value, mask []byte) {
	text, bits := fmt.Sprintf("%s %d %x", ph.Word, at, value), 8*len(value)
	if mask != nil {
		text += fmt.Sprintf("/%x", mask)
		bits = 1
	}
	g.add(field.Payload, false, 1, 1/float64(uint64(1)<<min(bits, 60)), "%s", text)
}

// apart makes the term of the bits of a byte that are the same in the flood and mostly another in
// good packets.
func (g *group) apart(ph *field.Phrase, at int, value, bits byte, good [8]int, n int) {
	mask := byte(0)
	for bit := range 8 {
		ones := good[bit]
		if value>>bit&1 == 1 {
			ones = n - ones
		}
		if bits>>bit&1 == 1 && 2*ones >= n { // the others have the other value
			mask |= 1 << bit
		}
	}
	if mask != 0 {
		g.bytes(ph, at, []byte{value & mask}, []byte{mask})
	}
}

// beginnings makes terms of the first bytes that many packets have.
func (g *group) beginnings(ph *field.Phrase, flood [][]byte, size int) {
	for at := 0; at+size <= 16; at += 4 {
		var all []uint64
		for _, b := range flood {
			if len(b) >= at+size {
				v := uint64(0)
				for _, c := range b[at : at+size] {
					v = v<<8 | uint64(c)
				}
				all = append(all, v)
			}
		}
		most := frequent(all, fewest)
		slices.SortFunc(most, func(a, b counted[uint64]) int {
			return cmp.Or(b.n-a.n, cmp.Compare(a.value, b.value))
		})
		for _, c := range most[:min(2, len(most))] {
			if float64(c.n) >= fewest*float64(len(flood)) {
				value := binary.BigEndian.AppendUint64(nil, c.value)
				g.bytes(ph, at, value[8-size:], nil)
			}
		}
	}
}

func bodiesOf(v *view, places []int) (out [][]byte) {
	for _, at := range places {
		if b := v.bodies[at]; b != nil {
			out = append(out, b)
		}
	}
	return out
}

// bitsAt counts how often each bit of a byte is set, and in how many bodies the byte is.
func bitsAt(bodies [][]byte, at int) (ones [8]int, n int) {
	for _, b := range bodies {
		if at >= len(b) {
			continue
		}
		n++
		for bit := range 8 {
			ones[bit] += int(b[at] >> bit & 1)
		}
	}
	return ones, n
}
