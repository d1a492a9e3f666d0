package resolve

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzResolve holds for any source: no panic, and a policy exactly when there is no error.
func FuzzResolve(f *testing.F) {
	f.Add("drop from { 10.0.0.0/8, 2001:db8::1-2001:db8::9 } len > 5\ndefault pass\n")
	f.Add("set a = { b }\nset b = { tcp/80-90 }\npass to a not to b as \"x\"\ndefault drop\ntest " +
		"\"t\" { packet tcp port 22 expect drop by \"x\" }")
	for _, dir := range []string{"errors", "valid"} {
		paths, err := filepath.Glob(filepath.Join(goldens, dir, "*.levee"))
		if err != nil || len(paths) == 0 {
			f.Fatalf("no seeds in %s: %v", dir, err)
		}
		for _, path := range paths {
			src, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(src))
		}
	}
	f.Fuzz(func(t *testing.T, src string) {
		p, ds := Parse("fuzz.levee", []byte(src), func(string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("192.0.2.0/24\n")), nil
		})
		if (p == nil) != ds.HasErrors() {
			t.Fatalf("policy %v with %v", p, ds)
		}
		if p == nil {
			return
		}
		ids := make(map[string]bool)
		for _, s := range p.Slots() {
			if ids[s.ID] {
				t.Fatalf("identity %q twice", s.ID)
			}
			ids[s.ID] = true
		}
	})
}
