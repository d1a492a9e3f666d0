package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/packet"
)

// BenchmarkWhatLeaves compares the same rules at tc: asked of what arrives, and of what leaves.
// Rounds of both take turns.
func BenchmarkWhatLeaves(b *testing.B) {
	for _, n := range []int{10, 200} {
		b.Run(fmt.Sprint(n, " rules"), func(b *testing.B) {
			var text strings.Builder
			for _, side := range []string{"", "out "} {
				for i := range n {
					fmt.Fprintf(&text, "%sdrop udp from 10.%d.0.0/16 port %d\n", side, i, 1000+i)
				}
			}
			text.WriteString("default pass\n")
			r, _ := runnerOf(b, text.String(), codegen.Target{Hook: codegen.TCX, CPUs: 2})
			frame := mailOf(b, 25)
			programs := []*ebpf.Program{r.Loaded.Prog, r.Loaded.Others[codegen.LeavingName]}
			ns := make([][]float64, len(programs))
			for b.Loop() {
				for i, p := range programs {
					_, d, err := p.Benchmark(frame, 1<<20, nil)
					if err != nil {
						b.Fatal(err)
					}
					ns[i] = append(ns[i], float64(d.Nanoseconds()))
				}
			}
			for i, side := range []string{"arrives", "leaves"} {
				slices.Sort(ns[i])
				b.ReportMetric(ns[i][len(ns[i])/2], side+"-ns/packet")
			}
		})
	}
}

// BenchmarkAnswers measures what it adds to a packet that leaves to ask whether it answers: the
// same rules with and without the question, in turn.
func BenchmarkAnswers(b *testing.B) {
	policy := func(ask string) *loader.Runner {
		r, _ := runnerOf(b, "default pass\nout count "+ask+"port 9999\nout default pass\n",
			codegen.Target{Hook: codegen.TCX, CPUs: 2})
		return r
	}
	asks, not := policy("established "), policy("")
	segment := func(flags uint8) []byte {
		return build(b, packet.Spec{Family: packet.IPv4, Proto: new(uint8(packet.ProtoTCP)),
			Flags: &flags, From: netip.MustParseAddr("192.0.2.1"),
			To: netip.MustParseAddr("192.0.2.2")})
	}
	for _, c := range []struct {
		name  string
		frame []byte
	}{
		{"UDP", mailOf(b, 25)}, {"TCP", segment(packet.ACK)},
		{"SYN-ACK", segment(packet.SYN | packet.ACK)},
	} {
		b.Run(c.name, func(b *testing.B) {
			programs := []*ebpf.Program{asks.Loaded.Others[codegen.LeavingName],
				not.Loaded.Others[codegen.LeavingName]}
			ns := make([][]float64, len(programs))
			for b.Loop() {
				for i, p := range programs {
					_, d, err := p.Benchmark(c.frame, 1<<20, nil)
					if err != nil {
						b.Fatal(err)
					}
					ns[i] = append(ns[i], float64(d.Nanoseconds()))
				}
			}
			for i, what := range []string{"asks", "does-not"} {
				slices.Sort(ns[i])
				b.ReportMetric(ns[i][len(ns[i])/2], what+"-ns/packet")
			}
		})
	}
}
