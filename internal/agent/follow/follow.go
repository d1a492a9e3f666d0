// Package follow reads lines as another program writes them to a file that is rotated.
//
// In goes a path, out come whole lines, each once, and a position, from which a later process
// continues. It follows files that are renamed, copied and truncated, truncated in place, replaced
// by another target of a symbolic link, and not there yet. Lines are bounded; memory is that of one
// line. It never writes, waits or locks: whoever uses it asks again.
package follow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// Bounds of a follower.
const (
	MaxLine    = 1 << 20 // bytes of a line
	chunk      = 256 << 10
	headBytes  = 256 // that tell two files of one inode number apart
	maxOpen    = 32  // files that were rotated away, and may still be written to
	maxRelated = 512 // files beside it that are looked at, the newest
)

// linger is the time for which a file that was rotated away is watched after its last line.
const linger = time.Minute

// id is a file, as long as it exists.
type id struct{ Dev, Ino uint64 }

// file is one that is read.
type file struct {
	f       *os.File
	id      id
	off     int64 // offset of the first byte that was not handed on
	size    int64 // when it was looked at last
	head    []byte
	skip    bool // the line at off is too long, and is skipped
	rotated bool
	grown   time.Time
	holes   int    // that were skipped
	renewal uint64 // it is the n-th that begins anew; 0: it was there first
}

// Follower follows one path.
type Follower struct {
	path  string
	files []*file // the oldest first; the last is at the path unless it is rotated
	known map[id][]byte
	buf   []byte

	renewals uint64
	reading  uint64 // the renewal of the file of the current line

	Rotations uint64
	TooLong   uint64   // lines
	Notes     []string // what was found, one sentence each; the caller empties it
	Missing   error    // why there is no file at the path, as of the last Poll
}

// position is the JSON that Position writes.
type position struct {
	Files []savedFile `json:"files"`
	Known []savedFile `json:"known"`
}

type savedFile struct {
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	Offset int64  `json:"offset,omitempty"`
	Head   []byte `json:"head,omitempty"`
	Skip   bool   `json:"skip,omitempty"`
}

// New follows a path from a position that Position has given, or, if it is nil, from the present
// end of the file; fromStart reads what is in the file already. A file that comes later is read
// from its beginning.
func New(path string, from []byte, fromStart bool) (*Follower, error) {
	w := &Follower{path: path, known: map[id][]byte{}, buf: make([]byte, chunk)}
	if from != nil {
		var p position
		if err := json.Unmarshal(from, &p); err != nil {
			return nil, fmt.Errorf("the position in %s: %w", path, err)
		}
		w.resume(&p)
		return w, nil
	}
	w.learn()
	f, err := open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return w, err
	}
	if !fromStart {
		if f.off, err = lineStart(f.f); err != nil {
			f.f.Close()
			return nil, err
		}
	}
	w.files = append(w.files, f)
	return w, nil
}

// lineStart returns where the last line begins that has no end yet.
func lineStart(f *os.File) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	from := max(0, st.Size()-MaxLine)
	b := make([]byte, st.Size()-from)
	n, err := f.ReadAt(b, from)
	if err != nil && err != io.EOF {
		return 0, err
	}
	return from + int64(bytes.LastIndexByte(b[:n], '\n')) + 1, nil
}

