package quantity

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestPlural(t *testing.T) {
	for _, c := range []struct {
		n          int
		noun, want string
	}{{0, "rule", "0 rules"}, {1, "entry", "1 entry"}, {2, "entry", "2 entries"},
		{3, "day", "3 days"}, {1, "address", "1 address"}, {2, "address", "2 addresses"}} {
		if got := Plural(c.n, c.noun); got != c.want {
			t.Errorf("%d of %q: %q, want %q", c.n, c.noun, got, c.want)
		}
	}
}

// ofOne is one of what is named as several. Bounds are not of what was counted.
var ofOne = regexp.MustCompile(`(?:^|[ (;:,])1 ([a-z]+ies|addresses|bytes|cuts|floods|hosts|` +
	`incidents|interfaces|kinds|leases|lines|members|names|packets|places|prefixes|queues|rules|` +
	`samples|seconds|sets|sources|states|times|tries|are|were|have)\b`)

// TestNothingThatIsPrintedCountsOneAsSeveral: in what stories expect, and in golden files.
func TestNothingThatIsPrintedCountsOneAsSeveral(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (d.Name()[0] == '.' || path == "bin"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".txtar") && !strings.HasSuffix(path, ".golden"):
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := ofOne.FindString(line); m != "" {
				t.Errorf("%s:%d: %s", path, i+1, strings.TrimSpace(m))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
