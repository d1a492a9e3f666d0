package overload

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/agent/part"
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
			}}
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

func TestACardThatCannotBeReadIsAnAlarm(t *testing.T) {
	reg := part.NewRegister(func(part.Change, part.Status) {})
	w := &Watch{Parts: reg,
		Devs: func(context.Context) ([]string, error) { return []string{"eth0"}, nil },
		Read: func(string) (*lost.Counts, error) { return nil, errors.New("no such device") }}
	w.look(t.Context(), time.Now())
	if s := reg.List(); len(s) != 1 || s[0].State != part.Fails {
		t.Errorf("%+v", s)
	}
}
