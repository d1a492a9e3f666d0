package status

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"levee/internal/dataplane/inspect"
	"levee/internal/lang/diag"
	"levee/internal/lang/setfile"
	"levee/internal/lang/use"
)

// changedSince lists the files of a policy in force, its own and its set files, that hold something
// else now, or are gone. What this process may not read is not among them.
func changedSince(a *inspect.Attachment) []diag.Shown {
	changed := []diag.Shown{}
	path := diag.Unquoted(a.Policy)
	if !filepath.IsAbs(path) { // standard input
		return changed
	}
	dir := filepath.Dir(path)
	open := func(string) (io.ReadCloser, error) { return os.Open(path) }
	if differs(path, path, a.Hash, a.Since, open) {
		changed = append(changed, diag.Shown(a.Policy))
	}
	for _, f := range a.SetFiles {
		if text, shipped, _ := use.Shipped(f.Path); shipped {
			if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != f.Sum {
				changed = append(changed, diag.Shown(f.Path))
			}
			continue
		}
		there := setfile.OnDisk(dir, f.Path)
		if differs(there, f.Path, f.Sum, a.Since, setfile.In(dir)) {
			changed = append(changed, diag.Shown(diag.Quoted(there)))
		}
	}
	return changed
}

// readingTime is the longest time between reading a policy's files and putting it in force.
const readingTime = time.Minute

// differs reports whether a file that is opened by a name has not the sum that it had. One that
// nobody has touched for so long is not read: it may be large.
func differs(there, name, sum string, since time.Time,
	open func(string) (io.ReadCloser, error)) bool {
	info, err := os.Stat(there)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() &&
		time.Unix(st.Ctim.Unix()).Before(since.Add(-readingTime)) {
		return false
	}
	f, err := open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return false
	}
	return hex.EncodeToString(h.Sum(nil)) != sum
}
