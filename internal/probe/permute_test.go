package probe

import "testing"

// TestAPermutationMeetsEachNumberOnce, and its inverse leads back.
func TestAPermutationMeetsEachNumberOnce(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 5, 16, 17, 255, 256, 257, 4096, 65537} {
		p := newPermutation(n, Key{1, n}, 7)
		seen := make([]bool, n)
		for i := range n {
			to := p.at(i)
			if to >= n || seen[to] {
				t.Fatalf("of %d: %d goes to %d, again or outside", n, i, to)
			}
			seen[to] = true
			if p.back(to) != i {
				t.Fatalf("of %d: %d goes to %d, and that back to %d", n, i, to, p.back(to))
			}
		}
	}
}

// TestNeighboursPartInAPermutation: no address is asked for several ports in a row.
func TestNeighboursPartInAPermutation(t *testing.T) {
	const n = 1 << 16
	p := newPermutation(n, Key{3, 4}, 0)
	near := 0
	for i := range uint64(n - 1) {
		if p.at(i)/256 == p.at(i+1)/256 {
			near++
		}
	}
	if near > 2*n/256 { // n/256 are expected
		t.Errorf("%d of %d neighbours stay together", near, n)
	}
}

// TestASequenceNumberIsHardToForge: of random numbers next to none is one of a probe.
func TestASequenceNumberIsHardToForge(t *testing.T) {
	c := newCookies(Key{5, 6})
	for n := range 1000 {
		for try := range 4 {
			if got, ok := c.open(c.seal(n, try)); !ok || got != (sealed{n, try}) {
				t.Fatalf("probe %d, try %d: %v, %v", n, try, got, ok)
			}
		}
	}
	forged := 0
	for i := range uint32(100_000) {
		if s, ok := c.open(i * 2654435761); ok && s.number < 1000 {
			forged++
		}
	}
	if forged > 1 { // one of a million is expected, and its address and ports have to fit besides
		t.Errorf("%d of 100000 random numbers are those of a probe", forged)
	}
}
