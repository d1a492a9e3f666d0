package dataplane

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/around"
	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/filter/state"
)

// BenchmarkWayBack tells what the kernel's look-up of a way back costs: the same frames in turn by
// a policy that asks, and by one that does not.
func BenchmarkWayBack(b *testing.B) {
	for _, routes := range []int{1, 10_000} {
		b.Run(fmt.Sprint(routes, " routes"), func(b *testing.B) {
			newTestNet(b)
			for _, family := range []string{"ipv4", "ipv6"} {
				set(b, family+"/conf/lo/forwarding", "1")
			}
			set(b, "ipv6/conf/lv0/disable_ipv6", "0")
			giveWays(b, "lv0", "192.0.2.1/24", "2001:db8:1::1/64")
			for i := range routes {
				dst := &net.IPNet{IP: net.IPv4(10, byte(i>>8), byte(i), 0),
					Mask: net.CIDRMask(24, 32)}
				if err := netlink.RouteAdd(&netlink.Route{LinkIndex: index(b, "lv0"), Dst: dst,
					Scope: netlink.SCOPE_LINK}); err != nil {
					b.Fatal(err)
				}
			}
			asks, _ := runnerOf(b, "drop not reverse-path strict\ndefault pass\n",
				codegen.Target{CPUs: 2})
			not, _ := runnerOf(b, "drop ttl 0\ndefault pass\n", codegen.Target{CPUs: 2})
			contents, err := around.WaysOf(index(b, "lv0"), "lv0")
			if err != nil {
				b.Fatal(err)
			}
			if err := around.PutWays(asks.Loaded.Holding(state.HoldsWays), contents); err != nil {
				b.Fatal(err)
			}
			for name, f := range map[string][]byte{
				"IPv4": udpFrom(b, "192.0.2.9", "192.0.2.1"),
				"IPv6": udpFrom(b, "2001:db8:1::9", "2001:db8:1::1"),
			} {
				b.Run(name, func(b *testing.B) {
					var more []float64
					for b.Loop() {
						var ns [2]float64
						for i, r := range []*loader.Runner{asks, not} {
							_, d, err := r.Loaded.Prog.Benchmark(f, 1<<19, nil)
							if err != nil {
								b.Fatal(err)
							}
							ns[i] = float64(d.Nanoseconds())
						}
						more = append(more, ns[0]-ns[1])
					}
					slices.Sort(more)
					b.ReportMetric(more[len(more)/2], "ns/look-up")
				})
			}
		})
	}
}
