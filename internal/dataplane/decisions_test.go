package dataplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
)

const decisionPolicy = `log ether 0x88b7 as "logged"
drop ether 0x88b5 as "marked"
drop ether 0x88b6 as "probe"
default pass
`

// watching is a watch under way, and what it has told.
type watching struct {
	mu    sync.Mutex
	told  map[string]int // by the label of rules, and by other reasons
	lost  map[string]tap.Losses
	hold  chan struct{} // while it is open, event does not return
	total tap.Decided
	err   error
	stop  func() // ends it, and waits for that
}

func (w *watching) count(label string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told[label]
}

// watchDecisions begins a watch. Its lease is longer than a busy machine stands still.
func (n *testNet) watchDecisions(t *testing.T, o tap.Deciding) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{told: map[string]int{}, lost: map[string]tap.Losses{}, hold: make(chan struct{})}
	name := func(c generation.SlotCounter) string {
		if c.Reason == "rule" {
			return c.Label
		}
		return c.Reason
	}
	d := tap.NewDeciding(o)
	d.Lease = time.Hour
	d.Event = func(c tap.Captured) bool {
		w.mu.Lock()
		w.told[name(c.Rule)]++
		w.mu.Unlock()
		<-w.hold
		return true
	}
	d.Lost = func(l tap.Losses) {
		w.mu.Lock()
		defer w.mu.Unlock()
		was := w.lost[name(l.Rule)]
		was.Bound, was.Ring, was.Reader = was.Bound+l.Bound, was.Ring+l.Ring, was.Reader+l.Reader
		w.lost[name(l.Rule)] = was
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.enterHere(t)
		w.total, w.err = d.Watch(ctx)
	}()
	w.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		if w.err != nil {
			t.Error(w.err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

// begun sends frames that rule "probe" drops until the watch has told of one.
func (n *testNet) begun(t *testing.T, w *watching) {
	t.Helper()
	probe := markedFrame(1)
	probe[13] = 0xb6
	await.OK(t, func() error {
		n.sendFrame(t, probe)
		if w.count("probe") == 0 {
			return errors.New("the watch does not begin")
		}
		return nil
	})
}

// stayHere keeps the test's thread on one CPU, so that all frames go through one ring.
func stayHere(t *testing.T) {
	t.Helper()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.SchedSetaffinity(0, &all) })
}

