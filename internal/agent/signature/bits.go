package signature

import "math/bits"

// set is a set of packets, a bit each.
type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func (s set) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s set) has(i int) bool { return s[i/64]>>(i%64)&1 == 1 }

// full returns the set of n packets.
func full(n int) set {
	s := newSet(n)
	for i := range n {
		s.add(i)
	}
	return s
}

func (s set) count() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// both counts what two sets share.
func both(a, b set) (n int) {
	for i, w := range a {
		n += bits.OnesCount64(w & b[i])
	}
	return n
}

func and(a, b set) set {
	out := make(set, len(a))
	for i, w := range a {
		out[i] = w & b[i]
	}
	return out
}

func without(a, b set) set {
	out := make(set, len(a))
	for i, w := range a {
		out[i] = w &^ b[i]
	}
	return out
}

func or(a, b set) set {
	out := make(set, len(a))
	for i, w := range a {
		out[i] = w | b[i]
	}
	return out
}
