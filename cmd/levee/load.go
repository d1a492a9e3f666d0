package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"

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

// parse reads and resolves a policy. The error is about reading; what is wrong with the policy is in diags.
func (e *env) parse(path string) (*parsed, error) {
	src, err := e.readSource(path)
	if err != nil {
		return nil, err
	}
	pr := &parsed{src: src}
	tree, ds := syntax.Parse(src.title(), src.text)
	p, more := policy.Consume(tree, setFiles(src.dir()))
	pr.tree, pr.diags = tree, syntax.Merge(ds, more)
	if !pr.diags.HasErrors() {
		pr.policy = p
	}
	return pr, nil
}

// testsBeside gives the tests of another file the policy that they are about: the policy of pr with those tests in the place
// of its own.
func (e *env) testsBeside(pr *parsed, path string) (*policy.Policy, error) {
	src, err := e.readSource(path)
	if err != nil {
		return nil, err
	}
	tests, ds := syntax.Parse(src.title(), src.text)
	c := &syntax.Collector{File: tests.Name}
	for _, s := range tests.Stmts {
		switch s.(type) {
		case *syntax.Test, *syntax.Bad:
		default:
			c.Errorf(s.Place(), "", "a file of tests has test statements and nothing else")
		}
	}
	ds = syntax.Merge(ds, tests.Diagnostics(c))
	var p *policy.Policy
	if !ds.HasErrors() {
		var rules []syntax.Stmt
		tree, _ := syntax.Parse(pr.src.title(), pr.src.text)
		for _, s := range tree.Stmts {
			if _, own := s.(*syntax.Test); !own {
				rules = append(rules, s)
			}
		}
		tests.Stmts = append(rules, tests.Stmts...)
		p, ds = policy.Consume(tests, setFiles(pr.src.dir()))
	}
	if ds.HasErrors() {
		e.printDiagnostics(ds)
		return nil, errNo
	}
	p.File = pr.policy.File
	return p, nil
}

// setFiles opens the files that a policy names, relative to its directory. A device is refused: reading it might
// never end.
func setFiles(dir string) func(string) (io.ReadCloser, error) {
	return func(path string) (io.ReadCloser, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if m := info.Mode(); m.IsDir() || m&(os.ModeDevice|os.ModeSocket) != 0 {
			return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("not a file")}
		}
		return os.Open(path)
	}
}

// loadPolicy is parse for commands that need a policy without errors: it prints the errors, and leaves warnings
// to `levee check`.
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
