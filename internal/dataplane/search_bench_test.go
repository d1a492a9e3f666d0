package dataplane

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// BenchmarkContains measures what a byte of a payload costs that is searched, as the difference
// between payloads of 128 and of 1,472 bytes of small letters: in the program of a policy, by the
// least time of each.
func BenchmarkContains(b *testing.B) {
	const short, long = 128, 1472
	letters := func(n int) []byte {
		return bytes.Repeat([]byte("the quick brown fox jumps over lazy dogs, "), n/42+1)[:n]
	}
	for name, find := range map[string]string{"text": `"/wp-login.php"`,
		"expression": `/select.{1,8}from/`} {
		r := benchRunner(b, fmt.Sprintf("drop udp port 9 payload contains %s\ndefault pass\n",
			find))
		b.Run(name, func(b *testing.B) {
			var ns [2][]float64
			for b.Loop() {
				for i, size := range []int{short, long} {
					frame := datagram(b, "10.0.0.1:4000", "192.0.2.1:9", letters(size))
					_, d, err := r.Loaded.Prog.Benchmark(frame, 1<<14, nil)
					if err != nil {
						b.Fatal(err)
					}
					ns[i] = append(ns[i], float64(d.Nanoseconds()))
				}
			}
			least := [2]float64{slices.Min(ns[0]), slices.Min(ns[1])}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(least[0], "ns/short")
			b.ReportMetric((least[1]-least[0])/(long-short), "ns/byte")
		})
	}
}
