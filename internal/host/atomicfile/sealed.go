package atomicfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// Sealed is a file of JSON that a process reads once, and then writes anew with each change.
// Nothing that is wrong with it ends the process: what cannot be read is put aside, and before that
// nothing is written in its place. A sum tells a file of which any byte was changed.
type Sealed struct {
	path    string
	version int
	most    int64
	perm    fs.FileMode
	unread  bool // what lies there is to be put aside before the first write
}

// NewSealed returns a file of at most most bytes, which need not be there. A file of a version
// above this one cannot be read.
func NewSealed(path string, version int, most int64, perm fs.FileMode) *Sealed {
	return &Sealed{path: path, version: version, most: most, perm: perm}
}

// sealed is the content of such a file. Files of a levee before it had sums are the data alone.
type sealed struct {
	Version *int            `json:"version"`
	Sum     *string         `json:"crc32c"` // of the data, in hexadecimal digits
	Data    json.RawMessage `json:"data"`
}

func sumOf(data []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

// unseal returns the data of a file.
func (k *Sealed) unseal(text []byte) ([]byte, error) {
	var s sealed
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, err
		}
	}
	switch {
	case s.Version == nil && s.Sum == nil && s.Data == nil:
		return text, nil
	case s.Version != nil && *s.Version > k.version:
		return nil, fmt.Errorf("it is of version %d, which a newer levee has written; this one "+
			"reads up to %d", *s.Version, k.version)
	case s.Version == nil || s.Sum == nil || *s.Sum != sumOf(s.Data):
		return nil, errors.New("its sum is another: a part of it was changed")
	}
	return s.Data, nil
}

// Path returns where the file is.
func (k *Sealed) Path() string { return k.path }

// Aside returns where what cannot be read is put.
func (k *Sealed) Aside() string { return k.path + ".damaged" }

// Read reads the file into v. damaged says why it cannot be read: it is too long, was changed, is
// of a newer version or no such JSON. v may then hold a part of it.
func (k *Sealed) Read(v any) (damaged error) {
	switch damaged = k.read(v); {
	case damaged == nil, errors.Is(damaged, fs.ErrNotExist):
		return nil
	}
	k.unread = true
	_ = k.aside() // Write tries again, and says why it cannot
	return damaged
}

func (k *Sealed) read(v any) error {
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
	if text, err = k.unseal(text); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// Write makes text, which is JSON, the contents of the file.
func (k *Sealed) Write(text []byte) error {
	text = fmt.Appendf(nil, "{\"version\":%d,\"crc32c\":%q,\"data\":%s}\n", k.version,
		sumOf(text), text)
	if err := k.aside(); err != nil {
		return fmt.Errorf("write %s: put aside what cannot be read: %w", k.path, err)
	}
	if err := os.MkdirAll(filepath.Dir(k.path), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", k.path, err)
	}
	return Write(k.path, text, k.perm)
}

func (k *Sealed) aside() error {
	if !k.unread {
		return nil
	}
	if err := os.Rename(k.path, k.Aside()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k.unread = false
	return nil
}
