package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWhatCannotBeReadIsPutAside, of whatever kind it is, and is never written over: text that is
// no JSON, a directory, a link to itself.
func TestWhatCannotBeReadIsPutAside(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"no JSON":     func(p string) error { return os.WriteFile(p, []byte("\x00\x00"), 0o600) },
		"other JSON":  func(p string) error { return os.WriteFile(p, []byte(`{"a":1}`), 0o600) },
		"too long":    func(p string) error { return os.WriteFile(p, make([]byte, 101), 0o600) },
		"a directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"a loop":      func(p string) error { return os.Symlink(p, p) },
	} {
		path := filepath.Join(t.TempDir(), "kept.json")
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		k := Keep(path, 100, 0o600)
		var v []int
		if k.Read(&v) == nil {
			t.Errorf("%s: nothing is wrong", name)
		}
		if err := k.Write([]byte("[7]")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := Keep(path, 100, 0o600).Read(&v); err != nil || len(v) != 1 {
			t.Errorf("%s: then %v, %v", name, v, err)
		}
		if _, err := os.Lstat(k.Aside()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhatCannotBePutAsideIsNotWrittenOver, until it can be.
func TestWhatCannotBePutAsideIsNotWrittenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept.json")
	if err := os.WriteFile(path, []byte("spoilt"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := Keep(path, 100, 0o600)
	if err := os.MkdirAll(filepath.Join(k.Aside(), "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	var v []int
	if k.Read(&v) == nil || k.Write([]byte("[7]")) == nil {
		t.Error("it was written over")
	}
	if text, err := os.ReadFile(path); string(text) != "spoilt" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.RemoveAll(k.Aside()); err != nil {
		t.Fatal(err)
	}
	if err := k.Write([]byte("[7]")); err != nil || Keep(path, 100, 0o600).Read(&v) != nil {
		t.Error(err)
	}
}
