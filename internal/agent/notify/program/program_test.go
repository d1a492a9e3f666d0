package program

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestNobodyElseSwapsACommand: in a directory of another user the program that was looked at could
// be another one when it ran.
func TestNobodyElseSwapsACommand(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives directories to others")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name string, mode os.FileMode, owner int) string {
		t.Helper()
		d := filepath.Join(dir, name)
		path := filepath.Join(d, "run")
		if err := errors.Join(os.MkdirAll(d, 0o755),
			os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755), os.Chmod(d, mode),
			os.Chown(d, owner, 0)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const nobody = 65534
	link := func(name, to string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	theirs := put("theirs", 0o755, nobody)
	through := put("through", 0o755, nobody)
	if err := os.Remove(through); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(put("ours", 0o755, 0), through); err != nil {
		t.Fatal(err)
	}
	for path, allowed := range map[string]bool{
		put("ours", 0o755, 0):                     true,
		put("sticky", 0o777|os.ModeSticky, 0):     true,
		put("open", 0o777, 0):                     false,
		theirs:                                    false,
		link("link", "ours/run"):                  true,
		link("to-theirs", "theirs/run"):           false,
		through:                                   false,
		filepath.Join(link("dir", "ours"), "run"): true,
		filepath.Join(link("their-dir", "theirs"), "run"): false,
		dir + "/theirs/../ours/run":                       false,
		filepath.Join(link("loop", "loop"), "run"):        false,
	} {
		if err := check(path); (err == nil) != allowed {
			t.Errorf("%s: %v", path, err)
		}
	}
}
