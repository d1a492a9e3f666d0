package atomicfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Kept is a file of JSON that a process reads once, and then writes anew with each change. Nothing
// that is wrong with it ends the process: what cannot be read is put aside, and before that nothing
// is written in its place.
type Kept struct {
	path   string
	most   int64
	perm   fs.FileMode
	unread bool // what lies there is to be put aside before the first write
}

// Keep is a file of at most most bytes, which need not be there.
func Keep(path string, most int64, perm fs.FileMode) *Kept {
	return &Kept{path: path, most: most, perm: perm}
}

// Path is where the file is.
func (k *Kept) Path() string { return k.path }

// Aside is where what cannot be read is put.
func (k *Kept) Aside() string { return k.path + ".damaged" }

// Read reads the file into v. damaged says why it cannot be read, is too long, or is no such JSON;
// v may then hold a part of it.
func (k *Kept) Read(v any) (damaged error) {
	switch damaged = k.read(v); {
	case damaged == nil, errors.Is(damaged, fs.ErrNotExist):
		return nil
	}
	k.unread = true
	_ = k.aside() // Write tries again, and says why it cannot
	return damaged
}

func (k *Kept) read(v any) error {
	info, err := os.Stat(k.path)
	if err != nil {
		return err
	}
	if info.Size() > k.most {
		return fmt.Errorf("%d bytes are more than the %d that there may be", info.Size(), k.most)
	}
	text, err := os.ReadFile(k.path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// Write makes text the contents of the file.
func (k *Kept) Write(text []byte) error {
	if err := k.aside(); err != nil {
		return fmt.Errorf("write %s: put aside what cannot be read: %w", k.path, err)
	}
	if err := os.MkdirAll(filepath.Dir(k.path), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", k.path, err)
	}
	return Write(k.path, text, k.perm)
}

func (k *Kept) aside() error {
	if !k.unread {
		return nil
	}
	if err := os.Rename(k.path, k.Aside()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k.unread = false
	return nil
}
