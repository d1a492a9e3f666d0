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
	"slices"
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
// <(command), is a pipe without a name. Nor is it a file that the kernel makes as it is read: some
// have no end, as trace_pipe, and others tell of this process, as /proc/self/environ.
func openSet(path string) (io.ReadCloser, error) {
	st, err := os.Stat(path)
	if err == nil {
		switch pipe, of := st.Mode()&os.ModeNamedPipe != 0, fileSystem(path); {
		case pipe && of != unix.PIPEFS_MAGIC:
			err = errors.New("a pipe, no file")
		case slices.Contains(madeAsRead, of):
			err = errors.New("the kernel makes it as it is read: it is not a file of a disk")
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
	return Open(path)
}

// madeAsRead are the file systems whose files the kernel makes as they are read.
var madeAsRead = []int64{unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.TRACEFS_MAGIC,
	unix.DEBUGFS_MAGIC, unix.SECURITYFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC}

// fileSystem returns what a file lies in, 0 where that cannot be told.
func fileSystem(path string) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return 0
	}
	return int64(fs.Type)
}