// open opens a file, without waiting for one that is no file.
func open(path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &os.PathError{Op: "follow", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	out := &file{f: f, id: idOf(st), size: -1, grown: time.Now()}
	out.head = out.readHead()
	return out, nil
}

func idOf(st fs.FileInfo) id {
	s := st.Sys().(*syscall.Stat_t)
	return id{uint64(s.Dev), s.Ino}
}

// readHead returns the first bytes of the file now.
func (f *file) readHead() []byte {
	b := make([]byte, headBytes)
	n, _ := f.f.ReadAt(b, 0)
	return b[:n]
}

// same tells whether the file still begins as it did.
func (f *file) same() bool { return bytes.HasPrefix(f.readHead(), f.head) }

// resume opens the files of a position again.
func (w *Follower) resume(p *position) {
	for _, k := range p.Known {
		w.known[id{k.Dev, k.Ino}] = k.Head
	}
	there := append(w.related(), w.path)
	for _, saved := range p.Files {
		var found *file
		for _, path := range there {
			f, err := open(path)
			if err != nil {
				continue
			}
			if f.id != (id{saved.Dev, saved.Ino}) || path != w.path &&
				!bytes.HasPrefix(f.head, saved.Head) {
				f.f.Close()
				continue
			}
			if found = f; path != w.path {
				f.rotated = true
			}
			break
		}
		if found == nil {
			found = w.copied(&saved, p)
		}
		if found == nil {
			w.note("%s: a file that was read up to byte %d is gone; what came behind is lost",
				w.path, saved.Offset)
			continue
		}
		found.off, found.head, found.skip = saved.Offset, saved.Head, saved.Skip
		w.files = append(w.files, found)
	}
	slices.SortStableFunc(w.files, func(a, b *file) int { // the one at the path is the last
		switch {
		case a.rotated == b.rotated:
			return 0
		case a.rotated:
			return -1
		}
		return 1
	})
}

// copied opens the file at the path, where that is a copy of one that is gone: it begins with the
// same bytes, reaches as far, and was not read itself.
func (w *Follower) copied(saved *savedFile, p *position) *file {
	f, err := open(w.path)
	if err != nil {
		return nil
	}
	if st, err := f.f.Stat(); err == nil && len(saved.Head) == headBytes &&
		bytes.Equal(f.head, saved.Head) && st.Size() >= saved.Offset &&
		!slices.ContainsFunc(w.files, func(o *file) bool { return o.id == f.id }) &&
		!slices.ContainsFunc(p.Files, func(o savedFile) bool { return f.id == id{o.Dev, o.Ino} }) {
		return f
	}
	f.f.Close()
	return nil
}

func (w *Follower) note(format string, args ...any) {
	if len(w.Notes) < 100 {
		w.Notes = append(w.Notes, fmt.Sprintf(format, args...))
	}
}

// Position is up to where lines were handed on.
func (w *Follower) Position() []byte {
	p := position{}
	for _, f := range w.files {
		p.Files = append(p.Files, savedFile{f.id.Dev, f.id.Ino, f.off, f.head, f.skip})
	}
	for k, head := range w.known {
		p.Known = append(p.Known, savedFile{Dev: k.Dev, Ino: k.Ino, Head: head})
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // of numbers and bytes
	}
	return b
}

// Lag returns how many bytes are written and were not handed on, as of the last Poll.
func (w *Follower) Lag() (n int64) {
	for _, f := range w.files {
		n += max(0, f.size-f.off)
	}
	return n
}

// Close closes the files.
func (w *Follower) Close() {
	for _, f := range w.files {
		f.f.Close()
	}
	w.files = nil
}

// Poll hands on the lines that have come, without their ends, until it has read about most bytes;
// more says that there are others. A line is valid until line returns.
func (w *Follower) Poll(most int64, line func([]byte)) (more bool, err error) {
	if err := w.look(); err != nil {
		return false, err
	}
	for i := 0; i < len(w.files); i++ {
		f := w.files[i]
		n, err := w.read(f, most, line)
		if err != nil {
			return false, fmt.Errorf("read %s: %w", w.path, err)
		}
		if most -= n; most <= 0 {
			return true, nil
		}
	}
	w.retire(line)
	return false, nil
}

// look finds out what has become of the path.
func (w *Follower) look() error {
	var cur *file
	if n := len(w.files); n > 0 && !w.files[n-1].rotated {
		cur = w.files[n-1]
	}
	st, err := os.Stat(w.path)
	w.Missing = nil
	if errors.Is(err, fs.ErrNotExist) {
		if w.Missing = err; cur != nil {
			cur.rotated = true
		}
		return nil
	}
	if err != nil {
		return err
	}
	if cur != nil && idOf(st) == cur.id {
		if st.Size() >= cur.off && cur.same() {
			return nil
		}
		w.truncated(cur)
		return nil
	}
	f, err := open(w.path)
	if errors.Is(err, fs.ErrNotExist) { // until the next time
		return nil
	}
	if err != nil {
		return err
	}
	if cur != nil {
		cur.rotated = true
		w.Rotations++
	}
	at := slices.IndexFunc(w.files, func(o *file) bool { return o.id == f.id })
	if at >= 0 { // it has come back under its name
		f.f.Close()
		f = w.files[at]
		f.rotated = false
		w.files = slices.Delete(w.files, at, at+1)
	}
	between := w.strangers(f.id)
	for _, o := range between {
		w.renew(o)
	}
	if at < 0 {
		w.renew(f)
		if cur != nil && len(between) == 0 {
			f.goOn(cur)
		}
	}
	w.files = append(append(w.files, between...), f)
	return nil
}

// renew notes that a file begins anew.
func (w *Follower) renew(f *file) {
	w.renewals++
	f.renewal = w.renewals
}

// Renewal returns the number of the current line's file, among those that began anew; 0 is the
// first. Such a file may repeat lines that were read before: an editor, and sed -i, replace the
// file by a new one.
func (w *Follower) Renewal() uint64 { return w.reading }

// tailBytes are compared of two files behind their heads.
const tailBytes = 4 << 10

// goOn reads on in a copy of a file that was put in its place, from where that one was read. What
// was written to the old one since it was copied stands in that alone.
func (f *file) goOn(old *file) {
	st, err := f.f.Stat()
	was, oldErr := old.f.Stat()
	if err != nil || oldErr != nil || old.off == 0 || st.Size() < old.off ||
		!bytes.HasPrefix(f.head, old.head) {
		return
	}
	from := max(0, old.off-tailBytes)
	b, c := make([]byte, old.off-from), make([]byte, old.off-from)
	if _, err := f.f.ReadAt(b, from); err != nil {
		return
	}
	if _, err := old.f.ReadAt(c, from); err != nil || !bytes.Equal(b, c) {
		return
	}
	f.off, f.skip, f.renewal = old.off, old.skip, old.renewal
	old.off = min(st.Size(), was.Size())
}

// truncated reads a file from its beginning again, after the rest of its copy.
func (w *Follower) truncated(cur *file) {
	w.Rotations++
	w.files = w.files[:len(w.files)-1]
	copied := false
	for _, f := range w.strangers(cur.id) {
		if st, err := f.f.Stat(); !copied && err == nil && len(cur.head) > 0 &&
			bytes.HasPrefix(f.head, cur.head) && st.Size() >= cur.off {
			f.off, f.skip, f.renewal, copied = cur.off, cur.skip, cur.renewal, true
		} else {
			w.renew(f)
		}
		w.files = append(w.files, f)
	}
	cur.off, cur.size, cur.skip, cur.head = 0, -1, false, cur.readHead()
	w.renew(cur)
	w.files = append(w.files, cur)
}

// read hands on what has come in one file.
func (w *Follower) read(f *file, most int64, line func([]byte)) (total int64, err error) {
	for w.reading = f.renewal; ; {
		st, err := f.f.Stat()
		if err != nil {
			return total, err
		}
		if st.Size() != f.size {
			f.size, f.grown = st.Size(), time.Now()
		}
		if f.off >= f.size || total >= most {
			return total, nil
		}
		n, err := f.f.ReadAt(w.buf, f.off)
		if err != nil && err != io.EOF {
			return total, err
		}
		if n > 0 && blank(w.buf[:n]) {
			total += int64(n)
			w.skipHole(f, n)
			continue
		}
		if !f.same() { // truncated meanwhile: these may be bytes of the next lines
			return total, nil
		}
		if len(f.head) < headBytes {
			f.head = f.readHead()
		}
		end := bytes.LastIndexByte(w.buf[:n], '\n') + 1
		if end == 0 {
			if n == 0 || !w.unended(f, n) {
				return total, nil
			}
			total += int64(n)
			continue
		}
		for rest := w.buf[:end]; len(rest) > 0; {
			i := bytes.IndexByte(rest, '\n')
			if f.skip {
				f.skip = false
			} else if text := written(rest[:i]); text != nil {
				line(bytes.TrimSuffix(text, []byte("\r")))
			}
			rest = rest[i+1:]
		}
		f.off += int64(end)
		total += int64(end)
	}
}

// unended is for n bytes without the end of a line: it makes room for more, or skips them, and
// tells whether there is more to do.
func (w *Follower) unended(f *file, n int) bool {
	switch {
	case f.skip:
	case n < len(w.buf): // not written yet
		return false
	case len(w.buf) < MaxLine:
		w.buf = make([]byte, min(2*len(w.buf), MaxLine))
		return true
	default:
		w.TooLong++
		f.skip = true
	}
	f.off += int64(n)
	return true
}

// retire closes files that were rotated away and are not written to any more. What stands behind
// the last end of a line is a line then.
func (w *Follower) retire(line func([]byte)) {
	var old int
	for _, f := range w.files {
		if f.rotated || f != w.files[len(w.files)-1] {
			old++
		}
	}
	kept := w.files[:0]
	for i, f := range w.files {
		last := i == len(w.files)-1 && !f.rotated
		if last || old <= maxOpen && time.Since(f.grown) < linger {
			kept = append(kept, f)
			continue
		}
		old--
		if rest := f.size - f.off; rest > 0 && rest <= int64(len(w.buf)) && !f.skip {
			n, _ := f.f.ReadAt(w.buf[:rest], f.off)
			if text := written(w.buf[:n]); len(text) > 0 {
				w.reading = f.renewal
				line(text)
			}
		}
		w.known[f.id] = f.head
		f.f.Close()
	}
	w.files = kept
}
