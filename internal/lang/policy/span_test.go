package policy

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// overlapping are ranges that overlap many others each: as prefixes they would be some 90 each.
func overlapping(n int, service func(i int) string) string {
	rng := rand.New(rand.NewPCG(40_000, 0))
	var b strings.Builder
	for i := range n {
		var from, to [16]byte
		copy(from[:], "\x20\x01\x0d\xb8")
		for at := 5; at < 16; at++ {
			from[at], to[at] = byte(rng.Uint32()), byte(rng.Uint32())
		}
		copy(to[:], from[:5])
		to[4] = 0x7f
		fmt.Fprintf(&b, "%s-%s%s\n", netip.AddrFrom16(from), netip.AddrFrom16(to), service(i))
	}
	return b.String()
}

// TestOverlappingRangesAreJoinedBeforeTheyArePrefixes bounds the memory of 40,000 ranges by the
// bytes allocated: their prefixes alone would be 110 MB, and were sorted several times.
func TestOverlappingRangesAreJoinedBeforeTheyArePrefixes(t *testing.T) {
	const n = 40_000
	for _, tc := range []struct {
		name, rule string
		service    func(i int) string
		most       int // elements of the result
	}{
		{"addresses", "drop from", func(int) string { return "" }, 128},
		{"one service", "drop to", func(int) string { return " tcp/443" }, 128},
		{"fifty services", "drop to",
			func(i int) string { return fmt.Sprintf(" tcp/%d", i%50*2) }, 50 * 128},
		{"overlapping ports", "drop to",
			func(i int) string { return fmt.Sprintf(" tcp/%d-%d", i%50, i%50+900) }, 50 * 128},
		{"any port", "drop to", func(int) string { return " gre" }, 128},
	} {
		file := overlapping(n, tc.service)
		inline := "{ " + strings.ReplaceAll(strings.TrimSpace(file), "\n", ",\n") + " }\n"
		for where, src := range map[string]string{
			"a file":   "set s = file(\"s\")\n" + tc.rule + " s\ndefault pass\n",
			"a set":    "set s = " + inline + tc.rule + " s\ndefault pass\n",
			"a rule":   tc.rule + " " + inline + "default pass\n",
			"in a set": "set a = " + inline + "set s = { a }\n" + tc.rule + " s\ndefault pass\n",
		} {
			t.Run(tc.name+" in "+where, func(t *testing.T) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				p, ds := Parse("ranges.levee", []byte(src), func(string) (io.ReadCloser, error) {
					return io.NopCloser(strings.NewReader(file)), nil
				})
				runtime.ReadMemStats(&after)
				if p == nil {
					t.Fatal(ds.Err())
				}
				term := &p.Rules[0].Match[0]
				prefixes, endpoints := term.Prefixes, term.Endpoints()
				if term.Set != nil {
					prefixes = term.Set.Prefixes
				}
				if n := len(prefixes) + len(endpoints); n == 0 || n > tc.most {
					t.Errorf("%d elements, expected at most %d", n, tc.most)
				}
				if took := after.TotalAlloc - before.TotalAlloc; took > 100<<20 {
					t.Errorf("%d MB were asked for, expected at most 100", took>>20)
				}
			})
		}
	}
}

// TestRangesMatchTheSameOnceJoined asks each address and port of a small space.
func TestRangesMatchTheSameOnceJoined(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	for range 500 {
		typ := []SetType{Addresses, Endpoints}[rng.IntN(2)]
		var kept, apart elements
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
			if typ == Endpoints {
				text += []string{" tcp/%d-%d", " udp/%[1]d", " gre"}[rng.IntN(3)]
				if port := rng.IntN(8); strings.Contains(text, "%") {
					text = strings.ReplaceAll(text, "%[1]d", fmt.Sprint(port))
					text = strings.Replace(text, "%d-%d", fmt.Sprintf("%d-%d", port,
						port+rng.IntN(4)), 1)
				}
			}
			texts = append(texts, text)
			for _, l := range []*elements{&kept, &apart} {
				if p := l.parse(typ, text); p.found() {
					t.Fatalf("%s: %s", text, p.msg)
				}
			}
		}
		kept.merge()
		if len(kept.spans) > 0 {
			t.Fatalf("%v: ranges are left: %v", texts, kept.spans)
		}
		if typ == Addresses {
			if want := MergePrefixes(apart.prefixes); !slices.Equal(kept.prefixes, want) {
				t.Fatalf("%v is %v, expected %v", texts, kept.prefixes, want)
			}
			continue
		}
		holds := func(list []Element, a netip.Addr, proto uint8, port uint16) bool {
			return slices.ContainsFunc(list, func(e Element) bool {
				return e.Prefix.Contains(a) && e.Service.Holds(proto, port)
			})
		}
		for _, e := range apart.endpoints {
			for _, a := range []netip.Addr{e.Prefix.Addr(), lastAddr(e.Prefix),
				e.Prefix.Addr().Prev(), lastAddr(e.Prefix).Next()} {
				for _, proto := range []uint8{6, 17, 47, 50} {
					for port := range uint16(13) {
						if a.IsValid() && holds(apart.endpoints, a, proto, port) !=
							holds(kept.endpoints, a, proto, port) {
							t.Fatalf("%v became %v: %v %d/%d", texts, kept.endpoints, a,
								proto, port)
						}
					}
				}
			}
		}
	}
}
