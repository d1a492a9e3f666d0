package policy

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"levee/internal/lang/diag"
	"levee/internal/lang/syntax"
)

// filled repeats a part until the source has at least size bytes.
func filled(size int, head string, part func(i int) string, tail string) []byte {
	var b bytes.Buffer
	b.Grow(size + 1024)
	b.WriteString(head)
	for i := 0; b.Len() < size; i++ {
		b.WriteString(part(i))
	}
	b.WriteString(tail)
	return b.Bytes()
}

// TestLargePolicies gives sources of 50 MB, most of them hostile: each gives a policy or a clear
// error, without reading them again and again or growing far beyond their size.
func TestLargePolicies(t *testing.T) {
	const size = 5 << 20 // of those where nothing depends on more
	v4 := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }
	for _, tc := range []struct {
		name, want string // want "" is a policy
		src        []byte
	}{
		{"an inline set", "", filled(50<<20, "set big = {\n",
			func(i int) string { return v4(i) + ",\n" }, "}\ndrop from big\ndefault pass\n")},
		{"rules", "at most 262144 statements",
			filled(50<<20, "", func(i int) string {
				return "drop tcp from " + v4(i) +
					" port 80 as \"rule " + v4(i) + "\"\n"
			}, "default pass\n")},
		{"one line", "this line is", filled(size, "set big = {",
			func(i int) string { return v4(i) + "," }, "}\ndefault pass\n")},
		{"mistakes", "and ", filled(size, "", func(i int) string { return "drop prot 80\n" },
			"default pass\n")},
		{"missing sets", "and ", filled(size, "", func(i int) string {
			return "drop from nothing-of-this-name-that-is-long-enough-to-have-fewer-statements " +
				"and { }\n"
		}, "default pass\n")},
		{"comments", "more than 4194304 statements, terms, elements and comments",
			filled(9<<20, "", func(i int) string { return "#\n" }, "default pass\n")},
		{"empty lines", "", filled(size, "", func(i int) string { return "\n" }, "default pass\n")},
		{"braces", "and ", filled(size, "",
			func(i int) string { return "drop port {{{{{{{{{{{{{{{{\n" }, "default pass\n")},
		{"one open brace", "never closed",
			filled(size, "set a = {", func(i int) string { return "\n\n\n\n\n\n\n\n" }, "")},
		{"ranges within each other", "",
			filled(size, "set big = {\n", func(i int) string {
				return fmt.Sprintf("::%x:%x-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe,\n", i>>16,
					i&0xffff)
			}, "}\ndrop from big\ndefault pass\n")},
		{"ranges apart", "more than 8388608 elements",
			filled(size, "set big = {\n", func(i int) string {
				return fmt.Sprintf("2001:db8:%x:%x::1-2001:db8:%[1]x:%[2]x:ffff:ffff:ffff:fffe,\n",
					i>>16, i&0xffff)
			}, "}\ndrop from big\ndefault pass\n")},
		{"packets", "more than 64 MiB",
			filled(5<<20, "default pass\ntest \"t\" {\n",
				func(i int) string { return "packet len 65535 expect pass\n" }, "}\n")},
		{"sets in sets", "more than 8388608 elements",
			append(filled(200_000, "set a = {\n", func(i int) string { return v4(2*i) + ",\n" },
				"}\n"),
				"set b = { "+strings.Repeat("a, ", 900)+"}\ndrop from b\ndefault pass\n"...)},
		{"dynamic sets", "at most 1000 dynamic sets",
			filled(100_000, "", func(
				i int) string {
				return fmt.Sprintf("set s%d = dynamic(max 10)\n", i)
			}, "default pass\n")},
		{"binary", "NUL", make([]byte, size)},
		{"too large", "at most 64 MiB", make([]byte, syntax.MaxSource+1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, ds := Parse("large.levee", tc.src, nil)
			if (p != nil) != (tc.want == "") {
				t.Fatalf("policy %v, %v", p != nil, ds.Err())
			}
			if tc.want != "" && !strings.Contains(fmt.Sprint(ds), tc.want) {
				t.Errorf("no %q in %v", tc.want, ds.Err())
			}
			if len(ds) > 4*diag.MaxDiagnostics {
				t.Errorf("%d diagnostics", len(ds))
			}
		})
		runtime.GC() // the next source is as large
	}
}

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

// TestSetsTooDeep: how deep sets may stand in sets does not depend on the order in which they are
// written.
func TestSetsTooDeep(t *testing.T) {
	for _, n := range []int{maxNesting, maxNesting + 1} {
		lines := []string{"set s0 = { 192.0.2.1 }"}
		for i := range n {
			lines = append(lines, fmt.Sprintf("set s%d = { s%d }", i+1, i))
		}
		for range 2 {
			_, ds := Parse("deep.levee", []byte(strings.Join(lines, "\n")+
				fmt.Sprintf("\ndrop from s%d\ndefault pass\n", n)), nil)
			if ds.HasErrors() != (n > maxNesting) {
				t.Errorf("%d deep: %v", n, ds)
			}
			slices.Reverse(lines)
		}
	}
}
