package history

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// fullSegments is the number of full segments that a tier keeps, besides the one that grows.
const fullSegments = 16

// tier is a ring of points that are step seconds long.
type tier struct {
	dir    string
	step   int64
	points int   // of a segment
	bytes  int64 // of a segment at most
	segs   []segment
	last   uint64 // the number of the last second in a point

	file    *os.File // the last segment
	numbers map[Key]uint32
	shown   []Series // by number
	present []uint32
	dirty   bool
}

// segment is a file.
type segment struct {
	path       string
	number     int
	points     int
	bytes      int64
	begin, end int64 // Unix times of the points
}

func (t *tier) peaks() bool { return t.step > 1 }

func (t *tier) path(number int) string {
	return filepath.Join(t.dir, fmt.Sprintf("%ds-%08d", t.step, number))
}

// find returns the segments by number. Files with names that no tier gives, such as copies, are no
// segments.
func (t *tier) find() (found []segment, err error) {
	names, err := filepath.Glob(filepath.Join(t.dir, fmt.Sprintf("%ds-*", t.step)))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		s := segment{path: name}
		digits := strings.TrimPrefix(filepath.Base(name), fmt.Sprintf("%ds-", t.step))
		if s.number, err = strconv.Atoi(digits); err == nil && s.number > 0 &&
			t.path(s.number) == name {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b segment) int { return cmp.Compare(a.number, b.number) })
	return found, nil
}

// open finds the segments. What follows a damaged record in one is not read; in the last it is
// overwritten.
func (t *tier) open() (damaged []string, err error) {
	found, err := t.find()
	if err != nil {
		return nil, err
	}
	buf := []byte(nil)
	for i, s := range found {
		info, err := os.Stat(s.path)
		if err != nil {
			return nil, err
		}
		s.bytes = info.Size()
		if buf, err = s.read(buf); err != nil {
			return nil, err
		}
		w := t.begin()
		good := s.each(buf, func(p []byte) bool { return w.note(&s, p) })
		if good < s.bytes {
			damaged = append(damaged, fmt.Sprintf("%s: %d bytes after byte %d", s.path,
				s.bytes-good, good))
			s.bytes = good
		}
		if s.points == 0 && i < len(found)-1 {
			if err := os.Remove(s.path); err != nil {
				return nil, err
			}
			continue
		}
		t.segs = append(t.segs, s)
		if i == len(found)-1 {
			t.numbers, t.shown, t.present = w.numbers, w.shown, w.present
		}
		t.last = max(t.last, w.last)
	}
	if len(t.segs) == 0 {
		return damaged, t.create(1)
	}
	last := &t.segs[len(t.segs)-1]
	if t.file, err = os.OpenFile(last.path, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	return damaged, t.file.Truncate(last.bytes)
}

// writer holds the state of a segment's writer after some of its records.
type writer struct {
	numbers map[Key]uint32
	shown   []Series
	present []uint32
	last    uint64
	peaks   bool
}

func (t *tier) begin() *writer {
	return &writer{numbers: map[Key]uint32{}, peaks: t.peaks()}
}

// note takes a record in, and says whether it is right.
func (w *writer) note(s *segment, payload []byte) bool {
	d := decoder{b: payload[1:]}
	switch payload[0] {
	case define:
		n, of := d.series()
		if d.bad || int(n) > len(w.shown) {
			return false
		}
		if int(n) == len(w.shown) {
			w.shown = append(w.shown, of)
		}
		w.shown[n] = of
		w.numbers[of.Key] = n
	case present:
		w.present = d.present()
		for _, n := range w.present {
			d.bad = d.bad || int(n) >= len(w.shown)
		}
	case point:
		h := d.head()
		for last := uint32(0); len(d.b) > 0; {
			last = d.value(last, w.peaks).number
			d.bad = d.bad || int(last) >= len(w.shown)
		}
		if !d.bad {
			s.note(h.at)
			w.last = max(w.last, h.last)
		}
	default:
		return false
	}
	return !d.bad
}

func (s *segment) note(at int64) {
	if s.points == 0 || at < s.begin {
		s.begin = at
	}
	if s.points == 0 || at > s.end {
		s.end = at
	}
	s.points++
}

// read returns what of the file is known to be right, in a buffer that may be used again.
func (s *segment) read(buf []byte) ([]byte, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return buf, err
	}
	defer f.Close()
	buf = slices.Grow(buf[:0], int(s.bytes))[:s.bytes]
	_, err = io.ReadFull(f, buf)
	return buf, err
}