// TestEachDecisionIsToldOfOrCounted: above the rate, and with a reader that is slower than the ring
// is long. What the policy has counted for a rule is what the watch told of it and what it lost.
func TestEachDecisionIsToldOfOrCounted(t *testing.T) {
	n := newTestNet(t)
	const sent = 20_000
	for _, mode := range allModes(t) {
		for _, c := range []struct {
			name string
			rate int
			slow bool
		}{{"above the rate", 50, false}, {"a slow reader", tap.MostDecisions, true}} {
			n.run(t, string(mode)+", "+c.name, func(t *testing.T) {
				stayHere(t)
				if err := bringPolicyAt(t, "lv0", mode, decisionPolicy, 0); err != nil {
					t.Fatal(err)
				}
				w := n.watchDecisions(t, tap.Deciding{Dev: "lv0", Verdict: "drop", Rate: c.rate,
					Snap: 64})
				let := sync.OnceFunc(func() { close(w.hold) })
				defer let()
				if !c.slow {
					let()
				}
				n.begun(t, w)
				before := n.txDropped(t)
				for range sent {
					if err := n.offer(markedFrame(9)); err != nil {
						t.Fatal(err)
					}
				}
				arrived := sent - (n.txDropped(t) - before)
				wantPackets(t, "marked", arrived)
				let()
				w.stop()
				l := w.lost["marked"]
				if got := uint64(w.told["marked"]) + l.Bound + l.Ring + l.Reader; got != arrived {
					t.Errorf("%d packets, told of %d, lost %+v", arrived, w.told["marked"], l)
				}
				if c.slow != (l.Ring > 0) || c.slow == (l.Bound > 0) {
					t.Errorf("lost %+v", l)
				}
				if w.told["default"] > 0 || w.total.Lapsed {
					t.Errorf("told of %v, %+v", w.told, w.total)
				}
				if _, err := Down(context.Background(), "lv0"); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestAFloodLeavesRoomForOtherRules: one rule has half the rate. So a packet of another one is told
// of, however long the flood goes on.
func TestAFloodLeavesRoomForOtherRules(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "rules", func(t *testing.T) {
		stayHere(t)
		if err := bringPolicyAt(t, "lv0", store.Auto, decisionPolicy, 0); err != nil {
			t.Fatal(err)
		}
		w := n.watchDecisions(t, tap.Deciding{Dev: "lv0", Rate: 6400, Snap: 64})
		close(w.hold)
		n.begun(t, w)
		n.send(t, 20_000, 9)
		other := markedFrame(1)
		other[13] = 0xb9
		n.sendFrame(t, other)
		await.OK(t, func() error {
			if w.count("default") == 0 {
				return errors.New("the flood hides another packet")
			}
			return nil
		})
		w.stop()
		if _, err := Down(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDecisionsAreChosen by their reason, their rule and their verdict, and a policy that replaces
// another is followed.
func TestDecisionsAreChosen(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "chosen", func(t *testing.T) {
		frames := map[string][]byte{"marked": markedFrame(1), "probe": markedFrame(1),
			"default": markedFrame(1), "malformed": markedFrame(1)[:20]}
		frames["probe"][13], frames["default"][13] = 0xb6, 0xb9
		copy(frames["malformed"][12:], []byte{8, 0, 0x45}) // IPv4, cut
		for name, c := range map[string]struct {
			o    tap.Deciding
			want string
		}{
			"a reason":  {tap.Deciding{Reasons: []string{"default"}}, "default"},
			"malformed": {tap.Deciding{Reasons: []string{"malformed"}}, "malformed"},
			"two reasons": {tap.Deciding{Reasons: []string{"malformed", "default"}},
				"default malformed"},
			"rules":  {tap.Deciding{Reasons: []string{"rule"}}, "marked probe"},
			"a rule": {tap.Deciding{Rule: "probe"}, "probe"},
			"a line": {tap.Deciding{Rule: "2"}, "marked"},
			"drops":  {tap.Deciding{Verdict: "drop"}, "malformed marked probe"},
			"passes": {tap.Deciding{Verdict: "pass"}, "default"},
			"drops by rules": {tap.Deciding{Verdict: "drop", Reasons: []string{"rule"}},
				"marked probe"},
		} {
			n.run(t, name, func(t *testing.T) {
				if err := bringPolicyAt(t, "lv0", store.Auto, decisionPolicy, 0); err != nil {
					t.Fatal(err)
				}
				c.o.Dev, c.o.Rate, c.o.Snap = "lv0", 100_000, 64
				w := n.watchDecisions(t, c.o)
				close(w.hold)
				for _, text := range []string{"# the first", "# the next"} {
					await.OK(t, func() error {
						for _, f := range frames {
							n.sendFrame(t, f)
						}
						for _, want := range strings.Fields(c.want) {
							if w.count(want) == 0 {
								return fmt.Errorf("nothing is told of %s", want)
							}
						}
						return nil
					})
					w.mu.Lock()
					for got := range w.told {
						if !strings.Contains(c.want, got) {
							t.Errorf("after %s: told of %s", text, got)
						}
					}
					clear(w.told)
					w.mu.Unlock()
					if err := bringPolicyAt(t, "lv0", store.Auto, decisionPolicy+"# next\n",
						0); err != nil {
						t.Fatal(err)
					}
				}
				w.stop()
			})
		}
		for want, o := range map[string]tap.Deciding{
			"no rule of the policy has":              {Rule: "nobody"},
			"decides nothing for the reason protect": {Reasons: []string{"protect"}},
			"the rule probe decides nothing":         {Rule: "probe", Reasons: []string{"default"}},
		} {
			o.Dev, o.Rate, o.Snap = "lv0", 100, 64
			if _, err := tap.WatchDecisions(t.Context(), o, nil, nil); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	})
}

// TestWhoWatchesBesideWhom: a watch of logs and one of decisions go together; a capture and a watch
// of decisions do not.
func TestWhoWatchesBesideWhom(t *testing.T) {
	n := newTestNet(t)
	n.run(t, "together", func(t *testing.T) {
		if err := bringPolicyAt(t, "lv0", store.Auto, decisionPolicy, 0); err != nil {
			t.Fatal(err)
		}
		o := tap.Deciding{Dev: "lv0", Verdict: "drop", Rate: 1000, Snap: 64}
		w := n.watchDecisions(t, o)
		close(w.hold)
		n.begun(t, w)
		c := tap.Capturing{Dev: "lv0", Snap: 64, Rate: 1}
		if _, err := tap.Capture(t.Context(), c, nil); err == nil ||
			!strings.Contains(err.Error(), "or watches its decisions") {
			t.Errorf("a capture beside it: %v", err)
		}
		if _, err := tap.WatchDecisions(t.Context(), o, nil, nil); err == nil {
			t.Error("two watch decisions")
		}
		logged := make(chan struct{}, 1)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			n.enterHere(t)
			done <- tap.Watch(ctx, "lv0", func(tap.Event) {
				select {
				case logged <- struct{}{}:
				default:
				}
			}, func(tap.Losses) {})
		}()
		f := markedFrame(1)
		f[13] = 0xb7
		await.OK(t, func() error {
			n.sendFrame(t, f)
			select {
			case <-logged:
				return nil
			default:
				return errors.New("no log is told of")
			}
		})
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		n.begun(t, w)
		w.stop()
		if _, err := Down(context.Background(), "lv0"); err != nil {
			t.Fatal(err)
		}
	})
}
