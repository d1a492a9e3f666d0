package syntax

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"levee/internal/lang/diag"
)

// renderOne parses a source and renders its first diagnostic.
func renderOne(t *testing.T, src string, color bool) string {
	t.Helper()
	_, ds := Parse("edge.levee", []byte(src))
	if len(ds) == 0 {
		t.Fatalf("nothing is reported for %q", src)
	}
	var b bytes.Buffer
	if err := ds[:1].Render(&b, color); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRenderPointsAtTheWord(t *testing.T) {
	for _, tc := range []struct{ name, src, want string }{
		{"plain", "pass tcp prot 22\n", `
edge.levee:1:10: error: expected a term, as "LABEL" or the end of the line, found "prot"
    pass tcp prot 22
             ^~~~
    hint: did you mean "port"?
`},
		{"tabs are widened", "pass\ttcp\tprot\n", `
edge.levee:1:10: error: expected a term, as "LABEL" or the end of the line, found "prot"
    pass    tcp     prot
                    ^~~~
    hint: did you mean "port"?
`},
		{"columns count characters", "drop as \"é€𝄞\" udp\n", `
edge.levee:1:15: error: expected the end of the line after "é€𝄞", found "udp"
    drop as "é€𝄞" udp
                  ^~~
    hint: the label ends a rule; put other terms before "as".
`},
		{"the end of the line", "pass tcp port # comment\n", `
edge.levee:1:14: error: expected a port after "port", found the end of the line
    pass tcp port # comment
                 ^
    hint: write a number, a range such as 1000-2000, a list in braces, a comparison such as > 1023, or the name of a set.
`},
		{"an escape sequence does not reach the terminal", "pass \x1b[31mred\n", `
edge.levee:1:6: error: an invisible character (U+001B)
    pass �[31mred
         ^
    hint: remove it.
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := renderOne(t, tc.src, false); got != tc.want[1:] {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want[1:])
			}
		})
	}
}

func TestRenderCutsLongLines(t *testing.T) {
	for _, before := range []int{1, 50, 5000, 400000} {
		src := "drop from { " + strings.Repeat("192.0.2.1, ",
			before) + "} prot " + strings.Repeat("192.0.2.1 ", before) + "\n"
		got := renderOne(t, src, false)
		lines := strings.Split(got, "\n")
		if before*11 > MaxLine {
			if !strings.Contains(lines[0], "this line is") {
				t.Errorf("%d: %s", before, lines[0])
			}
			continue
		}
		if len(lines[1]) > 120 || !strings.Contains(lines[1], "prot") {
			t.Errorf("%d: shown as %q", before, lines[1])
		}
		caret := strings.IndexByte(lines[2], '^')
		if lines[1][caret:caret+4] != "prot" || !strings.HasSuffix(lines[2], "^~~~") {
			t.Errorf("%d: caret at %d of %q", before, caret, lines[1])
		}
	}
}

func TestRenderInColour(t *testing.T) {
	got := renderOne(t, "pass tcp prot 22\n", true)
	for _, want := range []string{"\x1b[1;31merror:\x1b[0m", "\x1b[1;32m^~~~\x1b[0m"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

func TestDiagnosticAsJSON(t *testing.T) {
	_, ds := Parse("edge.levee", []byte("\npass tcp prot 22\n"))
	b, err := json.Marshal(ds)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"file":"edge.levee","line":2,"col":10,"end_col":14,"severity":"error",` +
		`"message":"expected a term, as \"LABEL\" or the end of the line, found \"prot\"",` +
		`"hint":"did you mean \"port\"?","source":"pass tcp prot 22"}]`
	if string(b) != want {
		t.Errorf("got %s\nwant %s", b, want)
	}
}

func TestErrSaysHowManyErrors(t *testing.T) {
	for n, want := range map[int]string{
		0: "<nil>",
		1: "f:1:6: expected a term, as \"LABEL\" or the end of the line, found \"banana\"",
		2: "f:1:6: expected a term, as \"LABEL\" or the end of the line, found \"banana\" (and 1 " +
			"more error)",
		3: "f:1:6: expected a term, as \"LABEL\" or the end of the line, found \"banana\" (and 2 " +
			"more errors)",
	} {
		_, ds := Parse("f", []byte(strings.Repeat("drop banana\n", n)))
		if got := fmt.Sprint(ds.Err()); got != want || ds.HasErrors() != (n > 0) {
			t.Errorf("%d errors: %s", n, got)
		}
	}
}

func TestErrorsBeyondTheLimitAreCounted(t *testing.T) {
	_, ds := Parse("f", []byte(strings.Repeat("drop banana\n", diag.MaxDiagnostics+7)))
	if len(ds) != diag.MaxDiagnostics+1 || ds[diag.MaxDiagnostics].Message != "and 7 more errors" {
		t.Errorf("%d diagnostics, last %v", len(ds), ds[len(ds)-1])
	}
}

func TestNearest(t *testing.T) {
	words := []string{"port", "proto", "from", "fragments", "syn", "to"}
	for word, want := range map[string]string{
		"prot": "port", "pots": "", "porto": "port", "Form": "from", "fragmants": "fragments",
		"fargmnets": "fragments",
		"banana":    "", "sny": "syn", "ot": "", "": "", strings.Repeat("x", 1000): "",
	} {
		if got := diag.Nearest(word, words); got != want {
			t.Errorf("%.20q: %q, want %q", word, got, want)
		}
	}
}
