// Package goldentest compares what tests get with files, and writes these with -update.
package goldentest

import (
	"flag"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
)

var update = flag.Bool("update", false, "write goldens anew instead of comparing with them")

// Updating says whether files are written instead of compared.
func Updating() bool { return *update }

// Compare fails the test unless a file has what was got.
func Compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test with -update writes it)", err)
	}
	if d := diff.Diff("golden", want, "got", got); d != nil {
		t.Errorf("%s (go test with -update writes it anew):\n%s", path, d)
	}
}
