package resolve

import (
	"io"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// ConsumeTests gives test statements of another file their policy: the policy of f with those tests
// in the place of its own. Positions in diagnostics are those of tests. open reads set files, as
// for Resolve. Of both files their statements are let go, as by Consume.
func ConsumeTests(f, tests *ast.File, open func(path string) (io.ReadCloser,
	error)) (*policy.Policy,
	diag.Diagnostics) {
	c := &diag.Collector{File: tests.Name}
	for _, s := range tests.Stmts {
		switch s.(type) {
		case *ast.Test, *ast.Bad:
		default:
			c.Errorf(s.Place(), "", "a file of tests has test statements and nothing else")
		}
	}
	if ds := tests.Diagnostics(c); tests.Failed || ds.HasErrors() {
		return nil, ds
	}
	var stmts []ast.Stmt
	for _, s := range f.Stmts {
		if _, own := s.(*ast.Test); !own {
			stmts = append(stmts, s)
		}
	}
	tests.Stmts = append(stmts, tests.Stmts...)
	p, ds := Consume(tests, open)
	if p != nil {
		p.File = fileName(f)
	}
	f.Stmts = nil
	return p, ds
}
