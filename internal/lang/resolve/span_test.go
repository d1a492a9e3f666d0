package resolve

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"runtime"
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
