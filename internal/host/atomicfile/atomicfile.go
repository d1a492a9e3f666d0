// Package atomicfile writes files in one step: whoever reads a file sees the old text or the new.
// It reads those of JSON, and puts damaged ones aside.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Write puts text into a file. A file that is there keeps its mode and owner, and a symbolic link
// is followed, not replaced; a new file has the permissions perm. What is no regular file, as a
// pipe or a device, is left alone, and so is what a link leads to that somebody else has put into a
// directory as /tmp (proc_sys_fs(5), protected_symlinks).
func Write(path string, text []byte, perm fs.FileMode) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	for range 100 {
		// The kernel follows the links: reading them one by one would pass by what it refuses.
		f, err := os.OpenFile(path, unix.O_PATH, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return put(path, text, perm, nil)
		}
		if err != nil {
			return err
		}
		real, old, err := place(f)
		f.Close()
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process has replaced it meanwhile
		}
		if err != nil {
			return err
		}
		return put(real, text, old.Mode().Perm(), old)
	}
	return errors.New("it has no name here, or others replace it again and again")
}

// place returns the name of a regular file with all symbolic links resolved. The error matches
// fs.ErrNotExist if the file is deleted; the kernel makes a name up for such a file.
func place(f *os.File) (string, fs.FileInfo, error) {
	old, err := f.Stat()
	switch {
	case err != nil:
		return "", nil, err
	case !old.Mode().IsRegular():
		return "", nil, errors.New("it is no regular file")
	}
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil { // of /proc, not of the file
		return "", nil, fmt.Errorf("find where it is: %v", err)
	}
	there, err := os.Lstat(real)
	if err == nil && !os.SameFile(there, old) {
		err = fs.ErrNotExist
	}
	return real, old, err
}

// put makes a file beside path and renames it.
func put(path string, text []byte, perm fs.FileMode, old fs.FileInfo) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("make a temporary file beside it: %w", err)
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(text); err != nil {
		return err
	}
	if err = preserveOwner(tmp, old); err != nil {
		return err
	}
	if err = tmp.Chmod(perm); err != nil {
		return err
	}
	// Without the sync a crash may leave the new name with no text.
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// preserveOwner gives tmp the owner of the file that it replaces, if there is one: root formatting
// a user's file leaves it the user's.
func preserveOwner(tmp *os.File, old fs.FileInfo) error {
	if old == nil {
		return nil
	}
	was, ok := old.Sys().(*syscall.Stat_t)
	if !ok || int(was.Uid) == os.Geteuid() && int(was.Gid) == os.Getegid() {
		return nil
	}
	return tmp.Chown(int(was.Uid), int(was.Gid))
}
