package part

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// Times between two attempts.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// Pause returns how long a part waits before it is tried again, after so many failures in a row.
func Pause(failures int) time.Duration {
	return min(longestPause, firstPause<<min(max(0, failures-1), 10))
}

// doing is an error with what to do about it.
type doing struct {
	error
	do string
}

func (d *doing) Unwrap() error { return d.error }

// Do adds to an error what to do about it, with what to type.
func Do(err error, do string) error {
	if err == nil || do == "" {
		return err
	}
	return &doing{err, do}
}

// doOf returns what to do about an error, "" if nobody knows.
func doOf(err error) string {
	var d *doing
	if errors.As(err, &d) {
		return d.do
	}
	return ""
}

// Try runs fn. A panic becomes an error, and its stack is printed as the runtime does: a mistake in
// one part ends no other.
func Try(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(os.Stderr, "panic: %v\n%s", r, debug.Stack())
			err = Do(fmt.Errorf("a mistake in levee: %v", r),
				"report it with the stack that the log has: journalctl -u levee-agent")
		}
	}()
	return fn()
}

// Run runs fn until ctx ends, and again after a pause when it has returned, which counts as a
// failure. The pauses grow, until fn has told that it works.
func (p *Part) Run(ctx context.Context, fn func(context.Context) error) {
	for failures := 1; ; failures++ {
		begun := time.Now()
		err := Try(func() error { return fn(ctx) })
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it has ended")
		}
		if p.workedSince(begun) {
			failures = 1
		}
		pause := Pause(failures)
		p.FailsUntil(err, time.Now().Add(pause))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// workedSince tells whether the part has told since then that it works.
func (p *Part) workedSince(at time.Time) bool {
	if p == nil {
		return false
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return p.status.State == Works && !p.beat.Before(at)
}
