package literal

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/policy"
)

// TestRangesMatchTheSameOnceJoined asks each address and port of a small space.
func TestRangesMatchTheSameOnceJoined(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	for range 500 {
		typ := []policy.SetType{policy.Addresses, policy.Endpoints}[rng.IntN(2)]
		var kept, apart Elements
		apart.apart = true
		var texts []string
		for range 1 + rng.IntN(10) {
			base := []string{"192.0.2.%d", "2001:db8::%x", "255.255.255.%d",
				"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff%02x"}[rng.IntN(4)]
			lo := 224 + rng.IntN(32)
			hi := lo + rng.IntN(256-lo)
			text := fmt.Sprintf(base+"-"+base, lo, hi)
			if rng.IntN(3) == 0 {
				text = fmt.Sprintf(base, lo)
			}
			if typ == policy.Endpoints {
				text += []string{" tcp/%d-%d", " udp/%[1]d", " gre"}[rng.IntN(3)]
				if port := rng.IntN(8); strings.Contains(text, "%") {
					text = strings.ReplaceAll(text, "%[1]d", fmt.Sprint(port))
					text = strings.Replace(text, "%d-%d", fmt.Sprintf("%d-%d", port,
						port+rng.IntN(4)), 1)
				}
			}
			texts = append(texts, text)
			for _, l := range []*Elements{&kept, &apart} {
				if p := l.Parse(typ, text); p.Found() {
					t.Fatalf("%s: %s", text, p.Message)
				}
			}
		}
		kept.Merge()
		if len(kept.spans) > 0 {
			t.Fatalf("%v: ranges are left: %v", texts, kept.spans)
		}
		if typ == policy.Addresses {
			if want := MergePrefixes(apart.Prefixes); !slices.Equal(kept.Prefixes, want) {
				t.Fatalf("%v is %v, expected %v", texts, kept.Prefixes, want)
			}
			continue
		}
		holds := func(list []policy.Element, a netip.Addr, proto uint8, port uint16) bool {
			return slices.ContainsFunc(list, func(e policy.Element) bool {
				return e.Prefix.Contains(a) && e.Service.Holds(proto, port)
			})
		}
		for _, e := range apart.Endpoints {
			for _, a := range []netip.Addr{e.Prefix.Addr(), lastAddr(e.Prefix),
				e.Prefix.Addr().Prev(), lastAddr(e.Prefix).Next()} {
				for _, proto := range []uint8{6, 17, 47, 50} {
					for port := range uint16(13) {
						if a.IsValid() && holds(apart.Endpoints, a, proto, port) !=
							holds(kept.Endpoints, a, proto, port) {
							t.Fatalf("%v became %v: %v %d/%d", texts, kept.Endpoints, a,
								proto, port)
						}
					}
				}
			}
		}
	}
}
