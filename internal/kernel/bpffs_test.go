package kernel

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBPFDirsOfOthersAreFound, and those that only root may write are not, in a mount namespace of
// the test's own.
func TestBPFDirsOfOthersAreFound(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := t.TempDir()
	type result struct {
		open []string
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		open, err := openAmong(dir)
		done <- result{open, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	want := []string{dir + "/as it is", dir + "/of a user", dir + "/tight/theirs"}
	got := slices.DeleteFunc(r.open, func(path string) bool {
		return filepath.Dir(path) != dir && filepath.Dir(filepath.Dir(path)) != dir
	})
	if !slices.Equal(got, want) {
		t.Errorf("open to others: %q, want %q", got, want)
	}
}

// openAmong mounts bpf file systems, on a thread that ends then.
func openAmong(dir string) ([]string, error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, err
	}
	for name, options := range map[string]string{"as it is": "", "tight": "mode=0750",
		"of a user": "mode=0700", "of the group root": "mode=0770"} {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			return nil, err
		}
		if err := unix.Mount("bpf", at, "bpf", 0, options); err != nil {
			return nil, err
		}
		if name == "of a user" {
			if err := os.Chown(at, 1000, 0); err != nil {
				return nil, err
			}
		}
	}
	for name, mode := range map[string]os.FileMode{"theirs": 0o777, "ours": 0o755} {
		at := filepath.Join(dir, "tight", name)
		if err := os.Mkdir(at, mode); err != nil {
			return nil, err
		}
		if err := os.Chmod(at, mode); err != nil {
			return nil, err
		}
	}
	return OpenBPFDirs()
}
