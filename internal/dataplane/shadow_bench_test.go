package dataplane

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
	"levee/internal/lang/resolve"
)

// BenchmarkShadow: a policy, and the same with another beside it that agrees, or does not.
func BenchmarkShadow(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root, to load programs")
	}
	const one, same = "drop udp port 53\ndefault pass\n", "drop udp port 54\ndefault pass\n"
	for _, c := range []struct{ name, shadow string }{
		{"alone", ""}, {"agrees", same}, {"differs", "drop udp\ndefault pass\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			compiled := func(text string, t codegen.Target) *codegen.Program {
				p, ds := resolve.Parse("bench.levee", []byte(text), nil)
				if p == nil {
					b.Fatal(ds)
				}
				t.CPUs = ebpf.MustPossibleCPU()
				prog, err := codegen.Compile(p, t)
				if err != nil {
					b.Fatal(err)
				}
				return prog
			}
			r, err := loader.NewRunner(compiled(one, codegen.Target{}))
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			if c.shadow != "" {
				sh, err := r.Shadow(compiled(c.shadow, codegen.Target{Shadow: r.Judged()}))
				if err != nil {
					b.Fatal(err)
				}
				defer sh.Close()
			}
			frame := make([]byte, 64)
			copy(frame[12:], "\x08\x00\x45\x00\x00\x32\x00\x00\x00\x00\x40\x11\x00\x00"+
				"\xc0\x00\x02\x01\xc0\x00\x02\x02\x04\x00\x04\x01\x00\x1e")
			_, each, err := r.Loaded.Prog.Benchmark(frame, b.N, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(each.Nanoseconds()), "ns/packet")
		})
	}
}
