package pubsub

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// watch collects what a subscriber gets until n events have come.
func watch(t *testing.T, h *Hub, after uint64, n int) (out []Event) {
	t.Helper()
	h.Watch(t.Context(), after, func(_ uint64, e *Event) error {
		out = append(out, *e)
		if len(out) == n {
			return errors.New("enough")
		}
		return nil
	})
	return out
}

func TestWhoComesBackGetsWhatWasMissed(t *testing.T) {
	var h Hub
	for range kept + 10 {
		h.Publish(Event{Kind: Leased})
	}
	if got := watch(t, &h, kept+5, 5); got[0].ID != kept+6 || got[4].ID != kept+10 {
		t.Errorf("%v", got)
	}
	if got := watch(t, &h, 3, kept); got[0].ID != 11 || got[kept-1].ID != kept+10 {
		t.Errorf("from %d to %d", got[0].ID, got[kept-1].ID)
	}
	if got := watch(t, &h, 1<<40, kept); got[0].ID != 11 {
		t.Errorf("of an agent before: from %d", got[0].ID)
	}
}

func TestWhoIsSlowHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got []Event
		taken := make(chan bool)
		go h.Watch(ctx, 0, func(_ uint64, e *Event) error {
			<-taken
			got = append(got, *e)
			return nil
		})
		synctest.Wait()
		for range 1000 {
			h.Publish(Event{})
		}
		close(taken)
		synctest.Wait()
		h.Publish(Event{Text: "last"})
		synctest.Wait()
		// one is being sent, and as many as fit wait
		n := len(got)
		if n != pending+3 || got[n-2].Kind != Lost || got[n-2].Count != 1000-pending-1 ||
			got[n-1].Text != "last" {
			t.Errorf("%d events, %+v", n, got[max(0, n-2):])
		}
	})
}
