package live

import (
	"slices"
	"testing"
	"time"

	"levee/internal/lab/broadcast"
)

// BenchmarkProgram is the median time of the program for a datagram of seven packets, one of a
// thousand streams after the other: test runs, with the call of some 40 ns that an empty one takes.
func BenchmarkProgram(b *testing.B) {
	c := sending(false, false, 1)
	c.Faults, c.Streams, c.Rate, c.Duration = nil, 1000, 10e6, 16*time.Millisecond
	o := options
	o.Streams = 1024
	r := newRunner(b, &o, true)
	s := broadcast.New(c)
	var frames [][]byte
	for f, ok := s.Next(); ok; f, ok = s.Next() {
		frames = append(frames, f.Bytes)
	}
	var all []time.Duration
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		_, d, err := r.program.Benchmark(frames[i%len(frames)], 1, nil)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, d)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2]), "ns/datagram")
}
