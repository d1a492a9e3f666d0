package follow

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAHoleKeepsNobodyBusy: a sparse log of a terabyte was read to its end, for hours, before the
// file that had taken its place. What stands before, in and behind holes is read, once.
func TestAHoleKeepsNobodyBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const terabyte = 1 << 40
	for at, text := range map[int64]string{0: "first\n", terabyte / 2: "second\npart",
		terabyte - 5000: " of a line\nthird\n", terabyte: "fourth\n", 2 * terabyte: "fifth"} {
		if _, err := f.WriteAt([]byte(text), at); err != nil {
			t.Skipf("the file system takes no file of 2 TB: %v", err)
		}
	}
	if err := f.Truncate(3 * terabyte); err != nil {
		t.Fatal(err)
	}
	w, err := New(path, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	polls := 0
	for more := true; more && polls < 20; polls++ {
		if more, err = w.Poll(8<<20, func(line []byte) {
			got = append(got, string(line))
		}); err != nil {
			t.Fatal(err)
		}
	}
	// "part" and " of a line" are one line that is too long, for zeros are bytes; so is "fifth".
	want := []string{"first", "second", "third", "fourth", "new"}
	if !slices.Equal(got, want) || polls > 3 || w.TooLong != 2 {
		t.Errorf("%q in %d polls, %d too long", got, polls, w.TooLong)
	}
	if n := len(w.Notes); n != 1 || !strings.Contains(w.Notes[0], "it has a hole") {
		t.Errorf("notes %q", w.Notes)
	}
}

// TestWhatIsWrittenBehindATruncationIsRead: a program that does not append leaves a hole as long as
// what was there. Its next line was skipped as too long, or had the zeros before it.
func TestWhatIsWrittenBehindATruncationIsRead(t *testing.T) {
	for _, size := range []int64{100, 3 * MaxLine} {
		path := filepath.Join(t.TempDir(), "log")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		text := strings.Repeat("0123456789abcdef\n", int(size/17)+1)
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		w, err := New(path, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("behind\n"); err != nil { // at its place of before
			t.Fatal(err)
		}
		var got []string
		for more := true; more; {
			more, err = w.Poll(1<<20, func(b []byte) { got = append(got, string(b)) })
			if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, []string{"behind"}) || w.TooLong != 0 {
			t.Errorf("with %d bytes before: %q, %d too long", size, got, w.TooLong)
		}
	}
}
