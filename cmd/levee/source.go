package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"levee/internal/lang/syntax"
)

// stdinName is the FILE that means standard input, and stdinTitle is what diagnostics call it.
const (
	stdinName  = "-"
	stdinTitle = "stdin"
)

// source is the text of one FILE argument.
type source struct {
	path string // as given; "-" for standard input
	text []byte
}

// title is the file as diagnostics and verdicts name it.
func (s *source) title() string {
	if s.path == stdinName {
		return stdinTitle
	}
	return syntax.Quoted(s.path)
}

// name is the file as JSON has it, which escapes by itself.
func (s *source) name() string {
	if s.path == stdinName {
		return stdinTitle
	}
	return s.path
}

// dir is what file("...") in the policy is relative to.
func (s *source) dir() string {
	if s.path == stdinName {
		return "."
	}
	return filepath.Dir(s.path)
}

// readSource reads a FILE argument.
func (e *env) readSource(path string) (*source, error) {
	r, err := e.open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// One byte more than is allowed, so that the parser sees, and says, that it is too much.
	text, err := io.ReadAll(io.LimitReader(r, syntax.MaxSource+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &source{path: path, text: text}, nil
}

// eachFile runs fn for each FILE argument, reports an error at once and goes on with the next; the
// worst exit status is returned.
func (e *env) eachFile(files []string, fn func(file string) error) error {
	worst := exitDone
	for _, file := range files {
		if err := fn(file); err != nil {
			worst = max(worst, report(e, err))
		}
	}
	if worst != exitDone {
		return &exitError{code: worst}
	}
	return nil
}

// open opens a file for reading, "-" being standard input, and refuses what cannot be read with a
// sentence.
func (e *env) open(path string) (io.ReadCloser, error) {
	if path == stdinName {
		return io.NopCloser(e.stdin), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, openError(err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		f.Close()
		return nil, fmt.Errorf("%s is a directory, a file is needed", syntax.Quoted(path))
	}
	return f, nil
}

func openError(err error) error {
	var pe *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist) && errors.As(err, &pe):
		return fmt.Errorf("%s: no such file", syntax.Quoted(pe.Path))
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &pe):
		return refusedf("%s: not allowed to read it; run as its owner or as root",
			syntax.Quoted(pe.Path))
	}
	return err
}
