package policy

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"slices"
	"strconv"

	"levee/internal/lang/ast"
	"levee/internal/lang/field"
	"levee/internal/lang/syntax"
)

// SetFile is what a set file held when the policy was read.
type SetFile struct {
	Path   string `json:"path"`   // as it is written in the policy
	Packed []byte `json:"packed"` // the text, by gzip
	Sum    string `json:"sum"`    // SHA-256 of the text; "" where a levee before this one read it
}

// Recording keeps what the set files of a policy held while it was read, so that the policy in
// force can be read again when its files have changed or gone.
type Recording struct{ files []SetFile }

// Files are the files that were read to their end, in that order.
func (r *Recording) Files() []SetFile { return r.files }

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
	return slices.ContainsFunc(r.files, func(f SetFile) bool { return f.Path == path })
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
		k.of.files = append(k.of.files, SetFile{k.path, k.packed.Bytes(),
			hex.EncodeToString(k.sum.Sum(nil))})
	}
	return err
}

// Recorded opens the set files of a recording.
func Recorded(files []SetFile) func(path string) (io.ReadCloser, error) {
	return func(path string) (io.ReadCloser, error) {
		for _, f := range files {
			if f.Path == path {
				return gzip.NewReader(bytes.NewReader(f.Packed))
			}
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
}

// Whole is a policy with what its set files held in the place of their names: its own text is all
// that it takes to put it in force. It is laid out as Format does.
func Whole(name string, src []byte, files []SetFile) ([]byte, error) {
	p, ds := Parse(name, src, Recorded(files))
	if p == nil {
		return nil, fmt.Errorf("%s cannot be read again: %s", name, ds[0].Message)
	}
	f, _ := syntax.Parse(name, src)
	f.Stmts = newResolver(f, Recorded(files)).stmts
	limits := map[bool][]*Rule{false: p.Limits()}
	if out := p.Leaving(); out != nil {
		limits[true] = out.Limits()
	}
	for _, s := range f.Stmts {
		if rule, ok := s.(*ast.Rule); ok && rule.Limit != nil {
			side := limits[rule.Out]
			inlineRates(rule.Limit.Rates, side[0].Limit.Rates)
			limits[rule.Out] = side[1:]
		}
		set, ok := s.(*ast.Set)
		if ok && set.Dynamic != nil && set.Dynamic.Path != nil {
			inlineBegin(set, p)
		}
		if !ok || set.Path == nil && set.MMDB == nil {
			continue
		}
		list := &ast.Value{List: true}
		for _, of := range p.Sets {
			if of.Name == set.Name.Text {
				for text := range of.Texts() {
					list.Elems = append(list.Elems, ast.Elem{Text: text})
				}
			}
		}
		if len(list.Elems) == 0 { // no list can be empty
			set.MMDB, set.Path = nil, &ast.Word{Text: emptyFile}
			continue
		}
		set.MMDB, set.Path, set.List = nil, nil, list
	}
	return ast.Format(f), nil
}

// inlineRates puts rates in the place of their file.
func inlineRates(s *ast.Rates, rates *Rates) {
	if s == nil || s.Path == nil {
		return
	}
	s.Path, s.List = nil, &ast.Value{List: true}
	for i := range rates.Entries {
		s.List.Elems = append(s.List.Elems, ast.Elem{Text: rates.Entries[i].Text()})
	}
}

// inlineBegin puts the entries that a set begins with in the place of their file.
func inlineBegin(s *ast.Set, p *Policy) {
	of := p.Sets[slices.IndexFunc(p.Sets, func(o *Set) bool { return o.Name == s.Name.Text })]
	s.Dynamic.Path = nil
	if len(of.Begin) == 0 {
		return
	}
	s.Dynamic.From = &ast.Value{List: true}
	for _, e := range of.Begin {
		s.Dynamic.From.Elems = append(s.Dynamic.From.Elems, ast.Elem{Text: e.String()})
	}
}

// Texts are the elements of a set as they stand in a list.
func (s *Set) Texts() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, p := range s.Prefixes {
			if !yield(prefixText(p)) {
				return
			}
		}
		for _, r := range s.Ports {
			if !yield(portsText(r)) {
				return
			}
		}
		for _, v := range s.Services {
			if !yield(v.String()) {
				return
			}
		}
		for _, e := range s.Endpoints {
			if !yield(e.String()) {
				return
			}
		}
	}
}

func portsText(r field.Range) string {
	if r.Lo == r.Hi {
		return strconv.FormatUint(r.Lo, 10)
	}
	return fmt.Sprintf("%d-%d", r.Lo, r.Hi)
}
