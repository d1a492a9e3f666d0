package overload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"levee/internal/agent/part"
)

// Times of a policy that packets bypass.
const (
	// keeperFirst is the time that a keeper has to move it, which it does at once where one runs:
	// two that move it would pass over a hook that is good.
	keeperFirst = 5 * time.Second
	// moveAgain is the interval between two attempts.
	moveAgain = time.Minute
)

// past records what is done about a policy that packets bypass, or that judges otherwise than it
// says.
type past struct {
	since, tried time.Time
	came         error // of the last try
}

// comesPast returns an error for each interface on which packets have bypassed the policy in two
// looks, and moves that policy to another hook.
func (w *Watch) comesPast(ctx context.Context, now time.Time) map[string]error {
	all, err := w.Judged(ctx)
	if err != nil {
		return nil // what cannot be read now may be readable in a second
	}
	before, out := w.past, map[string]error{}
	w.past = map[string]*past{}
	for i := range all {
		j := &all[i]
		if !j.Failed() {
			continue
		}
		p := before[j.Dev]
		if p == nil { // levee down takes the link off before the rest: told if it stays
			w.past[j.Dev] = &past{since: now}
			continue
		}
		w.past[j.Dev] = p
		if now.Sub(p.since) >= keeperFirst && now.Sub(p.tried) >= moveAgain {
			p.tried = now
			hook, err := w.Move(ctx, j)
			if p.came = err; err == nil {
				p.came = fmt.Errorf("it is in force anew, at %s", hook)
			}
		}
		why := errors.New(j.Why())
		if p.came != nil {
			why = fmt.Errorf("%w; %w", why, p.came)
		}
		out[j.Dev] = part.Do(why, "levee up FILE --dev "+j.Dev)
	}
	return out
}
