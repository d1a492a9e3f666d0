package await

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatHoldsIsNotWaitedFor: a helper that sleeps first, or to its end, is a sleep itself.
func TestWhatHoldsIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, n := time.Now(), 0
		True(t, "at once", func() bool { return true })
		OK(t, func() error { return nil })
		if d := time.Since(begun); d != 0 {
			t.Errorf("what held was waited for %v", d)
		}
		OK(t, func() error {
			if n++; n < 10 {
				return errors.New("not yet")
			}
			return nil
		})
		if d := time.Since(begun); n != 10 || d > 100*time.Millisecond {
			t.Errorf("asked %d times in %v", n, d)
		}
	})
}

// TestOnlyAHangIsGivenUp: limits of seconds failed on a machine that was busy.
func TestOnlyAHangIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if Until(func() bool { return false }) {
			t.Error("it said that what never was is")
		}
		if d := time.Since(begun); d < time.Minute || d > 10*time.Minute {
			t.Errorf("given up after %v", d)
		}
	})
}
