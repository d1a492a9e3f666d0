package resolve

import (
	"io"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
	"levee/internal/lang/use"
)

// ParseProfile reads a profile as a policy of nothing else, with the values that its parameters
// have by themselves, its own tests and `default drop`.
func ParseProfile(title string, text []byte, open func(string) (io.ReadCloser, error)) (*use.Head,
	*policy.Policy, diag.Diagnostics) {
	head, file, ds := use.Read(title, text)
	if ds.HasErrors() {
		return nil, nil, ds
	}
	values := map[string]*ast.Value{}
	for _, p := range head.Parameters {
		values[p.Name] = p.Value
	}
	f, ds := syntax.ParseBound(title, text, use.Bindings(values, use.SetNames(file), ""))
	if ds.HasErrors() {
		return nil, nil, ds
	}
	f.Stmts = append(f.Stmts[1:], &ast.Default{Action: ast.Word{Text: "drop"}})
	p, more := Consume(f, open)
	return head, p, diag.Merge(ds, more)
}
