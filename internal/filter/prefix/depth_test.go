package prefix

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

func TestProbesStopAtTheFirstHit(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for _, width := range []int{32, 128} {
		prefixes := ofWidth(internet(r, 2000, 2000), width)
		s := build(prefixes, width)
		spec, err := DynamicSpec("s", len(prefixes))
		if err != nil {
			t.Fatal(err)
		}
		if spec.InnerMap != nil {
			spec = spec.InnerMap
		}
		mem := make([]byte, spec.ValueSize)
		if err := Format(mem, len(prefixes)); err != nil {
			t.Fatal(err)
		}
		d, err := Open(mem, func() uint64 { return 1 })
		if err != nil {
			t.Fatal(err)
		}
		lengths := map[int]bool{}
		for _, p := range prefixes {
			lengths[p.Bits()] = true
			if err := d.Add(p, 0); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range traffic(r, prefixes, width, 2000, "mix") {
			n := s.Probes(a)
			if n < 1 || n > len(s.levels) || !s.Contains(a) && n != len(s.levels) {
				t.Fatalf("seed %d: %s asks %d of %d tables, member %v", seed, a, n, len(s.levels),
					s.Contains(a))
			}
			n = d.Probes(a)
			if n > len(lengths) || d.Lookup(a) && n == 0 {
				t.Fatalf("seed %d: %s tries %d of %d lengths, member %v", seed, a, n, len(lengths),
					d.Lookup(a))
			}
		}
		if n := d.Probes(netip.Addr{}); n != 0 {
			t.Errorf("no address tries %d lengths", n)
		}
	}
	one := NewStatic4([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})
	if n := one.Probes(netip.MustParseAddr("192.0.2.1")); n != 2 {
		t.Errorf("two bounds take %d compares", n)
	}
}