// each visits the records of a segment until one is damaged or visit says false, and says at which
// byte that was.
func (s *segment) each(b []byte, visit func(payload []byte) bool) (good int64) {
	if !strings.HasPrefix(string(b[:min(len(b), len(magic))]), magic) {
		return 0
	}
	rest := b[len(magic):]
	for len(rest) > 0 {
		payload, next, err := nextRecord(rest)
		if err != nil || !visit(payload) {
			break
		}
		rest = next
	}
	return int64(len(b) - len(rest))
}

// create begins a segment, and removes those that are too many.
func (t *tier) create(number int) error {
	s := segment{path: t.path(number), number: number}
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	if t.file != nil {
		err = errors.Join(t.file.Sync(), t.file.Close())
	}
	t.file, t.numbers, t.shown, t.present = f, map[Key]uint32{}, nil, nil
	t.segs = append(t.segs, s)
	for len(t.segs) > fullSegments+1 {
		if gone := os.Remove(t.segs[0].path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		t.segs = slices.Delete(t.segs, 0, 1)
	}
	return err
}

// append writes a point. With an error nothing is kept of it.
func (t *tier) append(h head, all []*held) error {
	seg := &t.segs[len(t.segs)-1]
	if seg.points >= t.points {
		if err := t.create(seg.number + 1); err != nil {
			return err
		}
		seg = &t.segs[len(t.segs)-1]
	}
	out, undo := t.encode(seg, h, all)
	if seg.bytes+int64(len(out)) > t.bytes {
		undo()
		if seg.points == 0 {
			return fmt.Errorf("a point of %d series is too large", len(all))
		}
		if err := t.create(seg.number + 1); err != nil {
			return err
		}
		return t.append(h, all)
	}
	if _, err := t.file.WriteAt(out, seg.bytes); err != nil {
		undo()
		return fmt.Errorf("write history: %w", err)
	}
	seg.bytes += int64(len(out))
	seg.note(h.at)
	t.last = h.last
	t.dirty = true
	return nil
}

// encode returns what a point adds to the segment; undo forgets it.
func (t *tier) encode(seg *segment, h head, all []*held) (out []byte, undo func()) {
	known, before, was := len(t.shown), t.present, map[uint32]Series{}
	if seg.bytes == 0 {
		out = append(out, magic...)
	}
	var there []uint32
	var values []value
	for _, a := range all {
		n, ok := t.numbers[a.Key]
		if !ok {
			n = uint32(len(t.shown))
			t.numbers[a.Key] = n
			t.shown = append(t.shown, Series{})
		}
		if t.shown[n] != a.Series {
			if int(n) < known {
				was[n] = t.shown[n]
			}
			t.shown[n] = a.Series
			out = appendRecord(out, encodeSeries(n, &a.Series))
		}
		if !a.Kind.sparse() || a.ID == Others {
			there = append(there, n)
		}
		if a.value != (value{}) {
			v := a.value
			v.number = n
			values = append(values, v)
		}
	}
	slices.Sort(there)
	if !slices.Equal(there, t.present) {
		t.present = there
		out = appendRecord(out, encodePresent(there))
	}
	slices.SortFunc(values, func(a, b value) int { return int(a.number) - int(b.number) })
	out = appendRecord(out, encodePoint(h, values, t.peaks()))
	return out, func() {
		for _, s := range t.shown[known:] {
			delete(t.numbers, s.Key)
		}
		t.shown, t.present = t.shown[:known], before
		for n, s := range was {
			t.shown[n] = s
		}
	}
}

func (t *tier) sync() error {
	if !t.dirty {
		return nil
	}
	t.dirty = false
	return t.file.Sync()
}
