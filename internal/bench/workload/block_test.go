package workload

import (
	"net/netip"
	"slices"
	"testing"
)

func TestBlocksAreOfTheRightDensity(t *testing.T) {
	for _, c := range []struct {
		base      string
		length, n int
		span      uint64
	}{
		{"2a00::", 48, 1000, 1000}, {"2a00::", 48, 1000, 16000}, {"2a00::", 48, 1000, 4096000},
		{"2a00:1::", 128, 5000, 1 << 20},
		{"2a00:1::", 128, 1 << 18, 1 << 20}, {"10.0.0.0", 24, 256, 65536}, {"10.0.0.0", 32, 7, 8},
		{"2a00::", 64, 3, 3}, {"10.0.0.0", 8, 0, 5},
	} {
		base := netip.MustParseAddr(c.base)
		got, err := Block(base, c.length, c.n, c.span, 3)
		if err != nil || len(got) != c.n {
			t.Errorf("%+v: %d prefixes, %v", c, len(got), err)
			continue
		}
		end := nth(netip.PrefixFrom(base, c.length), c.span-1).Addr()
		seen := map[netip.Prefix]bool{}
		for _, p := range got {
			if p.Bits() != c.length || p != p.Masked() || p.Addr().Less(base) ||
				end.Less(p.Addr()) || seen[p] {
				t.Errorf("%+v: %s is wrong or came twice", c, p)
				break
			}
			seen[p] = true
		}
		again, _ := Block(base, c.length, c.n, c.span, 3)
		if !slices.Equal(got, again) {
			t.Errorf("%+v: the same seed gave other prefixes", c)
		}
	}
}

func TestBlocksThatCannotBeDrawnAreRefused(t *testing.T) {
	for _, c := range []struct {
		base      string
		length, n int
		span      uint64
	}{
		{"2a00::", 48, 10, 9}, {"2a00::", 0, 1, 1}, {"2a00::", 129, 1, 1}, {"10.0.0.0", 33, 1, 1},
		{"2a00::", 48, -1, 9},
		{"2a00::", 48, MaxPrefixes + 1, 1 << 40}, {"2a00::", 48, 1, 1 << 41},
		{"255.255.255.0", 32, 100, 1000}, {"ffff:ffff:ffff::", 48, 2, 1 << 20},
	} {
		if got, err := Block(netip.MustParseAddr(c.base), c.length, c.n, c.span, 1); err == nil {
			t.Errorf("%+v: %d prefixes", c, len(got))
		}
	}
}
