package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"levee/internal/policy"
	"levee/internal/syntax"
)

// parsed is a policy with what was said about it.
type parsed struct {
	src    *source
	tree   *syntax.File
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
	p, more := policy.Resolve(tree, setFiles(src.dir()))
	pr.tree, pr.diags = tree, syntax.Merge(ds, more)
	if !pr.diags.HasErrors() {
		pr.policy = p
	}
	return pr, nil
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
