package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// holds fails unless a file has a text and permissions, and nothing lies beside it.
func holds(t *testing.T, path, text string, perm os.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != text {
		t.Errorf("%q, %v; want %q", got, err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != perm {
		t.Errorf("%v, %v; want mode %v", info.Mode(), err, perm)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAFileIsReplacedBehindItsLinkWithItsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "new", 0o600)
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link became %v, %v", info.Mode(), err)
	}
}

func TestANewFileHasTheModeAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	if err := Write(path, []byte("new"), 0o640); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "new", 0o640)
}

func TestWhatIsNoFileIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, "/dev/null", filepath.Join(dir, "gone", "a.csv")} {
		if err := Write(path, []byte("new"), 0o644); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode()&os.ModeDevice == 0 {
		t.Fatal("/dev/null is no device any more")
	}
}

// TestAFileThatIsReplacedMeanwhileHasNoPlace: the kernel calls it "a.csv (deleted)", and that was
// written instead.
func TestAFileThatIsReplacedMeanwhileHasNoPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	for _, then := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return nil },
		func() error { return os.WriteFile(path+" (deleted)", nil, 0o600) },
	} {
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if real, _, err := place(f); err != nil || real != path {
			t.Errorf("%q, %v", real, err)
		}
		if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600), then()); err != nil {
			t.Fatal(err)
		}
		if real, _, err := place(f); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is at %q, %v", real, err)
		}
	}
}

// TestALinkThatTheKernelRefusesIsNotFollowed: in a directory as /tmp, one of another user led root
// to any file, which root replaced, since it read the links itself. The mount option has the kernel
// refuse as that does (protected_symlinks), without a setting of the machine.
func TestALinkThatTheKernelRefusesIsNotFollowed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts")
	}
	dir := t.TempDir()
	link, theirs := filepath.Join(dir, "a.csv"), filepath.Join(dir, "theirs")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its mounts
		for _, do := range []func() error{
			func() error { return unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS) },
			func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
			func() error { return unix.Mount("none", dir, "tmpfs", unix.MS_NOSYMFOLLOW, "") },
			func() error { return os.WriteFile(theirs, []byte("old"), 0o600) },
			func() error { return os.Symlink(theirs, link) },
		} {
			if err := do(); err != nil {
				t.Error(err)
				return
			}
		}
		if err := Write(link, []byte("new"), 0o644); err == nil {
			t.Error("it was written")
		}
		holds(t, theirs, "old", 0o600)
	}()
	<-done
}

// TestNoLinkIsInTheWayOfAReplace: what lies at the name of the temporary file is taken away, and
// where it leads stays as it is.
func TestNoLinkIsInTheWayOfAReplace(t *testing.T) {
	dir := t.TempDir()
	path, theirs := filepath.Join(dir, "kept.set"), filepath.Join(dir, "theirs")
	for _, err := range []error{os.WriteFile(theirs, []byte("old"), 0o600),
		os.Symlink(theirs, path+".tmp")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := Replace(path, []byte("new"), func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	holds(t, theirs, "old", 0o600)
	holds(t, path, "new", 0o600)
}
