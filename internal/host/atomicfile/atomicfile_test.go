package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
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
