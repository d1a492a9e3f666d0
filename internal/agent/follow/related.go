package follow

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// packed are the ends of names of files that hold no lines any more.
var packed = []string{".gz", ".xz", ".zst", ".bz2", ".lz4", ".tmp"}

// related returns the files beside the path that may hold what was written to it, the oldest first:
// those whose names begin with its own, and, if it is a symbolic link, those that differ from the
// name of its target in digits only.
func (w *Follower) related() []string {
	type found struct {
		path string
		info fs.FileInfo
	}
	var all []found
	list := func(dir string, is func(name string) bool) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return
		}
		for _, e := range entries {
			name := e.Name()
			if !e.Type().IsRegular() || !is(name) || slices.ContainsFunc(packed,
				func(end string) bool { return strings.HasSuffix(name, end) }) {
				continue
			}
			if info, err := e.Info(); err == nil {
				all = append(all, found{filepath.Join(dir, name), info})
			}
		}
	}
	dir, base := filepath.Split(w.path)
	list(dir, func(name string) bool { return strings.HasPrefix(name, base) && name != base })
	if target, err := filepath.EvalSymlinks(w.path); err == nil && target != w.path {
		shape := shapeOf(filepath.Base(target))
		list(filepath.Dir(target), func(name string) bool { return shapeOf(name) == shape })
	}
	slices.SortStableFunc(all, func(a, b found) int {
		if c := a.info.ModTime().Compare(b.info.ModTime()); c != 0 {
			return c
		}
		return strings.Compare(b.path, a.path) // eve.json.2 was written before eve.json.1
	})
	var out []string
	for _, f := range all[max(0, len(all)-maxRelated):] {
		if !slices.Contains(out, f.path) {
			out = append(out, f.path)
		}
	}
	return out
}

// shapeOf returns a name with each run of digits as one.
func shapeOf(name string) string {
	var b strings.Builder
	digit := false
	for _, c := range name {
		if is := c >= '0' && c <= '9'; !is {
			b.WriteRune(c)
			digit = false
		} else if !digit {
			b.WriteByte('0')
			digit = true
		}
	}
	return b.String()
}

// strangers opens related files that have appeared since the follower looked last: they were
// rotated away in between. It remembers all files that it sees now, so that none of them is a
// stranger later.
func (w *Follower) strangers(current id) (out []*file) {
	seen := map[id][]byte{}
	for _, path := range w.related() {
		f, err := open(path)
		if err != nil {
			continue
		}
		head, known := w.known[f.id]
		is := func(o *file) bool { return o.id == f.id }
		switch {
		case f.id == current, slices.ContainsFunc(w.files, is), slices.ContainsFunc(out, is):
			f.f.Close()
			continue // it is read
		case known && bytes.HasPrefix(f.head, head):
			seen[f.id] = f.head
			f.f.Close()
			continue
		}
		f.rotated = true
		out = append(out, f)
	}
	w.known = seen
	return out
}

// learn notes which related files are there, none of which is read.
func (w *Follower) learn() {
	for _, path := range w.related() {
		if f, err := open(path); err == nil {
			w.known[f.id] = f.head
			f.f.Close()
		}
	}
}
