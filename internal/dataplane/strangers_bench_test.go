package dataplane

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"levee/internal/lab/talk"
	"levee/internal/packet/template"
)

// BenchmarkStrangers measures the time of packets of clients that nobody knows, as the lab forges
// them, by the profile of their service, above an empty program: first packets and others, of as
// many drawn addresses and ports in turn as no cache holds.
func BenchmarkStrangers(b *testing.B) {
	const sources, longest = 1 << 18, 256 // of the frames of a trace
	for _, s := range talk.All {
		r := benchRunner(b, fmt.Sprintf("use %s port %d\ndefault drop\n", s.Name, s.Port))
		for _, c := range []struct {
			name  string
			lines []string
		}{{"first", s.Forged}, {"stray", s.Stray}} {
			if len(c.lines) == 0 {
				continue
			}
			b.Run(s.Name+"/"+c.name, func(b *testing.B) {
				frames := forgedFrames(b, s.Port, c.lines, sources)
				if len(frames[0]) > longest {
					b.Skip("these packets are longer than a trace may have them")
				}
				benchFrames(b, r, frames)
			})
		}
	}
}

// forgedFrames makes n frames of a flood from drawn addresses. No rule asks for the length of those
// that are 512 bytes long.
func forgedFrames(t testing.TB, port uint16, lines []string, n int) (frames [][]byte) {
	t.Helper()
	var text strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&text, "ipv4 udp from 16.0.0.0/4 random to 198.51.100.1 ttl 64 from port "+
			"1024-65535 random port %d %s\n", port, strings.ReplaceAll(line, "len 512", "len 120"))
	}
	packets, ds := template.Parse("flood", []byte(text.String()))
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	made, err := template.Compile(packets, template.Defaults{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, made.Longest())
	for i := range n {
		frames = append(frames, slices.Clone(made.Frame(buf, uint64(i))))
	}
	return frames
}
