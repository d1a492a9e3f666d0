package inforce

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"levee/internal/dataplane/inspect"
)

// TestOneLookServesAllWhoAsk: each part of an agent looked by itself, every few seconds.
func TestOneLookServesAllWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		w := &Watcher{Look: func(context.Context) ([]State, error) {
			looks++
			time.Sleep(50 * time.Millisecond)
			return []State{{Dev: "eth0", Generation: looks}}, nil
		}}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				s, there, err := w.On(t.Context(), "eth0", Recent)
				if !there || err != nil || s.Generation != 1 {
					t.Errorf("%+v, %v, %v", s, there, err)
				}
			})
		}
		all.Wait()
		if looks != 1 {
			t.Errorf("%d looks for ten who asked at once", looks)
		}
		time.Sleep(Recent + time.Second)
		if s, _, _ := w.On(t.Context(), "eth0", Recent); s.Generation != 2 {
			t.Errorf("what is too old is told: %+v", s)
		}
		if s, _, _ := w.On(t.Context(), "eth0", 0); s.Generation != 3 {
			t.Errorf("who wants to know it now is told %+v", s)
		}
		if _, there, _ := w.On(t.Context(), "eth1", Recent); there {
			t.Error("eth1 has a policy")
		}
	})
}

// TestWhoAsksForNowGetsNoLookThatBeganBefore, and one that failed is no answer for others.
func TestWhoAsksForNowGetsNoLookThatBeganBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, fail := 0, errors.New("no rights")
		w := &Watcher{Look: func(context.Context) ([]State, error) {
			looks++
			n := looks
			time.Sleep(time.Second)
			if n == 1 {
				return nil, fail
			}
			return []State{{Dev: "eth0", Generation: n}}, nil
		}}
		go func() {
			if _, err := w.Here(t.Context(), Recent); !errors.Is(err, fail) {
				t.Error(err)
			}
		}()
		time.Sleep(10 * time.Millisecond)
		if s, _, err := w.On(t.Context(), "eth0", 0); s.Generation != 2 || err != nil {
			t.Errorf("%+v, %v", s, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = w.Here(t.Context(), 0) }()
		time.Sleep(10 * time.Millisecond)
		cancel()
		if _, err := w.Here(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("who does not wait any more gets %v", err)
		}
		time.Sleep(2 * time.Second)
	})
}

// TestCountersAreOfALookThatBeganSince: an entry that a request has added is in what the next one
// reads, and a hundred requests at once are two looks.
func TestCountersAreOfALookThatBeganSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		w := &Watcher{Count: func(context.Context) ([]inspect.Attachment, error) {
			n := looks.Add(1)
			time.Sleep(time.Second)
			return []inspect.Attachment{{Dev: "eth0", Generation: int(n)}}, nil
		}}
		ask := func(want int) {
			all, err := w.Counted(t.Context())
			if err != nil || len(all) != 1 || all[0].Generation != want {
				t.Errorf("%+v, %v; want the look %d", all, err, want)
			}
		}
		var all sync.WaitGroup
		all.Go(func() { ask(1) })
		time.Sleep(10 * time.Millisecond)
		for range 100 {
			all.Go(func() { ask(2) })
		}
		all.Wait()
		ask(3)
	})
}

// TestNobodyElseLooks: parts of the agent ask the watcher.
func TestNobodyElseLooks(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			filepath.Base(filepath.Dir(path)) == "inforce" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, look := range []string{"sets.InForceHere", "inspect.Status("} {
			if strings.Contains(string(text), look) {
				t.Errorf("%s looks by itself: %s", path, look)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
