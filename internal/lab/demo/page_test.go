package demo

import (
	"bytes"
	"testing"
)

func BenchmarkPage(b *testing.B) {
	var out bytes.Buffer
	for i := range b.N {
		out.Reset()
		if err := page(&out, int64(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(out.Len()), "bytes")
}
