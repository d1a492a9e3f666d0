package daemon

import (
	"path/filepath"
	"testing"

	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// TestAnInterfaceWithoutItsNameWasAPolicyThatCannotBeRead: what is in force is known as it was up
// to two seconds ago, and an interface that was renamed or deleted since was an alarm.
func TestAnInterfaceWithoutItsNameWasAPolicyThatCannotBeRead(t *testing.T) {
	if err := kernel.Privileged(); err != nil {
		t.Skip(err)
	}
	t.Setenv(store.RunEnv, filepath.Join(t.TempDir(), "run"))
	p := &policies{devs: []string{"gone-levee0", "lo"}} // lo has no policy
	if all, err := p.read(t.Context()); len(all) > 0 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
}
