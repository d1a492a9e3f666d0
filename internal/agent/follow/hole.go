package follow

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

// A file has a hole where a program goes on to write behind what was truncated, or where it was
// made so: it reads as zeros, of which a terabyte takes no room. Whoever may write to a log could
// keep its reader busy for hours.

// blank tells whether there are zeros only.
func blank(b []byte) bool {
	if b[0] != 0 || b[len(b)-1] != 0 {
		return false
	}
	return len(bytes.TrimLeft(b, "\x00")) == 0
}

// written returns a line without the zeros before it: the end of a hole is that of a block, not
// that of what was written. A line of zeros alone is none.
func written(line []byte) []byte {
	if len(line) == 0 || line[0] != 0 {
		return line
	}
	if line = bytes.TrimLeft(line, "\x00"); len(line) == 0 {
		return nil
	}
	return line
}

// skipHole goes on behind n zeros that were read, and behind the hole that they are the beginning
// of, where the file system knows of it (lseek(2)).
func (w *Follower) skipHole(f *file, n int) {
	to := f.off + int64(n)
	data, err := unix.Seek(int(f.f.Fd()), f.off, unix.SEEK_DATA)
	switch {
	case err == nil:
		to = max(to, data)
	case errors.Is(err, unix.ENXIO): // there is nothing behind it
		to = max(to, f.size)
	}
	if f.holes == 0 {
		w.note("%s: it has a hole, which holds nothing and is skipped: from byte %d to %d; a "+
			"program that goes on behind what was truncated should open it to append", w.path,
			f.off, to)
	}
	f.holes++
	f.off = to
}
