package limit

import (
	"net/netip"
	"testing"

	"levee/internal/lang/resolve"
)

func TestLongestPrefixOfRatesCounts(t *testing.T) {
	p, ds := resolve.Parse("t", []byte("limit udp rate to { 10.0.0.0/8 1/s, 10.1.0.0/16 2/s, "+
		"10.1.255.0/24 3/s, 10.2.0.0/16 4/s, 255.255.255.255 5/s, 2001:db8::/32 6/s, "+
		"2001:db8::/64 7/s, ffff::/16 8/s }\ndefault pass\n"), nil)
	if p == nil {
		t.Fatal(ds)
	}
	l := p.Limits()[0].Limit
	all := tableOf(l)
	for _, six := range []bool{false, true} {
		starts := all.starts(six)
		for i, s := range starts {
			if i > 0 && !starts[i-1].at.Less(s.at) {
				t.Errorf("%v stands behind %v", s.at, starts[i-1].at)
			}
			for _, a := range []netip.Addr{s.at, s.at.Next()} {
				want := 0
				if e := l.Rates.Of(a); e != nil {
					for n := range l.Rates.Entries {
						if &l.Rates.Entries[n] == e {
							want = n + 1
						}
					}
				}
				got := 0
				for _, s := range starts {
					if a.IsValid() && !a.Less(s.at) {
						got = s.row
					}
				}
				if a.IsValid() && got != want {
					t.Errorf("%v has row %d, want %d", a, got, want)
				}
			}
		}
	}
}
