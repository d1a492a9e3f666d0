package atomicfile

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		k := NewSealed(path, 1, 100, 0o600)
		var v []int
		if k.Read(&v) == nil {
			t.Errorf("%s: nothing is wrong", name)
		}
		if err := k.Write([]byte("[7]")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := NewSealed(path, 1, 100, 0o600).Read(&v); err != nil || len(v) != 1 {
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
	k := NewSealed(path, 1, 100, 0o600)
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
	if err := k.Write([]byte("[7]")); err != nil || NewSealed(path, 1, 100, 0o600).Read(&v) != nil {
		t.Error(err)
	}
}

// TestASealedFileWithAnyByteChangedIsReadWholeOrPutAside. Before it had a sum, another digit was
// read as if it had been written.
func TestASealedFileWithAnyByteChangedIsReadWholeOrPutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept.json")
	want := map[string]int{"packets": 1234, "rules": 5}
	text := []byte(`{"packets": 1234, "rules": 5}`)
	if err := NewSealed(path, 1, 1000, 0o600).Write(text); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		for _, with := range []byte{1, 2, 8, 0x20, 0x80, 0xff} {
			spoilt := append([]byte{}, whole...)
			spoilt[at] ^= with
			if err := os.WriteFile(path, spoilt, 0o600); err != nil {
				t.Fatal(err)
			}
			var got map[string]int
			k := NewSealed(path, 1, 1000, 0o600)
			if err := k.Read(&got); err == nil && !maps.Equal(got, want) {
				t.Errorf("%s was read as %v", spoilt, got)
			} else if err != nil {
				if aside, _ := os.ReadFile(k.Aside()); !bytes.Equal(aside, spoilt) {
					t.Errorf("%s: it is not put aside: %q", spoilt, aside)
				}
			}
		}
	}
}

// TestASealedFileOfAnotherVersion: an older one is read, a newer one is put aside.
func TestASealedFileOfAnotherVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept.json")
	for _, c := range []struct {
		text string
		ok   bool
	}{{`[1, 2]`, true}, {`{"version":1,"crc32c":"` + sumOf([]byte("[1,2]")) + `","data":[1,2]}`,
		true}, {`{"version":3,"blocks":[]}`, false}} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got []int
		k := NewSealed(path, 2, 1000, 0o600)
		err := k.Read(&got)
		if (err == nil) != c.ok || c.ok != slices.Equal(got, []int{1, 2}) {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
		if !c.ok && !strings.Contains(err.Error(), "newer") {
			t.Errorf("%v does not say why", err)
		}
	}
}
