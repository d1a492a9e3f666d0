package ledger

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAFullDiskIsNoDamage: a ledger that a full disk had no room for was taken for damaged. Each
// start of the agent put another file aside, and told of leases that were lost.
func TestAFullDiskIsNoDamage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("levee-test", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, bytes.Repeat([]byte{1}, 1<<20), 0o600); !errors.Is(err,
		unix.ENOSPC) && err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "agent.db")
	for range 2 {
		if l, err := Open(path, 0); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%v, %v", l, err)
		}
	}
	if aside, err := filepath.Glob(path + ".damaged*"); err != nil || len(aside) > 0 {
		t.Errorf("put aside: %q, %v", aside, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Damaged != "" {
		t.Errorf("taken for damaged: %v", l.Reason)
	}
}
