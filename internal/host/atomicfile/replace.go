package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Replace makes text the contents of a file that root alone reads, so that a power cut leaves the
// old file or the new one. Directories above it are made. One process at a time may do that to a
// path: what it finds half written is of one that was killed. step is told of each step by name,
// and ends it with an error.
func Replace(path string, text []byte, step func(string) error) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // follows no link
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp))
		}
	}()
	half := len(text) / 2
	write := func(part []byte) func() error {
		return func() error { _, err := f.Write(part); return err }
	}
	for _, do := range []struct {
		step string
		do   func() error
	}{
		{"write half", write(text[:half])}, {"write all", write(text[half:])},
		{"sync", f.Sync}, {"close", f.Close},
		{"rename", func() error { return os.Rename(tmp, path) }},
	} {
		if err = step(do.step); err == nil {
			err = do.do()
		}
		if err != nil {
			f.Close() // does nothing the second time but return an error
			return err
		}
	}
	return syncDir(dir)
}

// syncDir makes a rename in a directory, or a removal, outlive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// some file systems have none
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}
