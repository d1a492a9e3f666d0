package follow

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// log is a file that is written and rotated.
type log struct {
	t    *testing.T
	path string
	f    *os.File
	n    int    // lines written
	turn int    // rotations
	read func() // reads what is written
}

func newLog(t *testing.T) *log {
	return &log{t: t, path: filepath.Join(t.TempDir(), "eve.json")}
}

func (l *log) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *log) open(path string) {
	var err error
	if l.f != nil {
		l.must(l.f.Close())
	}
	l.f, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	l.must(err)
}

func (l *log) write(lines int) {
	for range lines {
		_, err := fmt.Fprintf(l.f, "{\"n\":%d,\"pad\":%q}\n", l.n, strings.Repeat("x", l.n%300))
		l.must(err)
		l.n++
	}
}

// rotations are the ways, each of which leaves the writer with a file at the path.
var rotations = map[string]func(*log){
	"rename": func(l *log) {
		for i := 4; i > 0; i-- {
			os.Rename(fmt.Sprintf("%s.%d", l.path, i), fmt.Sprintf("%s.%d", l.path, i+1))
		}
		l.must(os.Rename(l.path, l.path+".1"))
		l.write(3) // the writer learns of it later
		l.open(l.path)
	},
	"dated": func(l *log) {
		l.must(os.Rename(l.path, fmt.Sprintf("%s-%05d", l.path, l.turn)))
		l.open(l.path)
	},
	"copytruncate": func(l *log) {
		for i := 4; i > 0; i-- {
			os.Rename(fmt.Sprintf("%s.%d", l.path, i), fmt.Sprintf("%s.%d", l.path, i+1))
		}
		text, err := os.ReadFile(l.path)
		l.must(err)
		l.must(os.WriteFile(l.path+".1", text, 0o600))
		l.must(os.Truncate(l.path, 0))
	},
	"truncate": func(l *log) { // without a copy: what was not read would be lost
		l.read()
		l.must(os.Truncate(l.path, 0))
	},
	"symlink": func(l *log) {
		target := filepath.Join(filepath.Dir(l.path), fmt.Sprintf("out-%05d.json", l.turn))
		l.open(target)
		l.must(os.Symlink(target, l.path+".tmp"))
		l.must(os.Rename(l.path+".tmp", l.path))
	},
}

// TestNoLineIsLostOrTwice rotates 100 times in each way, with polls at random between, and with
// another process that goes on now and then.
func TestNoLineIsLostOrTwice(t *testing.T) {
	for name, rotate := range rotations {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			l := newLog(t)
			w, err := New(l.path, nil, false) // the file is not there yet
			l.must(err)
			var got []string
			poll := func() {
				_, err := w.Poll(int64(1+rng.IntN(20_000)), func(b []byte) {
					got = append(got, string(b))
				})
				l.must(err)
			}
			l.read = func() {
				for more := true; more; {
					more, err = w.Poll(1<<20, func(b []byte) { got = append(got, string(b)) })
					l.must(err)
				}
			}
			poll()
			if name == "symlink" {
				rotate(l)
			} else {
				l.open(l.path)
			}
			for l.turn = 1; l.turn <= 100; l.turn++ {
				l.write(1 + rng.IntN(80))
				for range rng.IntN(3) {
					poll()
				}
				l.write(rng.IntN(20))
				if rng.IntN(4) == 0 {
					from := w.Position()
					w.Close()
					w, err = New(l.path, from, false)
					l.must(err)
				}
				rotate(l)
				if rng.IntN(2) == 0 {
					poll()
				}
			}
			l.write(7)
			l.read()
			seen := map[string]int{}
			for _, s := range got {
				seen[s]++
			}
			lost, twice := 0, 0
			for n := range l.n {
				switch seen[fmt.Sprintf("{\"n\":%d,\"pad\":%q}", n, strings.Repeat("x", n%300))] {
				case 0:
					lost++
				case 1:
				default:
					twice++
				}
			}
			if lost+twice > 0 || len(got) != l.n {
				t.Errorf("of %d lines %d are lost and %d came twice; %d came; %v", l.n, lost,
					twice, len(got), w.Notes)
			}
			if w.Lag() != 0 {
				t.Errorf("a lag of %d", w.Lag())
			}
			w.Close()
		})
	}
}

