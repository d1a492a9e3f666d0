package demo

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/lab"
	"levee/internal/lab/gen"
	"levee/internal/lab/labtest"
)

// A generator of real-time priority that waits busily left an agent on its core 5 % of it: each
// rule of the bench of detection took a second or two.
func TestAFloodGoesFirstOnlyWhereThatIsAskedFor(t *testing.T) {
	l := labtest.New(t)
	world := l.Host(lab.World)
	for _, of := range []struct {
		send  func(context.Context, gen.Config) (gen.Report, error)
		first bool
	}{{Send, false}, {SendFirst, true}} {
		policy := -1
		to := netip.MustParseAddr("198.18.0.1")
		_, err := of.send(t.Context(), gen.Config{
			Namespace: world.Namespace, Device: world.Devices[0].Name,
			Floods:   []gen.Flood{Spoofed(gen.Flood{Kind: gen.UDP}, to)},
			Rate:     1000,
			Duration: 300 * time.Millisecond,
			Progress: func(gen.Progress) { // of the sending thread
				if attr, err := unix.SchedGetAttr(0, 0); err == nil {
					policy = int(attr.Policy)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case policy < 0:
			t.Error("nothing was told of the sender")
		case !of.first && policy != unix.SCHED_NORMAL:
			t.Errorf("a flood that shares its core has scheduling policy %d", policy)
		case of.first && policy != unix.SCHED_FIFO && mayGoFirst(t):
			t.Errorf("a flood that goes first has scheduling policy %d", policy)
		}
	}
}

// mayGoFirst tells whether the control group has a budget for real time.
func mayGoFirst(t *testing.T) bool {
	t.Helper()
	return onCore(0, rank{first: 1}, func() error {
		attr, err := unix.SchedGetAttr(0, 0)
		if err == nil && attr.Policy != unix.SCHED_FIFO {
			err = unix.EPERM
		}
		return err
	}) == nil
}
