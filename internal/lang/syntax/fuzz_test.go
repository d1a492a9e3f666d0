package syntax

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse holds for any source: no panic; places lie in the source; a source without errors is
// printed to one that parses to the same statements with as many comments, and printing that again
// changes nothing.
func FuzzParse(f *testing.F) {
	for _, glob := range []string{"errors/*.levee", "valid/*.levee"} {
		paths, err := filepath.Glob(filepath.Join("../../../test/policy", glob))
		if err != nil || len(paths) == 0 {
			f.Fatalf("no seeds in %s: %v", glob, err)
		}
		for _, p := range paths {
			src, err := os.ReadFile(p)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	f.Add([]byte("default drop\n" + packetFields))
	f.Fuzz(func(t *testing.T, src []byte) {
		file, ds := Parse("fuzz.levee", src)
		checkDiagnostics(t, ds, src)
		once := Format(file)
		if ds.HasErrors() {
			return
		}
		again, ds := Parse("fuzz.levee", once)
		if err := ds.Err(); err != nil {
			t.Fatalf("printed source has errors: %v\n%s", err, once)
		}
		if twice := Format(again); !bytes.Equal(once, twice) {
			t.Fatalf("printing again changes (-once +twice):\n%s",
				cmp.Diff(string(once), string(twice)))
		}
		if len(file.Stmts) != len(again.Stmts) {
			t.Fatalf("%d statements, %d after printing\n%s", len(file.Stmts), len(again.Stmts),
				once)
		}
		for i := range file.Stmts {
			if a, b := textOf(file.Stmts[i]), textOf(again.Stmts[i]); a != b {
				t.Fatalf("statement changed: %s became %s", a, b)
			}
		}
		if a, b := countComments(file), countComments(again); a != b {
			t.Fatalf("%d comments, %d after printing\n%s", a, b, once)
		}
	})
}

// textOf is a statement in one line, without comments.
func textOf(s Stmt) string {
	if t, ok := s.(*Test); ok {
		text := "test " + t.Name.Text
		for i := range t.Steps {
			text += "; " + t.Steps[i].text()
		}
		return text
	}
	var p printer
	p.stmt(s)
	return string(p.b)
}

func countComments(f *File) int {
	n := len(f.End)
	one := func(c *Comments) {
		if c == nil {
			return
		}
		n += len(c.Lead)
		if c.Trail != "" {
			n++
		}
	}
	for _, s := range f.Stmts {
		one(s.comments())
		if t, ok := s.(*Test); ok {
			n += len(t.End)
			for i := range t.Steps {
				one(&t.Steps[i].Comments)
			}
		}
		for _, v := range lists(s) {
			one(v.End)
			for i := range v.Elems {
				one(v.Elems[i].Comments)
			}
		}
	}
	return n
}

func checkDiagnostics(t *testing.T, ds Diagnostics, src []byte) {
	t.Helper()
	if len(ds) > 2*MaxDiagnostics+2 {
		t.Errorf("%d diagnostics", len(ds))
	}
	lines := int32(bytes.Count(src, []byte("\n")) + 1)
	last := int32(0)
	for _, d := range ds {
		if d.Line == 0 {
			continue
		}
		if d.Line < last || d.Line > lines || d.Col < 1 || d.EndCol <= d.Col {
			t.Errorf("place %d:%d-%d after line %d, of %d lines: %s", d.Line, d.Col, d.EndCol, last,
				lines, d.Message)
		}
		last = d.Line
		if d.Message == "" || !utf8.ValidString(d.Source) ||
			utf8.RuneCountInString(d.Source) > windowWidth {
			t.Errorf("bad diagnostic: %+v", d)
		}
	}
	if err := ds.Render(io.Discard, true); err != nil {
		t.Error(err)
	}
}

const packetFields = `test "fields" {
    packet ipv6 tcp syn tcp-options hex "01" mss 1460 sack-permitted routing hop-options hex "01 02" seq 5 payload "abc" expect drop
    packet ipv4 vlan 5 udp len 60 checksum wrong id 7 payload counting expect drop
}
`

func TestOptionsOfPacketsKeepTheirOrder(t *testing.T) {
	file, ds := Parse("t", []byte(packetFields))
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(packetFields, string(Format(file))); diff != "" {
		t.Error(diff)
	}
}