func lines(t *testing.T, w *Follower) (out []string) {
	t.Helper()
	if _, err := w.Poll(1<<30, func(b []byte) { out = append(out, string(b)) }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLinesThatAreNone(t *testing.T) {
	l := newLog(t)
	l.open(l.path)
	text := func(s string) { _, err := l.f.WriteString(s); l.must(err) }
	text("old\npar")
	w, err := New(l.path, nil, false)
	l.must(err)
	defer w.Close()
	if got := lines(t, w); len(got) != 0 {
		t.Errorf("%q were there before", got)
	}
	text("tial\r\n\n")
	if got := lines(t, w); fmt.Sprintf("%q", got) != `["partial" ""]` {
		t.Errorf("%q", got)
	}
	long := strings.Repeat("y", 3*MaxLine)
	text(long)
	if got := lines(t, w); len(got) != 0 {
		t.Errorf("%d lines", len(got))
	}
	from := w.Position()
	again, err := New(l.path, from, false)
	l.must(err)
	defer again.Close()
	text("yy\n" + long[:MaxLine-1] + "\nshort\n")
	if got := lines(t, again); len(got) != 2 || len(got[0]) != MaxLine-1 || got[1] != "short" {
		t.Errorf("%d lines after one that is too long", len(got))
	}
	if w.TooLong != 1 || len(w.buf) > MaxLine {
		t.Errorf("%d too long, %d bytes of memory", w.TooLong, len(w.buf))
	}
	lines(t, w)
	l.must(os.Truncate(l.path, 0)) // without a copy, once all is read
	text("a\n")
	if got := lines(t, w); len(got) != 1 || got[0] != "a" {
		t.Errorf("%q after it was truncated", got)
	}
	l.must(os.Remove(l.path))
	l.must(os.Mkdir(l.path, 0o700))
	if _, err := w.Poll(1, func([]byte) {}); err == nil {
		t.Error("a directory is followed")
	}
	if _, err := New(l.path, []byte("{"), false); err == nil {
		t.Error("a position that is none is taken")
	}
}

func TestWhatIsInTheFileAlready(t *testing.T) {
	l := newLog(t)
	l.must(os.WriteFile(l.path, bytes.Repeat([]byte("a\n"), 5), 0o600))
	w, err := New(l.path, nil, true)
	l.must(err)
	defer w.Close()
	if got := lines(t, w); len(got) != 5 {
		t.Errorf("%q", got)
	}
}

// TestAFileThatWasReadIsNoCopyOfOneThatIsGone: a log was written anew with the same beginning, and
// read; a later process took it for a copy of the old one too, and read its end twice.
func TestAFileThatWasReadIsNoCopyOfOneThatIsGone(t *testing.T) {
	l := newLog(t)
	l.open(l.path)
	l.write(20)
	w, err := New(l.path, nil, true)
	l.must(err)
	var got []string
	poll := func() {
		t.Helper()
		for more := true; more; {
			var err error
			more, err = w.Poll(1<<20, func(line []byte) { got = append(got, string(line)) })
			l.must(err)
		}
	}
	poll()
	text, err := os.ReadFile(l.path)
	l.must(err)
	l.must(os.WriteFile(l.path+"~", text, 0o600))
	l.must(os.Rename(l.path+"~", l.path))
	l.open(l.path)
	poll()
	position := w.Position()
	w.Close()
	l.write(1)
	w, err = New(l.path, position, true)
	l.must(err)
	got = nil
	poll()
	if len(got) != 1 {
		t.Errorf("%d lines of one: %q", len(got), got)
	}
	w.Close()
}
