// Package salvage finds what of a policy with errors can be put into force all the same.
//
// In go the text of a policy and a way to open its set files; out comes the policy that its
// `on error` may have, or none. It must never take a statement that has an error.
package salvage

import (
	"bytes"
	"io"
	"slices"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/syntax"
)

// Policy returns what `on error` of a policy with errors may put in force: a policy of that
// statement, of `essential off` and `connections max`, and of those protect rules and sets that
// have no errors. It is nil where no `on error` can be read. name, src and open are as for
// resolve.Parse.
func Policy(name string, src []byte, open func(string) (io.ReadCloser, error)) *policy.Policy {
	src = bytes.ReplaceAll(src, []byte{0}, []byte{'\n'}) // as a power cut leaves a file
	for {
		f, _ := syntax.Parse(name, src)
		var right []string
		for _, set := range resolve.Sets(f, open) {
			right = append(right, set.Name)
		}
		rest := onlyLines(src, f, func(s ast.Stmt) bool {
			switch s := s.(type) {
			case *ast.Essential, *ast.OnError:
				return true
			case *ast.Connections:
				_, p := literal.Connections(s.Max.Text)
				return !p.Found()
			case *ast.Set:
				return slices.Contains(right, s.Name.Text)
			case *ast.Rule:
				return s.Action == "protect" && !s.Out
			}
			return false
		}, nil)
		p, ds := resolve.Parse(name, append(bytes.Clone(rest), "\ndefault drop\n"...), open)
		if p != nil {
			if p.OnError == policy.KeepLast {
				return nil
			}
			return p
		}
		f, _ = syntax.Parse(name, rest)
		src = onlyLines(rest, f, func(ast.Stmt) bool { return true }, ds)
		if bytes.Equal(src, rest) {
			return nil // it is no statement that is wrong
		}
	}
}

// onlyLines returns a source with the lines of all other statements than those wanted empty, and of
// those to which an error belongs.
func onlyLines(src []byte, f *ast.File, want func(ast.Stmt) bool,
	ds diag.Diagnostics) []byte {
	lines := bytes.Split(src, []byte{'\n'})
	for i, s := range f.Stmts {
		first, end := int(s.Place().Line)-1, len(lines)
		if i+1 < len(f.Stmts) {
			end = max(first+1, int(f.Stmts[i+1].Place().Line)-1)
		}
		wrong := func(d diag.Diagnostic) bool {
			at := int(d.Line) - 1
			return d.Severity == diag.Error && d.File == f.Name && first <= at && at < end
		}
		if want(s) && !slices.ContainsFunc(ds, wrong) {
			continue
		}
		for n := first; n < end; n++ {
			lines[n] = nil
		}
	}
	return bytes.Join(lines, []byte{'\n'})
}
