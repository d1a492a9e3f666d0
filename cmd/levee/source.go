package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

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

// eachFile runs fn for each FILE argument, reports an error at once and goes on with the next; the worst exit status
// is returned.
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

// open opens a file for reading, "-" being standard input, and refuses what cannot be read with a sentence.
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
		return refusedf("%s: not allowed to read it; run as its owner or as root", syntax.Quoted(pe.Path))
	}
	return err
}

// replaceFile writes text to path in one step: whoever reads it sees the old text or the new. The file's mode and
// owner stay; a symbolic link is followed, not replaced.
func replaceFile(path string, text []byte) (err error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if !info.Mode().IsRegular() { // a pipe or a device, which a file would take the place of
		return fmt.Errorf("write %s: it is no regular file", path)
	}
	tmp, err := os.CreateTemp(filepath.Dir(real), "."+filepath.Base(real)+".*")
	if err != nil {
		return fmt.Errorf("write %s: make a temporary file beside it: %w", path, err)
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if _, err = io.Copy(tmp, bytes.NewReader(text)); err != nil {
		return err
	}
	if err = keepOwner(tmp, info); err != nil {
		return err
	}
	if err = tmp.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	// Without the sync a crash may leave the new name with no text.
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), real)
}

// keepOwner gives tmp the owner of the file that it replaces: root formatting a user's file leaves it the
// user's.
func keepOwner(tmp *os.File, old fs.FileInfo) error {
	was, ok := old.Sys().(*syscall.Stat_t)
	if !ok || int(was.Uid) == os.Geteuid() && int(was.Gid) == os.Getegid() {
		return nil
	}
	return tmp.Chown(int(was.Uid), int(was.Gid))
}
