package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/store"
)

// MinTrial is the shortest trial: less is shorter than a few ticks of the slowest kernel clock.
const MinTrial = 100 * time.Millisecond

// MaxTrial bounds a trial, so that a slip of the keyboard does not leave one pending for years.
const MaxTrial = 7 * 24 * time.Hour

// Confirm puts the policy on trial on dev into force for good: one link update to the variant
// without a deadline, which lies ready. It is an error if none is on trial (any more). notes tells
// what was found and mended on the way.
func Confirm(ctx context.Context, dev string) (notes []string, err error) {
	return generation.NotedOn(ctx, dev, func(s *store.Store, a *attach.Attachment) error {
		g := a.OnTrial()
		if g == nil {
			if rb := a.Carried.RolledBack; rb != nil {
				return fmt.Errorf("too late: %s on %s was not confirmed by %s, and the policy "+
					"before it is back",
					rb.Policy, dev, rb.Deadline.Format(time.TimeOnly))
			}
			return fmt.Errorf("no policy is on trial on %s; there is nothing to confirm", dev)
		}
		if err := s.Step("confirm"); err != nil {
			return err
		}
		if err := generation.Give(s, a, g.Generation); err != nil {
			return err
		}
		remember(s, a.Key, dev, g)
		after, err := generation.Settle(s, a.Key)
		if err != nil {
			return fmt.Errorf("%s is confirmed on %s, but cleaning up after the policy before it "+
				"failed (any levee command does it): %w", g.Policy, dev, err)
		}
		after.Close()
		return nil
	})
}

// TrialEnd is the end of a trial.
type TrialEnd uint8

const (
	NotConfirmed TrialEnd = iota // in time: what was before the policy is back
	Confirmed
	Replaced  // by a later policy
	TakenDown // before the deadline, by Down
	Vanished  // with its interface
)

// WaitTrial waits until the trial that Up reported ends, looking every interval. After the
// deadline it tidies up what the kernel has done already. It ends early, with ctx's error, when ctx
// ends; the trial goes on then.
func WaitTrial(ctx context.Context, r *Report, interval time.Duration) (TrialEnd, error) {
	for {
		all, _, err := inspect.Status(ctx, false)
		if err != nil {
			return NotConfirmed, err
		}
		i := slices.IndexFunc(all,
			func(a inspect.Attachment) bool { return a.Ifindex == r.Ifindex })
		switch {
		case i < 0 || all[i].Generation < r.Generation:
			left, err := store.TimeLeft(r.deadline)
			_, gone := netlink.LinkByIndex(r.Ifindex)
			switch {
			case err != nil || left == 0:
				return NotConfirmed, err
			case errors.As(gone, new(netlink.LinkNotFoundError)):
				return Vanished, nil
			}
			return TakenDown, nil
		case all[i].Generation > r.Generation:
			return Replaced, nil
		case all[i].Trial == 0:
			return Confirmed, nil
		}
		r.Judging = all[i].Judging
		select {
		case <-ctx.Done():
			return NotConfirmed, ctx.Err()
		case <-time.After(min(interval, all[i].Trial)):
		}
	}
}
