package kernel

import (
	"context"
	"testing"
	"time"
)

// TestASleepEndsWithItsContext: one that the kernel held could not be interrupted, and Ctrl-C
// waited for the next probe.
func TestASleepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	awake := make(chan bool)
	go func() { awake <- SleepUntil(ctx, Monotonic()+time.Hour) }()
	cancel()
	if <-awake {
		t.Error("the hour is over")
	}
	if !SleepUntil(t.Context(), Monotonic()+time.Microsecond) {
		t.Error("a sleep was interrupted")
	}
	if SleepUntil(ctx, 0) {
		t.Error("an ended context goes on")
	}
}
