package probe

import (
	"encoding/binary"
	"math/bits"

	"github.com/dchest/siphash"
)

// Key is the secret of one run: who does not have it can neither foretell the order of probes nor
// forge an answer to one.
type Key struct{ a, b uint64 }

// hash is SipHash-2-4 of numbers.
func (k Key) hash(words ...uint64) uint64 {
	var buf [8 * 8]byte
	b := buf[:0]
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return siphash.Hash(k.a, k.b, b)
}

// feistelRounds is two more than Luby and Rackoff (1988) need for a permutation that cannot be told
// from a random one: the halves of small spaces are short.
const feistelRounds = 6

// permutation is a keyed bijection of 0..n-1: a balanced Feistel network over the least even number
// of bits that hold n-1. What leads outside is mapped again until it is inside (cycle walking,
// Black and Rogaway 2002), on average less than four times.
type permutation struct {
	key   Key
	n     uint64
	half  int
	round uint64 // tells permutations of one key apart
}

// newPermutation makes that of a number; n is 1 to 1<<32.
func newPermutation(n uint64, key Key, round uint64) permutation {
	return permutation{key, n, max(bits.Len64(n-1)+1, 2) / 2, round}
}

func (p *permutation) f(i int, v uint64) uint64 {
	return p.key.hash(p.round, uint64(i), v) & (1<<p.half - 1)
}

// at returns where i, below n, goes.
func (p *permutation) at(i uint64) uint64 {
	for {
		l, r := i>>p.half, i&(1<<p.half-1)
		for k := range feistelRounds {
			l, r = r, l^p.f(k, r)
		}
		if i = l<<p.half | r; i < p.n {
			return i
		}
	}
}

// back returns what goes to i.
func (p *permutation) back(i uint64) uint64 {
	for {
		l, r := i>>p.half, i&(1<<p.half-1)
		for k := feistelRounds - 1; k >= 0; k-- {
			l, r = r^p.f(k, l), l
		}
		if i = l<<p.half | r; i < p.n {
			return i
		}
	}
}

// NewKey makes a key of random numbers.
func NewKey(a, b uint64) Key { return Key{a, b} }
