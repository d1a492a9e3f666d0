package dataplane

import (
	"context"
	"fmt"
	"testing"

	"levee/internal/await"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
	"levee/internal/lang/action"
)

// TestAReaderFollowsReplacesAndRollbacks compares a reader that stays with a status that is asked
// anew, over all that changes counters.
func TestAReaderFollowsReplacesAndRollbacks(t *testing.T) {
	n := newTestNet(t)
	var r inspect.Reader
	defer r.Close()
	same := func(when string, odd uint64) {
		t.Helper()
		await.OK(t, func() error {
			got, err := r.Read(context.Background())
			if err != nil {
				return err
			}
			a := status(t)
			if len(got) != 1 || got[0].Dev != "lv0" || len(got[0].Counters) != len(a.Counters) {
				return fmt.Errorf("%s: %d interfaces", when, len(got))
			}
			for i, c := range got[0].Counters {
				w := a.Counters[i]
				if c.ID != w.ID || c.Action != w.Action || c.Packets > w.Packets ||
					c.Label == "odd" && c.Packets != odd {
					return fmt.Errorf("%s: %+v, want %+v", when, c, w)
				}
			}
			return nil
		})
	}
	if got, err := r.Read(context.Background()); err != nil || len(got) != 0 {
		t.Fatalf("before there is a policy: %v, %v", got, err)
	}
	bring(t, "lv0", store.Auto, handPolicy("odd", action.Pass))
	same("at first", 0)
	n.send(t, 7, 1)
	same("after packets", 7)
	bring(t, "lv0", store.Auto, handPolicy("odd", action.Drop))
	same("after a replace", 7)
	n.send(t, 2, 1)
	same("after packets and a replace", 9)
	passing := handPolicy("odd", action.Drop)
	passing.Rules[0].Action = action.Pass
	bring(t, "lv0", store.Auto, passing)
	same("after another action", 0)
	if _, err := Down(context.Background(), "lv0"); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Read(context.Background()); err != nil || len(got) != 0 {
		t.Fatalf("after it is gone: %v, %v", got, err)
	}
	runDirIsGone(t)
}

func BenchmarkReader(b *testing.B) {
	newTestNet(b)
	bring(b, "lv0", store.Auto, handPolicy("odd", action.Pass))
	b.Run("reader", func(b *testing.B) {
		var r inspect.Reader
		defer r.Close()
		for b.Loop() {
			if _, err := r.Read(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("status", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := inspect.Status(context.Background(), false); err != nil {
				b.Fatal(err)
			}
		}
	})
}
