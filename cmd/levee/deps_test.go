package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTwoTargetsFetchedListsAtOnce: apt does not wait for another that fetches lists, and the
// target ended with its error.
func TestTwoTargetsFetchedListsAtOnce(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) {
		t.Helper()
		err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "cat", "echo", "grep", "mktemp", "rm", "seq", "sort", "tr",
		"xargs"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	script("id", "echo 0")
	script("sleep", "")
	asked := filepath.Join(dir, "asked")
	script("apt-get", `echo "$*" >>`+asked+`
if [ "$1" = update ] && [ ! -e `+asked+`.before ]; then
	: >`+asked+`.before
	echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)"
	exit 100
fi
`)
	cmd := exec.Command("/bin/sh", "../../scripts/deps", "release")
	cmd.Env = []string{"PATH=" + dir}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	want := "update\nupdate\n-o DPkg::Lock::Timeout=120 install -y --no-install-recommends " +
		"busybox gnupg skopeo\n"
	if string(got) != want {
		t.Errorf("apt-get was asked\n%swant\n%s", got, want)
	}
}
