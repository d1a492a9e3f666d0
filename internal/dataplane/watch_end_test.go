package dataplane

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"levee/internal/await"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/dataplane/tap"
	"levee/internal/filter/logging"
)

// ending is a context that ends when it is asked for the last of so many times.
type ending struct {
	context.Context
	asked, last int
}

func (c *ending) Err() error {
	if c.asked++; c.last > 0 && c.asked >= c.last {
		return context.Canceled
	}
	return nil
}

// TestLossesOfTheLastLookAreTold: losses that were read when a watch was told to end were not told,
// and the look behind its end took them for told.
func TestLossesOfTheLastLookAreTold(t *testing.T) {
	n := newTestNet(t)
	if err := bringPolicy(t, "lv0", "log ether 0x88b5\ndrop\ndefault drop\n", 0); err != nil {
		t.Fatal(err)
	}
	w := &tap.Watching{Dev: "lv0", Rules: map[uint32]generation.SlotCounter{},
		Before: map[string]logging.Losses{}}
	defer w.Close()
	if err := w.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := uint64(0)
	tell := func(l tap.Losses) { lost += l.Bound + l.Ring }
	asks := &ending{Context: t.Context()}
	if _, err := w.Look(asks, tell); err != nil {
		t.Fatal(err)
	}
	n.send(t, 20_000, 1)
	_, err := w.Look(&ending{Context: t.Context(), last: asks.asked}, tell)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := w.Look(t.Context(), tell); err != nil {
		t.Fatal(err)
	}
	if lost == 0 {
		t.Error("no losses of 20,000 packets were told")
	}
}

// TestAWatchToldToEndInALookTellsOfItsLosses: a watch that was told to end while it waited for
// another command told neither of what lay in its ring nor of losses.
func TestAWatchToldToEndInALookTellsOfItsLosses(t *testing.T) {
	n := newTestNet(t)
	if err := bringPolicy(t, "lv0", "log ether 0x88b5 as \"odd\"\ndefault drop\n", 0); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var told, lost atomic.Uint64
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and the thread ends with it
		if err := netns.Set(n.here); err != nil {
			done <- err
			return
		}
		done <- tap.Watch(ctx, "lv0", func(tap.Event) { told.Add(1) },
			func(l tap.Losses) { lost.Add(l.Bound + l.Ring) })
	}()
	await.OK(t, func() error {
		n.send(t, 1, 1)
		if told.Load() == 0 {
			return errors.New("nothing was told of")
		}
		return nil
	})
	was := status(t)
	before := told.Load() + lost.Load()
	held, release := make(chan struct{}), make(chan struct{})
	other := make(chan error, 1)
	go func() {
		other <- store.Transact(t.Context(), func(*store.Store) error {
			close(held)
			<-release
			return nil
		})
	}()
	<-held
	n.send(t, 20_000, 1)
	await.Pass(1500*time.Millisecond, "the time between two looks, so that one waits")
	stop()
	await.Pass(100*time.Millisecond, "the time in which a wait ends")
	close(release)
	if err := errors.Join(<-done, <-other); err != nil {
		t.Fatal(err)
	}
	now := status(t)
	counted := uint64(packets(&now, "odd") - packets(&was, "odd"))
	if got := told.Load() + lost.Load() - before; got < counted {
		t.Errorf("%d of %d packets were told of or counted as lost", got, counted)
	}
}

// TestALookThatFailsSaysSo: a look that could not be begun was taken for the end of the policy, so
// that a watch ended without a word.
func TestALookThatFailsSaysSo(t *testing.T) {
	newTestNet(t)
	if err := bringPolicy(t, "lv0", "log tcp\ndefault drop\n", 0); err != nil {
		t.Fatal(err)
	}
	w := &tap.Watching{Dev: "lv0", Rules: map[uint32]generation.SlotCounter{},
		Before: map[string]logging.Losses{}}
	defer w.Close()
	if err := w.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	none := func(tap.Losses) {}
	t.Run("refused", func(t *testing.T) {
		t.Setenv(store.RunEnv, "/proc/none")
		if there, err := w.Look(t.Context(), none); err == nil {
			t.Errorf("no error of a directory that cannot be, and a policy is there: %v", there)
		}
	})
	if _, err := Down(t.Context(), "lv0"); err != nil {
		t.Fatal(err)
	}
	if there, err := w.Look(t.Context(), none); there || err != nil {
		t.Errorf("behind down: %v, %v", there, err)
	}
	if err := netlink.LinkDel(must2(netlink.LinkByName("lv0"))); err != nil {
		t.Fatal(err)
	}
	if there, err := w.Look(t.Context(), none); there || err != nil {
		t.Errorf("without the interface: %v, %v", there, err)
	}
}

// TestAWatchFollowsOneThatWasKilled: what is killed leaves its ring where logs find it.
func TestAWatchFollowsOneThatWasKilled(t *testing.T) {
	n := newTestNet(t)
	if err := bringPolicy(t, "lv0", "log ether 0x88b5\ndrop\ndefault drop\n", 0); err != nil {
		t.Fatal(err)
	}
	begin := func() *tap.Watching {
		w := &tap.Watching{Dev: "lv0", Rules: map[uint32]generation.SlotCounter{},
			Before: map[string]logging.Losses{}}
		if err := w.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w
	}
	killed := begin()
	killed.Events.Close()
	killed.Reader.Close()
	killed.Ring.Close()
	killed.Only.Release()
	n.send(t, 5, 1)

	w := begin()
	n.send(t, 7, 2)
	told := 0
	if err := w.Leave(); err != nil {
		t.Fatal(err)
	}
	n.send(t, 3, 3)
	if err := tap.Drain(w.Reader, &w.Record, func() {
		w.Tell(func(e tap.Event) {
			if told++; e.Packet[14] != 2 || e.CPU >= runtime.NumCPU() || e.Bytes < 60 {
				t.Errorf("told of %+v", e)
			}
		})
	}); err != nil {
		t.Fatal(err)
	}
	lost := uint64(0)
	if _, err := w.Look(t.Context(), func(l tap.Losses) { lost += l.Ring }); err != nil {
		t.Fatal(err)
	}
	if told != 7 || lost != 3 {
		t.Errorf("told of %d packets of 7, and lost %d of 3 that nobody watched", told, lost)
	}
	w.Close()
}
