package main

import (
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
)

// parsed is a policy with what was said about it.
type parsed struct {
	src    *source
	tree   *syntax.File   // without its statements, for diagnostics
	policy *policy.Policy // nil when there are errors
	diags  syntax.Diagnostics
}

// parse reads and resolves a policy. The error is about reading; what is wrong with the policy is
// in diags.
func (e *env) parse(path string) (*parsed, error) {
	return e.parseThrough(path, nil)
}

// parseThrough is parse with what the set files hold kept in a recording, if there is one.
func (e *env) parseThrough(path string, rec *policy.Recording) (*parsed, error) {
	src, err := e.readSource(path)
	if err != nil {
		return nil, err
	}
	pr := &parsed{src: src}
	tree, ds := syntax.Parse(src.title(), src.text)
	open := policy.Files(src.dir())
	if rec != nil {
		open = rec.Through(open)
	}
	p, more := policy.Consume(tree, open)
	pr.tree, pr.diags = tree, syntax.Merge(ds, more)
	if !pr.diags.HasErrors() {
		pr.policy = p
	}
	return pr, nil
}

// testsBeside gives the tests of another file the policy that they are about: the policy of pr with
// those tests in the place of its own.
func (e *env) testsBeside(pr *parsed, path string) (*policy.Policy, error) {
	src, err := e.readSource(path)
	if err != nil {
		return nil, err
	}
	tests, ds := syntax.Parse(src.title(), src.text)
	tree, _ := syntax.Parse(pr.src.title(), pr.src.text)
	p, more := policy.ConsumeTests(tree, tests, policy.Files(pr.src.dir()))
	ds = syntax.Merge(ds, more)
	if ds.HasErrors() {
		e.printDiagnostics(ds)
		return nil, errNo
	}
	return p, nil
}

// loadPolicy is parse for commands that need a policy without errors: it prints the errors, and
// leaves warnings to `levee check`.
func (e *env) loadPolicy(path string) (*policy.Policy, error) {
	pr, err := e.parse(path)
	if err != nil {
		return nil, err
	}
	if pr.policy == nil {
		e.printDiagnostics(pr.diags)
		return nil, errNo
	}
	return pr.policy, nil
}

// printDiagnostics shows diagnostics to a person.
func (e *env) printDiagnostics(ds syntax.Diagnostics) {
	// The stream remembers a failed write.
	_ = ds.Render(e.stderr, e.stderr.terminal && !e.noColor)
}
