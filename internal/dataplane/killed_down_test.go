package dataplane

import (
	"testing"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/lang/action"
)

// TestWhatAKilledDownLeavesIsRemoved: killed between the descriptions and what had been compared,
// `down` left the latter, and with it the runtime directory, to nobody.
func TestWhatAKilledDownLeavesIsRemoved(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "down", func(t *testing.T) {
		for kill, killed := 1, true; killed; kill++ {
			bring(t, "lv0", store.Auto, handPolicy("odd", action.Pass))
			_, killed = inChild(t, order{Do: "down", Dev: "lv0", Kill: kill})
			if len(must(inspect.Status(t.Context(), false))) > 0 {
				if _, err := Down(t.Context(), "lv0"); err != nil {
					t.Fatalf("killed at step %d: %v", kill, err)
				}
			}
			if runDirIsGone(t); t.Failed() {
				t.Fatalf("killed at step %d", kill)
			}
		}
	})
}
