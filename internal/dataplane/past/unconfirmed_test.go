package past

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWhatNobodyConfirmedIsKnown: by its text, until it comes into force without a trial, for the
// last ten.
func TestWhatNobodyConfirmedIsKnown(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "eth0", "policies")}
	text := func(n int) []byte { return fmt.Appendf(nil, "drop tcp port %d\n", n) }
	try := func(n int) {
		t.Helper()
		if err := s.Try(text(n)); err != nil {
			t.Fatal(err)
		}
	}
	add := func(n int) {
		t.Helper()
		if err := s.Add(Policy{Path: "/etc/levee/eth0.levee", Source: text(n)}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, unconfirmed ...int) {
		t.Helper()
		is := map[int]bool{}
		for _, n := range unconfirmed {
			is[n] = true
		}
		for n := range 30 {
			got, err := s.Unconfirmed(text(n))
			if err != nil || got != is[n] {
				t.Errorf("%s: policy %d: %v, %v, want %v", when, n, got, err, is[n])
			}
		}
	}
	want("before all")
	try(1)
	try(2)
	try(1)
	want("two trials, one of them twice", 1, 2)
	add(1)
	want("one is in force", 2)
	try(1)
	want("what is in force is on trial", 2)
	add(2)
	want("both were in force")
	if _, err := os.Stat(s.unconfirmed()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty file is left: %v", err)
	}
	try(1)
	want("what was in force before the last one", 1)
	for n := range 12 {
		try(10 + n)
	}
	want("twelve more", 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)

	// A note that cannot be written changes none of those that are there.
	full := errors.New("full")
	s.Step = func(string) error { return full }
	if err := s.Try(text(3)); !errors.Is(err, full) {
		t.Errorf("a full disk: %v", err)
	}
	if err := s.Add(Policy{Source: text(12)}); !errors.Is(err, full) {
		t.Errorf("a full disk: %v", err)
	}
	want("a full disk", 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)

	// One that the disk has spoilt is about no text.
	if err := os.WriteFile(s.unconfirmed(), make([]byte, 200), 0o600); err != nil {
		t.Fatal(err)
	}
	want("zeros")
}

// TestAConfirmedPolicyWasLostOnAFullDisk: the oldest made room for the policy alone, and not for
// the notes of those that nobody confirmed.
func TestAConfirmedPolicyWasLostOnAFullDisk(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "eth0", "policies")}
	for n := range 3 {
		add(t, s, numbered(n+1))
	}
	for _, n := range []int{4, 5} {
		if err := s.Try(numbered(n).Source); err != nil {
			t.Fatal(err)
		}
	}
	s.Step = func(string) error {
		if there, _ := filepath.Glob(filepath.Join(s.Dir, "*"+suffix)); len(there) > 2 {
			return syscall.ENOSPC
		}
		return nil
	}
	add(t, s, numbered(4))
	are(t, s, "with room for three", 4, 3, 2)
	if is, err := s.Unconfirmed(numbered(4).Source); is || err != nil {
		t.Errorf("what is in force counts as unconfirmed: %t, %v", is, err)
	}
}
