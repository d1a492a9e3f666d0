// Package setfile opens the files that policies name, and keeps what they held.
//
// In goes a path as a policy has it: that of a file, of networks in a database, or of a profile of
// levee's. Out comes its text, or a recording of all that a policy has read. It must never open
// what has no end, such as a device or a directory.
package setfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"levee/internal/lang/policy"
	"levee/internal/lang/use"
)

// In opens the set files of a policy that lies in a directory. A directory or a device is
// refused: reading it could last for ever.
func In(dir string) func(path string) (io.ReadCloser, error) {
	return func(path string) (io.ReadCloser, error) {
		if of, ok := parseSelection(path); ok {
			of.Path = OnDisk(dir, path)
			return of.open()
		}
		if f, ok, err := use.Open(path); ok {
			return f, err
		}
		return openSet(OnDisk(dir, path))
	}
}

// OnDisk returns where the set file lies that a policy in a directory names.
func OnDisk(dir, path string) string {
	if of, ok := parseSelection(path); ok {
		path = of.Path
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return path
}

// None takes all set files for empty ones: for policies whose files are elsewhere.
func None(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }

// Open opens a file or a pipe, but no directory or device, whose reading could last for ever.
func Open(path string) (io.ReadCloser, error) {
	if path == policy.EmptyFile {
		return io.NopCloser(strings.NewReader("")), nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if m := st.Mode(); m.IsDir() || m&(os.ModeDevice|os.ModeSocket) != 0 {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("not a file")}
	}
	return os.Open(path)
}

// openSet is Open for a file that a policy names: no pipe that has a name, for a policy is read
// again and again, and who opens such a pipe may wait for a writer. What a shell gives, as in
// <(command), is a pipe without a name.
func openSet(path string) (io.ReadCloser, error) {
	if st, err := os.Stat(path); err == nil && st.Mode()&os.ModeNamedPipe != 0 && named(path) {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("a pipe, no file")}
	}
	return Open(path)
}

// named reports whether a pipe lies in a file system of files.
func named(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) != nil || fs.Type != unix.PIPEFS_MAGIC
}
