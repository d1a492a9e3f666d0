package event

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"levee/internal/agent/feed"
	"levee/internal/lang/policy"
)

// feeds are the lists that conditions fetch. A source that is changed goes on with those that it
// had.
type feeds struct{ had, now map[feedKey]*fetched }

func newFeeds() feeds { return feeds{now: map[feedKey]*fetched{}} }

type feedKey struct {
	feed      policy.Feed
	every     time.Duration
	anyCase   bool
	addresses bool
}

// of returns the list of a condition.
func (f feeds) of(c *policy.Condition, t *texts) *fetched {
	key := feedKey{*c.Feed, c.Every, t.anyCase, t.addresses}
	if f.now[key] == nil {
		if f.now[key] = f.had[key]; f.now[key] == nil {
			f.now[key] = &fetched{every: c.Every, place: c.Feed.URL + c.Feed.Path,
				from: feed.NewTexts(c.Feed, maxListed, "levee", t.fold)}
		}
	}
	return f.now[key]
}

// fetched is a list of texts that is fetched in the background, when it is asked for. While it
// cannot be, what it held last holds.
type fetched struct {
	every time.Duration
	place string
	from  *feed.Fetcher

	mu       sync.Mutex
	busy     bool
	next     time.Time
	failures int
	state    feed.State
	texts    map[string]bool
	err      error
}

func (f *fetched) has(text []byte) (is, known bool) {
	f.look()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.texts[string(text)], f.texts != nil
}

// Unfetched is the reason that a list of a condition could not be fetched.
type Unfetched struct{ err error }

func (u *Unfetched) Error() string { return u.err.Error() }
func (u *Unfetched) Unwrap() error { return u.err }

func (f *fetched) trouble() error {
	f.look()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// look begins a reading if it is time for one. It ends by itself, as a fetch is bounded.
func (f *fetched) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy || time.Now().Before(f.next) {
		return
	}
	f.busy = true
	go f.fetch()
}

// errEmptied is of a list that held something: where a condition asks who is not in it, everybody
// would be.
var errEmptied = errors.New("it comes empty; what it held is kept")

// retry is the pause behind a first failure; it doubles up to what is usual.
const retry = 10 * time.Second

func (f *fetched) fetch() {
	f.mu.Lock()
	state := f.state
	f.mu.Unlock()
	r, err := f.from.Fetch(context.Background(), state)
	f.from.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && !r.Unchanged && len(r.List.Texts) == 0 && len(f.texts) > 0 {
		err = errEmptied
	}
	pause := f.every
	if f.busy = false; err != nil {
		pause = min(pause, retry<<min(f.failures, 20))
		if refused := (*feed.Refused)(nil); errors.As(err, &refused) {
			pause = max(pause, refused.Retry)
		}
		f.failures++
		f.err = &Unfetched{fmt.Errorf("fetch the list %s of a condition: %w", f.place, err)}
	} else {
		if f.state, f.failures, f.err = r.State, 0, nil; !r.Unchanged {
			if f.texts = r.List.Texts; f.texts == nil {
				f.texts = map[string]bool{}
			}
		}
	}
	f.next = time.Now().Add(pause)
}
