package generation

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// endedByHand is the deadline, in jiffies, of a trial that RollBack ends: long ago; 0 is never.
const endedByHand = 1

// RollBack ends the trial of a generation on dev at once, as its deadline would: the policy that
// was confirmed last is back in force, or nothing is attached if there was none. It is an error if
// that generation is not on trial (any more). notes tells what was done.
func RollBack(ctx context.Context, dev string, generation int) (notes []string, err error) {
	return NotedOn(ctx, dev, func(s *store.Store, a *attach.Attachment) error {
		g := a.OnTrial()
		if g == nil || g.Generation != generation {
			return fmt.Errorf("no trial to end: that policy is not on trial on %s any more", dev)
		}
		return EndNow(s, a, g)
	})
}

// EndNow ends what a generation's deadline would end. From its first step on that is past its
// deadline, for this command as for any other that finishes what this one may leave.
func EndNow(s *store.Store, a *attach.Attachment, g *store.Description) error {
	g.Deadline, g.ConfirmBy = endedByHand, time.Now()
	if err := store.WriteJSON(s.DescriptionPath(a.Key, g.Generation), g); err != nil {
		return err
	}
	after, err := Settle(s, a.Key)
	if after != nil {
		after.Close()
	}
	return err
}

// endLive is the note on live rules that have ended by themselves.
func endLive(s *store.Store, a *attach.Attachment, g *store.Description) error {
	if g.Deadline != endedByHand {
		s.Note("%s: the agent has not renewed its live rules (%d) in time; %s is in force without "+
			"them", g.Dev, len(g.Live), filepath.Base(g.Policy))
	}
	if a.Generations[g.Fallback] == nil {
		return kernel.Refuse(nil, "the policy without live rules on %s is gone", g.Dev)
	}
	return Give(s, a, g.Fallback)
}
