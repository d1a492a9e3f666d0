package literal

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// TestRangesBecomeTheFewestPrefixes checks ranges of both families at the edges of the address
// space, and random ones: the prefixes follow one another from end to end, and no two are halves
// of one.
func TestRangesBecomeTheFewestPrefixes(t *testing.T) {
	for _, tc := range []struct {
		lo, hi, want string
	}{
		{"192.0.2.1", "192.0.2.1", "[192.0.2.1/32]"},
		{"0.0.0.0", "255.255.255.255", "[0.0.0.0/0]"},
		{"::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "[::/0]"},
		{"192.0.2.1", "192.0.2.9", "[192.0.2.1/32 192.0.2.2/31 192.0.2.4/30 192.0.2.8/31]"},
		{"255.255.255.254", "255.255.255.255", "[255.255.255.254/31]"},
		{"::ffff:ffff:ffff:ffff", "0:0:0:1::", "[::ffff:ffff:ffff:ffff/128 0:0:0:1::/128]"},
		{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "[2001:db8::/32]"},
	} {
		got := appendRange(nil, netip.MustParseAddr(tc.lo), netip.MustParseAddr(tc.hi))
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%s-%s: %v, want %s", tc.lo, tc.hi, got, tc.want)
		}
	}
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		lo, hi := randomAddr(r), randomAddr(r)
		if lo.Is4() != hi.Is4() {
			continue
		}
		if hi.Less(lo) {
			lo, hi = hi, lo
		}
		ps := appendRange(nil, lo, hi)
		if len(ps) > 2*lo.BitLen()-2 || ps[0].Addr() != lo || lastAddr(ps[len(ps)-1]) != hi {
			t.Fatalf("seed %d: %v-%v: %v", seed, lo, hi, ps)
		}
		for i := 1; i < len(ps); i++ {
			if lastAddr(ps[i-1]).Next() != ps[i].Addr() {
				t.Fatalf("seed %d: %v-%v: gap before %v", seed, lo, hi, ps[i])
			}
		}
		if merged := MergePrefixes(append([]netip.Prefix(nil), ps...)); len(merged) != len(ps) {
			t.Fatalf("seed %d: %v-%v: %v could be %v", seed, lo, hi, ps, merged)
		}
	}
	full := appendRange(nil, netip.MustParseAddr("::1"),
		netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"))
	if len(full) != 254 {
		t.Errorf("%d prefixes for the worst range", len(full))
	}
}

func randomAddr(r *rand.Rand) netip.Addr {
	var b [16]byte
	for i := range b {
		if r.IntN(3) > 0 { // few bits, so that ranges are of all sizes
			b[i] = byte(r.Uint32())
		}
	}
	if r.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	b[0] = 0x20
	return netip.AddrFrom16(b)
}
