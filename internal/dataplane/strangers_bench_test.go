package dataplane

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"levee/internal/lab/talk"
	"levee/internal/packet/template"
)

// BenchmarkStrangers measures the time of packets of clients of a profile that nobody knows, as the
// lab forges them, above an empty program: of so many drawn addresses and ports in turn.
func BenchmarkStrangers(b *testing.B) {
	const sources = 1 << 18
	for _, s := range talk.All {
		r := benchRunner(b, fmt.Sprintf("use %s port %d\ndefault drop\n", s.Name, s.Port))
		for what, lines := range map[string][]string{"first": s.Forged, "stray": s.Stray} {
			if len(lines) == 0 {
				continue
			}
			b.Run(s.Name+"/"+what, func(b *testing.B) {
				benchFrames(b, r, forgedFrames(b, s.Port, lines, sources))
			})
		}
	}
}

// forgedFrames makes frames of a flood from drawn addresses.
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
