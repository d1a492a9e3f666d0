package field

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRangesAreSetsOfValues holds what is done with lists of ranges against bits.
func TestRangesAreSetsOfValues(t *testing.T) {
	const seed, values = 20261122, 24
	rnd := rand.New(rand.NewPCG(seed, 0))
	set := func(rs []Range) (bits uint32) {
		for _, r := range rs {
			for v := r.Lo; v <= r.Hi; v++ {
				bits |= 1 << v
			}
		}
		return bits
	}
	list := func() (rs []Range) {
		for range rnd.IntN(6) {
			lo := rnd.Uint64N(values)
			rs = append(rs, Range{lo, lo + rnd.Uint64N(values-lo)})
		}
		return rs
	}
	joined := func(rs []Range) bool {
		for i := range rs {
			if rs[i].Lo > rs[i].Hi || i > 0 && rs[i].Lo <= rs[i-1].Hi+1 {
				return false
			}
		}
		return true
	}
	for range 20_000 {
		x, y := list(), list()
		a, b := Join(slices.Clone(x)), Join(slices.Clone(y))
		if !joined(a) || set(a) != set(x) {
			t.Fatalf("seed %d: Join(%v) = %v", seed, x, a)
		}
		if got := Intersect(a, b); !joined(got) || set(got) != set(a)&set(b) {
			t.Fatalf("seed %d: Intersect(%v, %v) = %v", seed, a, b, got)
		}
		if got := Subtract(a, b); !joined(got) || set(got) != set(a)&^set(b) {
			t.Fatalf("seed %d: Subtract(%v, %v) = %v", seed, a, b, got)
		}
	}
}
