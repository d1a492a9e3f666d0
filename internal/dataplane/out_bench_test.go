package dataplane

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"levee/internal/filter/codegen"
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
