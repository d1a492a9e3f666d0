package resolve

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"levee/internal/lang/ast"
	"levee/internal/lang/goldentest"
	"levee/internal/lang/syntax"
)

const goldens = "../../../test/policy"

func policiesIn(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(goldens, dir, "*.levee"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no policies in %s: %v", dir, err)
	}
	return paths
}

// TestMistakes holds what each policy with a mistake reports, to the character.
func TestMistakes(t *testing.T) {
	paths := policiesIn(t, "errors")
	if len(paths) < 100 {
		t.Errorf("only %d policies with mistakes", len(paths))
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".levee")
		t.Run(name, func(t *testing.T) {
			p, ds, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(ds) == 0 {
				t.Error("nothing is reported")
			}
			warning := strings.Contains(name, "-warning-")
			if ds.HasErrors() == warning || (p == nil) == warning {
				t.Errorf("errors %v, policy %v", ds.HasErrors(), p != nil)
			}
			var out bytes.Buffer
			if err := ds.Render(&out, false); err != nil {
				t.Fatal(err)
			}
			goldentest.Compare(t, strings.TrimSuffix(path, ".levee")+".golden", out.Bytes())
		})
	}
}

// TestLayout holds the canonical layout and the meaning of valid policies: NAME.fmt is what
// `levee fmt` prints, NAME.policy what is resolved.
func TestLayout(t *testing.T) {
	for _, path := range policiesIn(t, "valid") {
		base := strings.TrimSuffix(path, ".levee")
		t.Run(filepath.Base(base), func(t *testing.T) {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, ds := syntax.Parse(filepath.Base(path), src)
			if err := ds.Err(); err != nil {
				t.Fatal(err)
			}
			formatted := ast.Format(f)
			goldentest.Compare(t, base+".fmt", formatted)
			p, ds, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(ds) > 0 {
				t.Fatalf("%v", ds)
			}
			goldentest.Compare(t, base+".policy", []byte(describe(p)))
			checkFixpoint(t, p, formatted, filepath.Dir(path))
		})
	}
}
