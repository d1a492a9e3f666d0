package dataplane

import (
	"context"
	"runtime"
	"testing"

	"levee/internal/dataplane/generation"
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
	if _, err := w.Look(&ending{Context: t.Context(), last: asks.asked}, tell); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Look(t.Context(), tell); err != nil {
		t.Fatal(err)
	}
	if lost == 0 {
		t.Error("no losses of 20,000 packets were told")
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
