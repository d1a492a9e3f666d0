package peer

import (
	"context"
	"fmt"

	"levee/internal/dataplane/inspect"
	"levee/internal/host/session"
	"levee/internal/lab"
)

// Guard refuses an interface of the calling thread's network namespace that is not free for a
// measurement: besides those that lab.Free refuses, one by which somebody works on the machine, and
// one with a policy of levee's. Errors match lab.ErrInUse.
func Guard(ctx context.Context, device string) error {
	if _, err := lab.Free(device); err != nil {
		return err
	}
	policies, _, err := inspect.Status(ctx, false)
	if err != nil {
		return err
	}
	for _, p := range policies {
		if p.Dev == device {
			return fmt.Errorf("%s is %w: a policy is in force on it; take it down with `levee "+
				"down --dev %[1]s`", device, lab.ErrInUse)
		}
	}
	sessions, err := session.On(device)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		return fmt.Errorf("%s is %w: %s from %s comes by it; measure over another interface",
			device, lab.ErrInUse, s.What, s.Remote)
	}
	return nil
}
