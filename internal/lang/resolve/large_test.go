package resolve

import (
	"bytes"
	"fmt"
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
