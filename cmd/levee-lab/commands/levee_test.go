package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatIsMeasuredIsLevee: `levee bench detect` had levee-lab put its policy into force, which
// has no such command.
func TestWhatIsMeasuredIsLevee(t *testing.T) {
	beside, inPath := t.TempDir(), t.TempDir()
	self := filepath.Join(beside, "levee-lab")
	t.Setenv("PATH", inPath)
	if _, err := findLevee(self); err == nil || !strings.Contains(err.Error(), "beside") {
		t.Errorf("error %v where there is none", err)
	}
	for _, dir := range []string{inPath, beside} {
		want := filepath.Join(dir, "levee")
		if err := os.WriteFile(want, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got, err := findLevee(self); err != nil || got != want {
			t.Errorf("%q, want %q, error %v", got, want, err)
		}
	}
}
