package lab

import (
	"context"
	"time"
)

// Sleep waits for a time, or until ctx ends, which is an error.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
