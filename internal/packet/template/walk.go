package template

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"sort"

	"levee/internal/lang/spec"
)

// span is a run of values; indices from start on stand for it.
type span struct {
	start  uint64
	hi, lo uint64 // the first value; hi for IPv6 addresses only
	// Bits of an IPv6 prefix above those that are numbered are a hash of the index.
	fillHi, fillLo uint64
}

// walk says which value a field has in which packet: an index from the packet's number, a value
// from the index.
type walk struct {
	mode  spec.Mode
	down  bool
	step  uint64
	every uint64
	size  uint64 // number of values, at least 1
	seed  uint64
	perm  permutation
	spans []span
}

// maxHostBits is the number of an IPv6 prefix's host bits that are numbered: enough for 300 years
// at 7 Mpps.
const maxHostBits = 56

// newWalk numbers the values of a field. Their count stays below 2^63: a field has at most 48 bits,
// 56 of an address, and policy bounds the source.
func newWalk(v *spec.Vary, seed uint64) walk {
	w := walk{mode: v.Mode, down: v.Down, step: max(v.Step, 1), every: max(v.Every, 1)}
	for _, p := range v.Prefixes {
		s, n := prefixSpan(p)
		w.add(s, n)
	}
	for _, r := range v.Ranges {
		w.add(span{lo: r.Lo}, r.Hi-r.Lo+1)
	}
	w.seed = seed
	w.perm = newPermutation(w.size, seed)
	return w
}

// add appends n values; a run that goes on where the last one ends becomes one with it.
func (w *walk) add(s span, n uint64) {
	if k := len(w.spans); k > 0 {
		last := &w.spans[k-1]
		plain := last.fillHi|last.fillLo|s.fillHi|s.fillLo|last.hi|s.hi == 0
		if plain && last.lo+(w.size-last.start) == s.lo {
			w.size += n
			return
		}
	}
	s.start = w.size
	w.spans = append(w.spans, s)
	w.size += n
}

// prefixSpan describes one prefix and says how many numbers it takes.
func prefixSpan(p netip.Prefix) (span, uint64) {
	p = p.Masked()
	a := p.Addr().As16()
	s := span{hi: binary.BigEndian.Uint64(a[:8]), lo: binary.BigEndian.Uint64(a[8:])}
	host := p.Addr().BitLen() - p.Bits()
	if p.Addr().Is4() {
		s.hi, s.lo = 0, s.lo&math.MaxUint32
		return s, 1 << host
	}
	if host <= maxHostBits {
		return s, 1 << host
	}
	if host > 64 {
		s.fillHi = 1<<(host-64) - 1
	}
	s.fillLo = (1<<min(host, 64) - 1) &^ (1<<maxHostBits - 1)
	return s, 1 << maxHostBits
}

// steps is after how many values counting begins again.
func (w *walk) steps() uint64 { return (w.size-1)/w.step + 1 }

// Constants of SplitMix64 (Steele, Lea, Flood 2014).
const (
	golden = 0x9e3779b97f4a7c15
	mix1   = 0xbf58476d1ce4e5b9
	mix2   = 0x94d049bb133111eb
)

// draw returns a random number that belongs to k.
func draw(seed, k uint64) uint64 {
	z := k*golden + seed
	z = (z ^ z>>30) * mix1
	z = (z ^ z>>27) * mix2
	return z ^ z>>31
}

// index of the value in packet n. program.go computes the same.
func (w *walk) index(n uint64) uint64 {
	if w.every > 1 {
		n /= w.every
	}
	switch w.mode {
	case spec.Random:
		z := draw(w.seed, n)
		switch {
		case w.size&(w.size-1) == 0:
			return z & (w.size - 1)
		case w.size <= 1<<32:
			return z >> 32 * w.size >> 32 // off a fair draw by 2^-32 at most
		}
		return z % w.size
	case spec.Permuted:
		return w.perm.at(n % w.size)
	}
	i := n % w.steps() * w.step
	if w.down {
		i = w.size - 1 - i
	}
	return i
}

// value returns the value of index i.
func (w *walk) value(i uint64) (hi, lo uint64) {
	s := &w.spans[0]
	if len(w.spans) > 1 {
		s = &w.spans[sort.Search(len(w.spans), func(k int) bool { return w.spans[k].start > i })-1]
	}
	hi, lo = s.hi, s.lo
	if s.fillHi|s.fillLo != 0 {
		h := scatter(i)
		hi |= h & s.fillHi
		lo |= h & s.fillLo
	}
	return hi, lo + i - s.start
}

// scatter spreads an index over the bits that are not numbered.
func scatter(i uint64) uint64 {
	h := (i + golden) * mix1
	return h ^ h>>29
}

// powerOfTwo gives the exponent of x where it is one.
func powerOfTwo(x uint64) (int, bool) {
	return bits.TrailingZeros64(x), x&(x-1) == 0 && x != 0
}
