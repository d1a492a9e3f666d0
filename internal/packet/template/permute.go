package template

import "math/bits"

const mixRounds = 4

// permutation is a bijection of 0..space-1, chosen by a seed: add, multiply by an odd number and
// xor-shift are each bijections of 0..mask, and what leads outside the space is mapped again until
// it is inside (cycle walking). Programs compute the same (program.go).
type permutation struct {
	space, mask uint64
	shift       uint32
	mul, add    [mixRounds]uint64
}

// newPermutation makes the permutation of 0..space-1; space is at least 1.
func newPermutation(space, seed uint64) permutation {
	width := max(bits.Len64(space-1), 1)
	p := permutation{space: space, mask: 1<<width - 1, shift: uint32(width+1) / 2}
	for i := range p.mul {
		p.mul[i] = splitmix(&seed) | 1
		p.add[i] = splitmix(&seed)
	}
	return p
}

func (p *permutation) mix(x uint64) uint64 {
	x &= p.mask
	for i := range p.mul {
		x = (x + p.add[i]) * p.mul[i] & p.mask
		x ^= x >> p.shift
	}
	return x
}

// at returns where x, below the space, goes.
func (p *permutation) at(x uint64) uint64 {
	x = p.mix(x)
	for x >= p.space {
		x = p.mix(x)
	}
	return x
}

// splitmix steps a SplitMix64 generator (Steele, Lea, Flood 2014).
func splitmix(s *uint64) uint64 {
	*s += 0x9e3779b97f4a7c15
	z := *s
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
