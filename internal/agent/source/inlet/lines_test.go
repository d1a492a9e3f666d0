package inlet

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"levee/internal/agent/follow"
)

// FuzzReadLines: lines are those between the ends of lines, however they come; one that is too long
// is left out, and the next one is not.
func FuzzReadLines(f *testing.F) {
	f.Add([]byte("a\r\nb\n\n\rc\r\r\nend"), 3)
	f.Add([]byte("\n"), 0)
	f.Add([]byte("one\ntwo\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, long int) {
		parts := bytes.Split(b, []byte("\n"))
		if long >= 0 && long < len(parts) && len(b) < 1<<12 {
			parts[long] = append(bytes.Repeat([]byte{'x'}, follow.MaxLine+1), parts[long]...)
		}
		var want []string
		tooLong := 0
		for _, p := range parts {
			if len(p) > follow.MaxLine {
				tooLong++
			} else if line := strings.TrimSuffix(string(p), "\r"); line != "" {
				want = append(want, line)
			}
		}
		from := bytes.NewReader(bytes.Join(parts, []byte("\n")))
		var got []string
		n := 0
		err := ReadLines(iotest.HalfReader(from), func() { n++ }, func(line []byte) bool {
			got = append(got, string(line))
			return true
		})
		if err != nil || n != tooLong || !slices.Equal(got, want) {
			t.Fatalf("%v; %d lines of %d, %d too long of %d", err, len(got), len(want), n, tooLong)
		}
	})
}
