package past

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
)

// numbered is the nth policy of a test.
func numbered(n int) Policy {
	return Policy{Path: "/etc/levee/eth0.levee", Names: []string{"eth0"},
		Since:  time.Unix(1_900_000_000+int64(n), 0),
		Source: fmt.Appendf(nil, "drop tcp port %d\ndefault pass\n", n),
		Files:  []setfile.File{{Path: "bad.txt", Packed: []byte{byte(n), 0, 255}}}}
}

func add(t *testing.T, s Store, p Policy) {
	t.Helper()
	if err := s.Add(p); err != nil {
		t.Fatal(err)
	}
}

// are fails unless the numbers of what is kept are these, each with the policy of its number.
func are(t *testing.T, s Store, what string, want ...int) (spoilt []Damaged) {
	t.Helper()
	all, spoilt, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, p := range all {
		got = append(got, p.Number)
		if w := numbered(p.Number); !p.Same(&w) || !p.Since.Equal(w.Since) {
			t.Errorf("%s: number %d is %+v", what, p.Number, p)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v are kept, want %v", what, got, want)
	}
	return spoilt
}

func TestTheLastTenPoliciesComeBackAsTheyWere(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "eth0", "policies")}
	if all, spoilt, err := s.List(); all != nil || spoilt != nil || err != nil {
		t.Errorf("before anything was kept: %v, %v, %v", all, spoilt, err)
	}
	for n := 1; n <= 12; n++ {
		add(t, s, numbered(n))
	}
	are(t, s, "of twelve", 12, 11, 10, 9, 8, 7, 6, 5, 4, 3)
	again := numbered(12)
	again.Since = time.Now()
	add(t, s, again)
	are(t, s, "the same again", 12, 11, 10, 9, 8, 7, 6, 5, 4, 3)
	if info, err := os.Stat(s.path(12)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: who may read policies?", info.Mode(), err)
	}
}

// TestASpoiltFileIsNoPolicy whichever byte the disk has lost or changed: the one before it is the
// newest then, and what comes next does not take its number.
func TestASpoiltFileIsNoPolicy(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	add(t, s, numbered(1))
	add(t, s, numbered(2))
	whole, err := os.ReadFile(s.path(2))
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 1
		zeros := append(bytes.Clone(whole[:i]), make([]byte, len(whole)-i)...)
		for _, bad := range [][]byte{whole[:i], flipped, zeros} {
			if bytes.Equal(bad, whole) {
				continue
			}
			if err := os.WriteFile(s.path(2), bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if spoilt := are(t, s, fmt.Sprintf("spoilt at byte %d", i), 1); len(spoilt) != 1 ||
				spoilt[0].Number != 2 || spoilt[0].Path != s.path(2) {
				t.Fatalf("spoilt at byte %d: %v", i, spoilt)
			}
		}
	}
	add(t, s, numbered(3))
	are(t, s, "after a spoilt one", 3, 1)
}

// TestWhatCannotBeWrittenLeavesWhatIsThere at each step, and nothing half written is left for long.
// The name of the interface, which is in the path, was taken for a pattern of files.
func TestWhatCannotBeWrittenLeavesWhatIsThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `e[t\h*`, "policies")
	var steps []string
	s := Store{dir, func(name string) error { steps = append(steps, name); return nil }}
	for n := range most {
		add(t, s, numbered(n+1))
	}
	steps = nil
	add(t, s, numbered(11))
	if len(steps) != 6 {
		t.Fatalf("steps %v", steps)
	}
	injected := errors.New("injected")
	for i, step := range steps {
		n := 0
		s.Step = func(string) error {
			if n++; n == i+1 {
				return injected
			}
			return nil
		}
		err := s.Add(numbered(12))
		if !errors.Is(err, injected) {
			t.Errorf("step %s: %v", step, err)
		}
		if step != "prune" { // by which it is kept, and one too many
			are(t, s, step, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2)
		}
	}
	// as a command that was killed leaves it
	if err := os.WriteFile(s.path(13)+".tmp", []byte(magic), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Step = nil
	add(t, s, numbered(13))
	are(t, s, "in the end", 13, 12, 11, 10, 9, 8, 7, 6, 5, 4)
	if left, err := os.ReadDir(dir); err != nil || len(left) != most {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestOnAFullDiskTheOldestMakeRoom but for the last one that is there.
func TestOnAFullDiskTheOldestMakeRoom(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a disk that is full")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	s := Store{Dir: dir}
	for n := 1; n <= 3; n++ {
		add(t, s, numbered(n))
	}
	fill := strings.Repeat("x", 1<<20)
	_ = os.WriteFile(filepath.Join(dir, "others"), []byte(fill), 0o600) // to the last byte
	add(t, s, numbered(4))
	are(t, s, "with room for three", 4, 3, 2)
	large := numbered(5)
	large.Source = []byte(fill)
	if err := s.Add(large); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("where there is no room: %v", err)
	}
	are(t, s, "without room", 4)
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); left != nil {
		t.Errorf("left: %v", left)
	}
}

// BenchmarkAdd keeps a policy with a set file of 1,000,000 prefixes.
func BenchmarkAdd(b *testing.B) {
	var text bytes.Buffer
	for i := range 1_000_000 {
		fmt.Fprintf(&text, "%d.%d.%d.0/24\n", 1+i*7919>>16&127, i*7919>>8&255, i*7919&255)
	}
	files := func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text.Bytes())), nil
	}
	var rec setfile.Recording
	p, ds := resolve.Parse("x.levee",
		[]byte("set bad = file(\"bad.txt\")\ndrop from bad\ndefault pass\n"), rec.Through(files))
	if p == nil {
		b.Fatal(ds)
	}
	s := Store{Dir: b.TempDir()}
	for n := 0; b.Loop(); n++ {
		was := numbered(n)
		was.Files = rec.Files()
		if err := s.Add(was); err != nil {
			b.Fatal(err)
		}
		info, err := os.Stat(s.path(n + 1))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/1e6, "MB")
	}
}
