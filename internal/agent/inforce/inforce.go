// Package inforce says which policies are in force in this network namespace. One watcher of an
// agent looks, and all its parts ask it: none polls links or pins by itself. It must never read a
// policy, or tell anything of rules.
package inforce

import (
	"context"
	"slices"
	"sync"
	"time"

	"levee/internal/dataplane/sets"
)

// State tells one policy in force from another. Live rules make no difference.
type State = sets.PolicyState

// Recent is how old what is known may be where nobody waits for a change.
const Recent = 2 * time.Second

// Watcher knows what is in force. It may be used by several goroutines.
type Watcher struct {
	// Look is how it looks; nil: at this network namespace.
	Look func(context.Context) ([]State, error)

	mu   sync.Mutex
	all  []State
	at   time.Time // when all was read; zero: never
	busy chan struct{}
}

// Here are the policies that are in force, as somebody has seen at most age ago. Who comes while
// another looks gets what that one sees, unless age is 0: then the look begins now.
func (w *Watcher) Here(ctx context.Context, age time.Duration) ([]State, error) {
	begun := time.Now()
	for {
		w.mu.Lock()
		if !w.at.IsZero() && age > 0 && begun.Sub(w.at) <= age {
			defer w.mu.Unlock()
			return slices.Clone(w.all), nil
		}
		wait := w.busy
		if wait == nil {
			break
		}
		w.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	done := make(chan struct{})
	w.busy = done
	w.mu.Unlock()
	look := w.Look
	if look == nil {
		look = sets.InForceHere
	}
	at := time.Now()
	all, err := look(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy = nil; err == nil {
		w.all, w.at = all, at
	}
	close(done)
	return slices.Clone(all), err
}

// On is what is in force on an interface; false: nothing is.
func (w *Watcher) On(ctx context.Context, dev string, age time.Duration) (State, bool, error) {
	all, err := w.Here(ctx, age)
	for _, s := range all {
		if s.Dev == dev {
			return s, true, err
		}
	}
	return State{}, false, err
}
