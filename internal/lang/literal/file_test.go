package literal

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/diag"
)

// TestLargeSetFile reads a million lines of both families.
func TestLargeSetFile(t *testing.T) {
	const lines = 1_000_000
	src := setLines(lines)
	ps, ds := ReadPrefixes(bytes.NewReader(src), "large.txt")
	if len(ds) > 0 || len(ps) != lines {
		t.Fatalf("%d prefixes, %v", len(ps), ds)
	}
	merged := MergePrefixes(ps)
	if len(merged) == 0 || len(merged) > lines {
		t.Errorf("%d prefixes merged", len(merged))
	}
}

// setLines is a set file: four of five lines are IPv4 prefixes, the fifth IPv6.
func setLines(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		a := uint32(i) * 2654435761
		if i%5 == 4 {
			fmt.Fprintf(&b, "2001:%x:%x::/48\n", a>>16, a&0xffff)
		} else {
			fmt.Fprintf(&b, "%s/24\n", netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16),
				byte(a >> 8), 0}))
		}
	}
	return b.Bytes()
}

// TestBadLinesAreBounded reads a file in which every line is wrong: the first ones are reported,
// the others counted.
func TestBadLinesAreBounded(t *testing.T) {
	const lines = 100_000
	_, ds := ReadPrefixes(strings.NewReader(strings.Repeat("192.0.2.1/24\n", lines)), "bad.txt")
	if len(ds) != maxLineErrors+1 {
		t.Fatalf("%d diagnostics", len(ds))
	}
	for i, d := range ds[:maxLineErrors] {
		if int(d.Line) != i+1 || d.Col != 1 || d.EndCol != 13 || d.Source != "192.0.2.1/24" {
			t.Errorf("diagnostic %d: %+v", i, d)
		}
	}
	if want := fmt.Sprintf("and %d more bad lines",
		lines-maxLineErrors); ds[maxLineErrors].Message != want {
		t.Errorf("last: %+v", ds[maxLineErrors])
	}
}

// TestLongLinesOfSetFiles are refused without being kept.
func TestLongLinesOfSetFiles(t *testing.T) {
	long := strings.Repeat("1", 1<<20)
	_, ds := ReadPrefixes(strings.NewReader("192.0.2.1\n"+long+"\n192.0.2.9/24\n"+long), "long.txt")
	var at []int
	for _, d := range ds {
		at = append(at, int(d.Line))
	}
	if fmt.Sprint(at) != "[2 3 4]" {
		t.Errorf("bad lines %v: %v", at, ds)
	}
}

// endless gives the same bytes for ever.
type endless string

func (e endless) Read(b []byte) (n int, err error) {
	for n < len(b) {
		n += copy(b[n:], e)
	}
	return n, nil
}

// TestEndlessSetFiles: a stream without an end, such as /dev/zero, is an error and no wait.
func TestEndlessSetFiles(t *testing.T) {
	long := strings.Repeat("\x00", 4000)
	for _, text := range []string{long, "#" + long + "\n", "x\n"} {
		ps, ds := ReadPrefixes(endless(text), "endless.txt")
		if ps != nil || !ds.HasErrors() ||
			!slices.ContainsFunc(ds, func(d diag.Diagnostic) bool {
				return strings.Contains(d.Message, "it was read up to line")
			}) {
			t.Errorf("%.10q: %v", text, ds)
		}
	}
}

// failing is a reader that fails after a line.
type failing struct{ sent bool }

func (f *failing) Read(b []byte) (int, error) {
	if f.sent {
		return 0, io.ErrUnexpectedEOF
	}
	f.sent = true
	return copy(b, "192.0.2.1\n"), nil
}

// TestSetFileCannotBeRead: nothing is loaded from a file that ends in an error.
func TestSetFileCannotBeRead(t *testing.T) {
	ps, ds := ReadPrefixes(&failing{}, "disk.txt")
	if ps != nil || !ds.HasErrors() || !strings.Contains(ds[0].Message, "unexpected EOF") {
		t.Errorf("%v, %v", ps, ds)
	}
}

func BenchmarkReadPrefixes(b *testing.B) {
	src := setLines(1_000_000)
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		if _, ds := ReadPrefixes(bytes.NewReader(src), "bench.txt"); len(ds) > 0 {
			b.Fatal(ds)
		}
	}
}
