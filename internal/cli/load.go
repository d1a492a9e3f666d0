package cli

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/lang/syntax"
)

// Parsed is a policy with what was said about it.
type Parsed struct {
	Src    *Source
	Tree   *ast.File      // without its statements, for diagnostics
	Policy *policy.Policy // nil when there are errors
	Diags  diag.Diagnostics
}

// Parse reads and resolves a policy. The error is about reading; what is wrong with the policy is
// in diags.
func (e *Env) Parse(path string) (*Parsed, error) {
	return e.ParseThrough(path, nil)
}

// ParseThrough is parse with what the set files hold kept in a recording, if there is one.
func (e *Env) ParseThrough(path string, rec *setfile.Recording) (*Parsed, error) {
	src, err := e.ReadSource(path)
	if err != nil {
		return nil, err
	}
	pr := &Parsed{Src: src}
	tree, ds := syntax.Parse(src.Title(), src.Text)
	open := setfile.In(src.Dir())
	if rec != nil {
		open = rec.Through(open)
	}
	p, more := resolve.Consume(tree, open)
	pr.Tree, pr.Diags = tree, diag.Merge(ds, more)
	if !pr.Diags.HasErrors() {
		pr.Policy = p
	}
	return pr, nil
}

// TestsBeside gives the tests of another file their policy: the policy of pr with those tests in
// the place of its own.
func (e *Env) TestsBeside(pr *Parsed, path string) (*policy.Policy, error) {
	src, err := e.ReadSource(path)
	if err != nil {
		return nil, err
	}
	tests, ds := syntax.Parse(src.Title(), src.Text)
	tree, _ := syntax.Parse(pr.Src.Title(), pr.Src.Text)
	p, more := resolve.ConsumeTests(tree, tests, setfile.In(pr.Src.Dir()))
	ds = diag.Merge(ds, more)
	if ds.HasErrors() {
		e.PrintDiagnostics(ds)
		return nil, ErrNo
	}
	return p, nil
}

// LoadPolicy is parse for commands that need a policy without errors: it prints the errors, and
// leaves warnings to `levee check`.
func (e *Env) LoadPolicy(path string) (*policy.Policy, error) {
	pr, err := e.Parse(path)
	if err != nil {
		return nil, err
	}
	if pr.Policy == nil {
		e.PrintDiagnostics(pr.Diags)
		return nil, ErrNo
	}
	return pr.Policy, nil
}

// PrintDiagnostics shows diagnostics to a person.
func (e *Env) PrintDiagnostics(ds diag.Diagnostics) {
	// The stream remembers a failed write.
	_ = ds.Render(e.Stderr, e.Stderr.Terminal && !e.NoColor)
}
