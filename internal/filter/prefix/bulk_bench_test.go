package prefix

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"levee/internal/filter/assembler"
)

// BenchmarkBulk measures look-ups in dynamic sets with a bulk: a full view of each family, as it
// was merged and with 10,000 changes since, half of them entries that came and half of them entries
// that left, and 20,000 prefixes of all lengths that a full view has. The prefixes are those of
// LEVEE_FULL_VIEW, else of the data beside the repository, else generated.
func BenchmarkBulk(b *testing.B) {
	needRoot(b)
	r := newRand(b)
	routes := table(b)
	const changes = 10_000
	for _, width := range []int{32, 128} {
		own := sample(r, ofWidth(routes, width), 1<<20)
		benchBulk(b, "view", own, 0)
		benchBulk(b, "view-changed", own, changes*len(own)/len(routes))
		benchBulk(b, "view-all-changes", own, changes)
		benchBulk(b, "20000", own[:20_000], 0)
		benchBulk(b, "20000-changed", own[:20_000], 500)
	}
}

// benchBulk takes the last of the prefixes out and puts others in, after the merge.
func benchBulk(b *testing.B, what string, prefixes []netip.Prefix, changes int) {
	width := prefixes[0].Addr().BitLen()
	n := len(prefixes)
	d, _ := inKernel(b, n, &clock{now: 1})
	half := changes / 2
	for _, p := range prefixes[:n-half] {
		if err := d.Add(p, 1<<39); err != nil {
			b.Fatal(err)
		}
	}
	d.Merge()
	for i := range half {
		d.Delete(prefixes[i])
		if err := d.Add(prefixes[n-half+i], 1<<39); err != nil {
			b.Fatal(err)
		}
	}
	function := DynamicFunction6
	if width == 32 {
		function = DynamicFunction4
	}
	for _, kind := range kinds {
		b.Run(fmt.Sprintf("v%d/%s/%s", 4+width/64, what, kind), func(b *testing.B) {
			addrs := traffic(rand.New(rand.NewPCG(5, 5)), prefixes, width, benchAddrs, kind)
			table := 0
			for _, a := range addrs {
				if _, _, known := d.inBulk(a); !known {
					table++
				}
			}
			lookup := func(to *assembler.Builder) { function(to, "set_x", "lookup", n) }
			measure(b, callLookup, map[string]any{"set_x": d.m}, addrs, lookup)
			b.ReportMetric(float64(len(d.mem))/float64(n), "B/entry")
			b.ReportMetric(100*float64(table)/float64(len(addrs)), "%table")
		})
	}
}
