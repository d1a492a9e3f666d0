package syntax

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
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
		once := ast.Format(file)
		if ds.HasErrors() {
			return
		}
		again, ds := Parse("fuzz.levee", once)
		if err := ds.Err(); err != nil {
			t.Fatalf("printed source has errors: %v\n%s", err, once)
		}
		if twice := ast.Format(again); !bytes.Equal(once, twice) {
			t.Fatalf("printing again changes (-once +twice):\n%s",
				cmp.Diff(string(once), string(twice)))
		}
		if len(file.Stmts) != len(again.Stmts) {
			t.Fatalf("%d statements, %d after printing\n%s", len(file.Stmts), len(again.Stmts),
				once)
		}
		if a, b := takeComments(file), takeComments(again); a != b {
			t.Fatalf("%d comments, %d after printing\n%s", a, b, once)
		}
		for i := range file.Stmts {
			if a, b := textOf(file.Stmts[i]), textOf(again.Stmts[i]); a != b {
				t.Fatalf("statement changed: %s became %s", a, b)
			}
		}
	})
}

// textOf is a statement as it is laid out by itself.
func textOf(s ast.Stmt) string { return string(ast.Format(&ast.File{Stmts: []ast.Stmt{s}})) }

// takeComments takes all comments out of a tree, and says how many there were.
func takeComments(f *ast.File) int {
	n := len(f.End)
	for _, s := range f.Stmts {
		n += commentsIn(reflect.ValueOf(s))
	}
	return n
}

// commentsIn is takeComments for any part of a tree.
func commentsIn(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return commentsIn(v.Elem())
		}
	case reflect.Slice:
		if all, ok := v.Interface().([]ast.Comment); ok {
			v.SetZero()
			return len(all)
		}
		for i := range v.Len() {
			n += commentsIn(v.Index(i))
		}
	case reflect.Struct:
		if c, ok := v.Interface().(ast.Comments); ok {
			v.SetZero()
			if n = len(c.Lead); c.Trail != "" {
				n++
			}
			return n
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				n += commentsIn(v.Field(i))
			}
		}
	}
	return n
}

func checkDiagnostics(t *testing.T, ds diag.Diagnostics, src []byte) {
	t.Helper()
	if len(ds) > 2*diag.MaxDiagnostics+2 {
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
			utf8.RuneCountInString(d.Source) > 160 {
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
	if diff := cmp.Diff(packetFields, string(ast.Format(file))); diff != "" {
		t.Error(diff)
	}
}
