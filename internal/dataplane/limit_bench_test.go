package dataplane

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"levee/internal/dataplane/loader"
	"levee/internal/filter/codegen"
)

// BenchmarkLimit measures the time that a limit adds to a policy, ns a packet: of one source, and
// of a million in turn.
func BenchmarkLimit(b *testing.B) {
	for _, family := range []string{"IPv4", "IPv6"} {
		for _, sources := range []int{1, 1 << 20} {
			frames := make([][]byte, sources)
			six := from6(b, 0)
			for i := range frames {
				source := uint32(uint64(i+1) * 2654435761)
				if family == "IPv4" {
					frames[i] = from(source)
					continue
				}
				frames[i] = slices.Clone(six)
				binary.BigEndian.PutUint32(frames[i][14+8+12:], source)
			}
			trace, err := loader.NewTrace(frames)
			if err != nil {
				b.Fatal(err)
			}
			defer trace.Close()
			for _, rule := range []string{"", "limit rate 100/s by source",
				"limit rate 100/s by source/32,64, source/24 x32", "limit rate 1mbit/s by flow",
				"limit rate 1Mpps", "limit rate 500Mpps by source"} {
				b.Run(fmt.Sprintf("%s/sources=%d/%q", family, sources, rule), func(b *testing.B) {
					benchLimit(b, trace, rule)
				})
			}
		}
	}
}

// BenchmarkRatesByPrefix measures the time of a limit whose rates stand in a table: of one source,
// and of a million in turn, which all have a rate.
func BenchmarkRatesByPrefix(b *testing.B) {
	for _, sources := range []int{1, 1 << 20} {
		frames := make([][]byte, sources)
		for i := range frames {
			frames[i] = from(uint32(uint64(i+1) * 2654435761))
		}
		trace, err := loader.NewTrace(frames)
		if err != nil {
			b.Fatal(err)
		}
		defer trace.Close()
		for _, bits := range []int{0, 4, 9, 15} {
			var table []string
			for i := range 1 << bits {
				a := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil,
					uint32(i<<(32-bits)))))
				table = append(table, fmt.Sprintf("%v/%d 1kpps", a, bits))
			}
			rule := "limit rate from { " + strings.Join(table, ", ") + " }"
			b.Run(fmt.Sprintf("sources=%d/prefixes=%d", sources, len(table)),
				func(b *testing.B) { benchLimit(b, trace, rule) })
		}
	}
}

func benchLimit(b *testing.B, trace *loader.Trace, rule string) {
	r := benchRunner(b, rule+"\ndefault pass\n")
	run, err := r.OnTrace(trace)
	if err != nil {
		b.Fatal(err)
	}
	reportRounds(b, run)
}

// benchRunner is runnerOf for the machine that measures.
func benchRunner(b *testing.B, text string) *loader.Runner {
	b.Helper()
	r, _ := runnerOf(b, text, codegen.Target{CPUs: runtime.NumCPU()})
	return r
}

// benchFrames measures frames in turn.
func benchFrames(b *testing.B, r *loader.Runner, frames [][]byte) {
	b.Helper()
	trace, err := loader.NewTrace(frames)
	if err != nil {
		b.Fatal(err)
	}
	defer trace.Close()
	run, err := r.OnTrace(trace)
	if err != nil {
		b.Fatal(err)
	}
	reportRounds(b, run)
}

// reportRounds reports what a packet of a trace costs above an empty program.
func reportRounds(b *testing.B, run *loader.TraceRun) {
	var ns []float64
	for b.Loop() {
		above, _, err := run.Round(1 << 20)
		if err != nil {
			b.Fatal(err)
		}
		ns = append(ns, above)
	}
	ns = slices.Sorted(slices.Values(ns[min(1, len(ns)-1):])) // the first round warms up
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ns[len(ns)/2], "ns/packet")
	b.ReportMetric(math.Abs(ns[len(ns)*3/4]-ns[len(ns)/4])/2, "spread")
}
