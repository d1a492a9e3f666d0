package defend

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/agent/incident"
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
		m.watchers[dev] = m.watcher(dev, 0, parts)
		m.watch(ctx, dev, 0, parts)
		if failed != attached {
			t.Errorf("with a policy %v: failed %v", attached, failed)
		}
		end()
	}
}

// TestIncidentsEndWithTheirPolicy: of an interface without one no rule is in force. Those of others
// stay as they are.
func TestIncidentsEndWithTheirPolicy(t *testing.T) {
	store := incident.OpenStore(filepath.Join(t.TempDir(), "incidents.json"))
	now := time.Now()
	for id, dev := range map[string]string{"1": "gone-levee0", "2": "eth0"} {
		if err := store.Put(incident.Incident{ID: id, Dev: dev, State: incident.Open, Began: now,
			Detected: now, Acted: &now, Rules: []incident.Rule{{State: incident.Live}},
			Seen: incident.Seen{Kind: "syn"}}); err != nil {
			t.Fatal(err)
		}
	}
	m := NewManager(ManagerOptions{Incidents: store})
	m.closeLeft([]inforce.State{{Dev: "eth0"}})
	for id, want := range map[string]string{"1": incident.Ended, "2": incident.Open} {
		i, _ := store.Get(id)
		if i.State != want || i.Rules[0].IsLive() == (want == incident.Ended) {
			t.Errorf("incident %s: %+v", id, i)
		}
	}
}

// TestAPolicyIsReadOfAnInterfaceThatIsThere: one that was renamed or deleted since it was looked at
// was a policy that cannot be read.
func TestAPolicyIsReadOfAnInterfaceThatIsThere(t *testing.T) {
	for failed, alarm := range map[error]bool{unix.ENODEV: false, unix.EPERM: true} {
		m := NewManager(ManagerOptions{Parts: part.NewRegister(func(part.Change, part.Status) {}),
			InForce: &inforce.Watcher{Look: func(context.Context) ([]inforce.State, error) {
				return []inforce.State{{Dev: "eth0", Index: 2}}, nil
			}},
			Policy: func(context.Context, string) (*policy.Policy, error) { return nil, failed }})
		m.look(t.Context())
		if got := slices.ContainsFunc(m.Parts.List(),
			func(s part.Status) bool { return s.State == part.Fails }); got != alarm {
			t.Errorf("%v: an alarm: %v", failed, got)
		}
	}
}

// TestWhoPausesKeepsNobodyFromFollowingAName: a watcher that pauses after failures, up to 30
// seconds, ended behind its pause, and until then nobody began to watch under a new name.
func TestWhoPausesKeepsNobodyFromFollowingAName(t *testing.T) {
	const dev = "gone-levee0"
	synctest.Test(t, func(t *testing.T) {
		index := 2
		m := NewManager(ManagerOptions{Parts: part.NewRegister(func(part.Change, part.Status) {}),
			InForce: &inforce.Watcher{Look: func(context.Context) ([]inforce.State, error) {
				return []inforce.State{{Dev: dev, Index: index}}, nil
			}}})
		m.watchers[dev] = m.watcher(dev, index, nil)
		ended := make(chan bool)
		go func() {
			m.watch(t.Context(), dev, index, newWatchParts(m.Parts, dev))
			close(ended)
		}()
		time.Sleep(2 * time.Minute) // it pauses for half a minute by now
		synctest.Wait()
		index = 3
		begun := time.Now()
		<-ended
		if long := time.Since(begun); long > lookEvery {
			t.Errorf("it has ended after %v", long)
		}
	})
}
