package template

import (
	"testing"
)

func TestPermutationIsBijective(t *testing.T) {
	for seed := range uint64(3) {
		for _, space := range []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 100, 255, 256, 257,
			1000, 4097, 65535, 65536, 65537, 100003} {
			p := newPermutation(space, seed)
			seen := make([]bool, space)
			for i := range space {
				x := p.at(i)
				if x >= space || seen[x] {
					t.Fatalf("space %d seed %d: %d goes to %d, outside or taken", space, seed, i, x)
				}
				seen[x] = true
			}
		}
	}
}

func TestPermutationMixes(t *testing.T) {
	p := newPermutation(1<<24, 1)
	q := newPermutation(1<<24, 2)
	same, near := 0, 0
	for i := range uint64(10000) {
		a, b := p.at(i), p.at(i+1)
		if d := int64(a) - int64(b); d > -256 && d < 256 {
			near++
		}
		if a == q.at(i) {
			same++
		}
	}
	if near > 10 || same > 10 {
		t.Errorf("of 10000: %d neighbours stay near, %d go where another seed sends them", near,
			same)
	}
}

func TestPermutationOfLargeSpacesStaysInside(t *testing.T) {
	for _, space := range []uint64{1 << 32, 1<<32 + 1, 3 << 40, 1 << 56, 1<<62 + 5, 1<<63 + 1,
		1<<64 - 1} {
		p := newPermutation(space, 7)
		for _, i := range []uint64{0, 1, 2, space / 2, space - 2, space - 1} {
			if x := p.at(i); x >= space {
				t.Errorf("space %d: %d goes to %d", space, i, x)
			}
		}
	}
}
