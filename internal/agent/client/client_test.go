package client

import (
	"os"
	"strings"
	"testing"

	"levee/internal/dataplane/sets"
)

// TestACommandSaysWhereADamagedFileWent: it put the file aside, and the next agent found nothing
// that was wrong.
func TestACommandSaysWhereADamagedFileWent(t *testing.T) {
	t.Setenv(sets.LibEnv, t.TempDir())
	if err := os.WriteFile(IncidentsFile(), []byte("spoilt"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Incidents()
	aside := IncidentsFile() + ".damaged"
	if err == nil || !strings.Contains(err.Error(), "put aside as "+aside+": ") {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(aside); string(text) != "spoilt" {
		t.Errorf("%q, %v", text, err)
	}
}
