package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"levee/internal/host/access"
	"levee/internal/lang/diag"
	"levee/internal/lang/syntax"
)

// StdinName is the FILE that means standard input, and stdinTitle is what diagnostics call it.
const (
	StdinName  = "-"
	StdinTitle = "stdin"
)

// Source is the text of one FILE argument.
type Source struct {
	Path string // as given; "-" for standard input
	Text []byte
}

// Title returns the file as diagnostics and verdicts name it.
func (s *Source) Title() string {
	if s.Path == StdinName {
		return StdinTitle
	}
	return diag.Quoted(s.Path)
}

// Name returns the file as JSON has it, which escapes by itself.
func (s *Source) Name() string {
	if s.Path == StdinName {
		return StdinTitle
	}
	return s.Path
}

// Dir returns the folder to which file("...") in the policy is relative.
func (s *Source) Dir() string {
	if s.Path == StdinName {
		return "."
	}
	return filepath.Dir(s.Path)
}

// ReadSource reads a FILE argument.
func (e *Env) ReadSource(path string) (*Source, error) {
	r, err := e.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// One byte more than is allowed, so that the parser sees, and says, that it is too much.
	text, err := io.ReadAll(io.LimitReader(r, syntax.MaxSource+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &Source{Path: path, Text: text}, nil
}

// EachFile runs fn for each FILE argument, reports an error at once and goes on with the next; the
// worst exit status is returned.
func (e *Env) EachFile(files []string, fn func(file string) error) error {
	worst := ExitDone
	for _, file := range files {
		if err := fn(file); err != nil {
			worst = max(worst, Report(e, err))
		}
	}
	if worst != ExitDone {
		return &ExitError{Code: worst}
	}
	return nil
}

// Open opens a file for reading, "-" being standard input, and refuses what cannot be read with a
// sentence.
func (e *Env) Open(path string) (io.ReadCloser, error) {
	if path == StdinName {
		return io.NopCloser(e.Stdin), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, OpenError(err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		f.Close()
		return nil, fmt.Errorf("%s is a directory, a file is needed", diag.Quoted(path))
	}
	return f, nil
}

// OpenError returns the error of a file that was not opened, in the words of all commands.
func OpenError(err error) error {
	var pe *fs.PathError
	switch {
	case errors.As(err, &pe) && pe.Path == "":
		return errors.New("the name of a file is empty, as that of a variable without a value")
	case errors.Is(err, fs.ErrNotExist) && errors.As(err, &pe):
		text := diag.Quoted(pe.Path) + ": no such file"
		if todo := access.Policy(pe.Path, err); todo != "" {
			text += "; " + todo
		}
		return errors.New(text)
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &pe):
		return Refusedf("%s: not allowed to read it; %s", diag.Quoted(pe.Path),
			access.Policy(pe.Path, err))
	}
	return err
}
