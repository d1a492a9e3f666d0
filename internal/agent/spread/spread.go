// Package spread says how sources of packets are spread over the addresses: whether they look drawn
// at random, as forged ones are, or are those of clients.
//
// In go addresses, out comes what they look like. The package must never judge a single address.
package spread

import (
	"math"
	"net/netip"
	"slices"
)

const (
	// judged is the smallest number of sources whose spread says anything.
	judged = 200
	// even is the greatest relative variance of random sources over blocks, beyond that of
	// counting. That of the clients of a service is near 1: most networks have none, some many.
	even = 0.15
)

// Sources is the distribution of the sources of packets.
type Sources struct {
	Packets, Different int
	Forged             bool // they look drawn at random
}

// Of says whether sources look drawn at random. Of random ones nearly all are different as
// far as the space allows, and they fill the blocks of that space evenly. The space is the prefix
// that nearly all have in common. One that is as narrow as one network says no more about forging,
// and is a field for rules.
func Of(addrs []netip.Addr) Sources {
	seen := map[netip.Addr]bool{}
	six := 0
	for _, a := range addrs {
		seen[a] = true
		if a.Is6() {
			six++
		}
	}
	s := Sources{Packets: len(addrs), Different: len(seen)}
	if s.Packets < judged {
		return s
	}
	var of [][16]byte
	for _, a := range addrs {
		if a.Is6() == (2*six > len(addrs)) {
			of = append(of, a.As16())
		}
	}
	from, narrow := 96, 112 // an IPv4 address is the end of the 16 bytes
	if 2*six > len(addrs) {
		from, narrow = 0, 33
	}
	common := commonBits(of, from)
	if common >= narrow {
		return s
	}
	var blocks [allBlocks]int
	for _, a := range of {
		blocks[octet(a, common)]++
	}
	used := 0
	for _, n := range blocks {
		if n > 0 {
			used++
		}
	}
	n := float64(len(of))
	// as many blocks as random addresses reach: generators leave out up to 36 of them
	if float64(used) < 0.9*usedBlocks*(1-math.Exp(-n/usedBlocks)) {
		return s
	}
	mean, variance := n/float64(used), 0.0
	for _, c := range blocks {
		if c > 0 {
			variance += (float64(c) - mean) * (float64(c) - mean)
		}
	}
	variance /= float64(used)
	space := math.Exp2(float64(128-common)) * float64(used) / allBlocks
	expected := space * -math.Expm1(-n/space)
	s.Forged = (variance-mean)/(mean*mean) <= even && float64(len(seen)) >= 0.9*expected
	return s
}

// Blocks of 8 bits: all, and those that generators of random addresses mostly use.
const (
	allBlocks  = 256
	usedBlocks = 220
	low        = allBlocks - usedBlocks + usedBlocks/4
	fewest     = 3 // addresses in a block, by which it is told from one with none
)

// Drawn returns how many of the addresses are drawn at random from all of a family, from 0 to 1,
// also where others are among them. Of IPv6 all is 2000::/3 (RFC 4291 section 2.4). It is by the
// quarter of blocks that has fewest: random addresses come from all of them alike, and the clients
// of a service leave most of these out. It errs to less.
func Drawn(addrs []netip.Addr) float64 {
	var four, six [allBlocks]int
	for _, a := range addrs {
		switch b := a.As16(); {
		case a.Is4():
			four[b[12]]++
		case b[0]>>5 == 1:
			six[b[0]<<3|b[1]>>5]++
		}
	}
	out := 0
	for _, blocks := range [][]int{four[:], six[:]} {
		slices.Sort(blocks)
		if blocks[low] >= fewest {
			out += blocks[low] * usedBlocks
		}
	}
	return min(1, float64(out)/float64(max(1, len(addrs))))
}

// commonBits returns the first bit from which on addresses differ: in fewer than 98 of 100 they are
// as in most.
func commonBits(of [][16]byte, from int) int {
	for bit := from; bit < 120; bit++ {
		ones := 0
		for _, a := range of {
			ones += int(a[bit/8] >> (7 - bit%8) & 1)
		}
		if most := max(ones, len(of)-ones); float64(most) < 0.98*float64(len(of)) {
			return bit
		}
	}
	return 120
}

// octet returns 8 bits of an address from one on.
func octet(a [16]byte, bit int) byte {
	w := uint16(a[bit/8]) << 8
	if bit/8 < 15 {
		w |= uint16(a[bit/8+1])
	}
	return byte(w >> (8 - bit%8))
}
