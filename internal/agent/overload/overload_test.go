package overload

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/agent/part"
	"levee/internal/dataplane/inspect"
	"levee/internal/host/lost"
)

// TestWhatIsLostBeforeThePolicyIsAnAlarm: the card of eth0 loses a third for ten seconds, and
// afterwards eth0 loses its policy.
func TestWhatIsLostBeforeThePolicyIsAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []string
		reg := part.NewRegister(func(c part.Change, s part.Status) {
			changes = append(changes, map[part.Change]string{part.Failed: "failed: ",
				part.Recovered: "recovered: ", part.Gone: "gone: "}[c]+s.Sentence())
		})
		begun := time.Now()
		policies := []string{"eth0", "eth1"}
		w := &Watch{Parts: reg,
			Devs: func(context.Context) ([]string, error) { return policies, nil },
			Read: func(dev string) (*lost.Counts, error) {
				n := uint64(time.Since(begun) / time.Second)
				c := &lost.Counts{Received: 2000 * n}
				if dev == "eth0" {
					c.AtLeast = 1000 * min(n, 10)
					c.Card = []lost.Counter{{Name: "rx_missed_errors", Packets: c.AtLeast}}
				}
				return c, nil
			}, Judged: none}
		ctx, stop := context.WithCancel(t.Context())
		go w.Run(ctx)
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if len(changes) != 1 || !strings.Contains(changes[0], "arrival on eth0") ||
			!strings.Contains(changes[0], "33.3 %") ||
			!strings.Contains(changes[0], "1000 packets a second at rx_missed_errors") ||
			!strings.Contains(changes[0], "levee doctor --dev eth0") {
			t.Fatal(changes)
		}
		time.Sleep(30 * time.Second)
		reg.Look()
		if len(changes) != 2 || !strings.HasPrefix(changes[1], "recovered: ") {
			t.Fatal(changes)
		}
		if n, none := w.Lost("eth0"), w.Lost("eth1"); n != 10_000 || none != 0 {
			t.Errorf("%d and %d packets lost, want 10000 and none", n, none)
		}
		policies = policies[1:]
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := w.Lost("eth0"); n != 0 {
			t.Errorf("%d packets lost on an interface without a policy", n)
		}
		if all := reg.List(); len(all) != 1 || all[0].Dev != "eth1" || all[0].State != part.Works {
			t.Errorf("%+v", all)
		}
		stop()
		synctest.Wait()
	})
}

func none(context.Context) ([]inspect.Judged, error) { return nil, nil }

// TestACardThatCannotBeReadIsAnAlarm, but not one that is gone, or has another name: what is known
// of policies is up to two seconds old.
func TestACardThatCannotBeReadIsAnAlarm(t *testing.T) {
	reg := part.NewRegister(func(part.Change, part.Status) {})
	w := &Watch{Parts: reg,
		Devs: func(context.Context) ([]string, error) { return []string{"eth0", "eth1"}, nil },
		Read: func(dev string) (*lost.Counts, error) {
			if dev == "eth1" {
				return nil, netlink.LinkNotFoundError{}
			}
			return nil, errors.New("not permitted")
		},
		Judged: none}
	w.look(t.Context(), time.Now())
	if s := reg.List(); len(s) != 1 || s[0].State != part.Fails || s[0].Dev != "eth0" {
		t.Errorf("%+v", s)
	}
}

// TestDownWasAnAlarm: for a second the link was missing, until the policy was gone.
func TestDownWasAnAlarm(t *testing.T) {
	var told []string
	reg := part.NewRegister(func(_ part.Change, s part.Status) {
		told = append(told, s.Sentence())
	})
	policies, gone := []string{"eth0"}, false
	w := &Watch{Parts: reg,
		Devs: func(context.Context) ([]string, error) { return policies, nil },
		Read: func(string) (*lost.Counts, error) { return &lost.Counts{}, nil },
		Judged: func(context.Context) (out []inspect.Judged, _ error) {
			if gone && len(policies) > 0 {
				out = []inspect.Judged{{Dev: "eth0", Judging: inspect.Judging{
					Amiss: []string{"the link is missing"}}}}
			}
			return out, nil
		}}
	for range 2 {
		w.look(t.Context(), time.Now())
	}
	gone = true
	w.look(t.Context(), time.Now())
	policies = nil
	w.look(t.Context(), time.Now())
	if len(told) > 0 || len(reg.List()) > 0 {
		t.Errorf("told %q, left %+v", told, reg.List())
	}
}

// TestTheAgentComparesNothing: the keeper alone looked whether packets come to a policy. Without
// one the agent was content, and the policy stayed where no packet came.
func TestTheAgentComparesNothing(t *testing.T) {
	const fails = "failed: arrival on eth0 does not work: packets come past the policy: driver " +
		"vmxnet3 does not ask its program at xdp-native for them; 9 came, and none was judged; "
	for _, c := range []struct {
		name   string
		mends  time.Duration // when somebody else has mended it
		fails  error         // of a move
		moves  int
		alarms []string // how they begin
	}{
		{"without a keeper", 0, nil, 1, []string{fails + "to do: levee up FILE --dev eth0",
			"recovered: "}},
		{"with one", 5 * time.Second, nil, 0, []string{fails, "recovered: "}},
		{"where no other hook is", 0, errors.New("there is no other hook for it"), 2,
			[]string{fails, fails + "there is no other hook for it"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var alarms []string
				reg := part.NewRegister(func(c part.Change, s part.Status) {
					word := "failed: "
					if c == part.Recovered {
						word = "recovered: "
					}
					alarms = append(alarms, word+s.Sentence())
				})
				begun, moves, mended := time.Now(), 0, false
				w := &Watch{Parts: reg,
					Devs: func(context.Context) ([]string, error) { return []string{"eth0"}, nil },
					Read: func(string) (*lost.Counts, error) { return &lost.Counts{}, nil },
					Judged: func(context.Context) ([]inspect.Judged, error) {
						j := inspect.Judged{Dev: "eth0"}
						past := time.Since(begun) - 3*time.Second
						if past >= 0 && !mended && (c.mends == 0 || past < c.mends) {
							j.State, j.Driver, j.Past = inspect.Still, "driver vmxnet3", 9
							j.Mode = "xdp-native"
						}
						return []inspect.Judged{j}, nil
					},
					Move: func(context.Context, *inspect.Judged) (string, error) {
						moves++
						mended = c.fails == nil
						return "tcx", c.fails
					}}
				ctx, stop := context.WithCancel(t.Context())
				go w.Run(ctx)
				for range 100 {
					time.Sleep(time.Second)
					reg.Look()
				}
				stop()
				synctest.Wait()
				if moves != c.moves {
					t.Errorf("moved %d times, want %d", moves, c.moves)
				}
				if len(alarms) != len(c.alarms) {
					t.Fatalf("alarms: %q", alarms)
				}
				for i, want := range c.alarms {
					if !strings.HasPrefix(alarms[i], want) {
						t.Errorf("alarm: %q, want %q", alarms[i], want)
					}
				}
			})
		})
	}
}
