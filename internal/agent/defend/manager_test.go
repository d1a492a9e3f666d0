package defend

import (
	"context"
	"slices"
	"testing"

	"levee/internal/agent/inforce"
	"levee/internal/agent/part"
	"levee/internal/lang/policy"
)

// TestAnInterfaceThatIsGoneIsWatchedNoMore: its policy was taken off and it was deleted, and a
// watcher was begun in between, which finds no interface. Nothing fails, and one that has a policy
// and cannot be watched is an alarm.
func TestAnInterfaceThatIsGoneIsWatchedNoMore(t *testing.T) {
	const dev = "gone-levee0"
	for _, attached := range []bool{false, true} {
		ctx, end := context.WithCancel(t.Context())
		failed := false
		m := NewManager(ManagerOptions{
			Parts: part.NewRegister(func(c part.Change, s part.Status) {
				failed = failed || c == part.Failed && s.Kind == part.Detector
				end() // else it is tried again for ever
			}),
			InForce: &inforce.Watcher{Look: func(context.Context) ([]inforce.State, error) {
				return slices.Repeat([]inforce.State{{Dev: dev}}, map[bool]int{true: 1}[attached]),
					nil
			}},
		})
		parts := newWatchParts(m.Parts, dev)
		parts.set([]*policy.Detect{{Name: "floods"}}, false)
		m.watchers[dev] = m.watcher(dev, parts)
		m.watch(ctx, dev, parts)
		if failed != attached {
			t.Errorf("with a policy %v: failed %v", attached, failed)
		}
		end()
	}
}
