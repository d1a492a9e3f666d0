package setfile

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"slices"
)

// File is a set file as it was when the policy was read.
type File struct {
	Path   string `json:"path"`   // as it is written in the policy
	Packed []byte `json:"packed"` // the text, by gzip
	Sum    string `json:"sum"`    // SHA-256 of the text; "" where a levee before this one read it
}

// Recording keeps what the set files of a policy held while it was read, so that the policy in
// force can be read again when its files have changed or gone.
type Recording struct{ files []File }

// Files returns the files that were read to their end, in that order.
func (r *Recording) Files() []File { return r.files }

// Through is open with everything that is read through it kept.
func (r *Recording) Through(open func(string) (io.ReadCloser, error)) func(string) (io.ReadCloser,
	error) {
	return func(path string) (io.ReadCloser, error) {
		f, err := open(path)
		if err != nil || r.has(path) {
			return f, err
		}
		k := &recorder{f: f, of: r, path: path, sum: sha256.New()}
		k.zip, err = gzip.NewWriterLevel(&k.packed, gzip.BestSpeed)
		return k, err
	}
}

func (r *Recording) has(path string) bool {
	return slices.ContainsFunc(r.files, func(f File) bool { return f.Path == path })
}

// recorder packs what is read from a file.
type recorder struct {
	f      io.ReadCloser
	of     *Recording
	path   string
	packed bytes.Buffer
	zip    *gzip.Writer
	sum    hash.Hash
}

func (k *recorder) Read(b []byte) (int, error) {
	n, err := k.f.Read(b)
	k.sum.Write(b[:n])
	if _, werr := k.zip.Write(b[:n]); werr != nil {
		return n, werr
	}
	return n, err
}

func (k *recorder) Close() error {
	err := errors.Join(k.zip.Close(), k.f.Close())
	if !k.of.has(k.path) {
		k.of.files = append(k.of.files, File{k.path, k.packed.Bytes(),
			hex.EncodeToString(k.sum.Sum(nil))})
	}
	return err
}

// Recorded opens the set files of a recording.
func Recorded(files []File) func(path string) (io.ReadCloser, error) {
	return func(path string) (io.ReadCloser, error) {
		for _, f := range files {
			if f.Path == path {
				return gzip.NewReader(bytes.NewReader(f.Packed))
			}
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
}
