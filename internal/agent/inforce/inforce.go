// Package inforce says which policies are in force in this network namespace. One watcher of an
// agent looks, and all its parts ask it: none polls links or pins by itself. It must never read a
// policy's text, or change anything.
package inforce

import (
	"context"
	"slices"
	"sync"
	"time"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
)

// State tells one policy in force from another. Live rules make no difference.
type State = sets.PolicyState

// Recent limits the age of what is known where nobody waits for a change.
const Recent = 2 * time.Second

// Watcher knows what is in force. It may be used by several goroutines.
type Watcher struct {
	// Look looks, and Count looks and counts; nil: at this network namespace.
	Look  func(context.Context) ([]State, error)
	Count func(context.Context) ([]inspect.Attachment, error)

	states  shared[State]
	counted shared[inspect.Attachment]
}

// Here returns the policies that are in force, as somebody has seen at most age ago. Who comes
// while another looks gets what that one sees, unless age is 0: then the look begins after the
// call, one for all who have asked by then.
func (w *Watcher) Here(ctx context.Context, age time.Duration) ([]State, error) {
	look := w.Look
	if look == nil {
		look = sets.InForceHere
	}
	return w.states.ask(ctx, age, look)
}

// On returns what is in force on an interface; false: nothing is.
func (w *Watcher) On(ctx context.Context, dev string, age time.Duration) (State, bool, error) {
	all, err := w.Here(ctx, age)
	for _, s := range all {
		if s.Dev == dev {
			return s, true, err
		}
	}
	return State{}, false, err
}

// Counted returns the policies that are in force with their counters and sets, as a look sees them
// that begins after the call, one for all who have asked by then. They are read only: others have
// them, too.
func (w *Watcher) Counted(ctx context.Context) ([]inspect.Attachment, error) {
	count := w.Count
	if count == nil {
		count = func(ctx context.Context) ([]inspect.Attachment, error) {
			all, _, err := inspect.Status(ctx, false)
			return all, err
		}
	}
	return w.counted.ask(ctx, 0, count)
}

// shared keeps the result of one look at the machine for all who ask.
type shared[T any] struct {
	mu   sync.Mutex
	all  []T
	at   time.Time     // when the look at all began; zero: never
	busy chan struct{} // of who looks; closed when he has
}

func (s *shared[T]) ask(ctx context.Context, age time.Duration,
	look func(context.Context) ([]T, error)) ([]T, error) {
	begun := time.Now()
	for {
		s.mu.Lock()
		if s.at.After(begun) || age > 0 && begun.Sub(s.at) <= age {
			defer s.mu.Unlock()
			return slices.Clone(s.all), nil
		}
		wait := s.busy
		if wait == nil {
			break
		}
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	done := make(chan struct{})
	s.busy = done
	s.mu.Unlock()
	at := time.Now()
	all, err := look(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy = nil; err == nil {
		s.all, s.at = all, at
	}
	close(done)
	return slices.Clone(all), err
}
