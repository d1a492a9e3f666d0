package way

import (
	"context"
	"testing"
	"time"
)

func TestACommandThatHangsIsKilledWithItsChildren(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begun := time.Now()
	err := Execute(ctx, "/bin/sh", []string{"-c", "sleep 600 & wait"}, nil)
	if err == nil || time.Since(begun) > 5*time.Minute {
		t.Errorf("%v after %s", err, time.Since(begun))
	}
}

// TestACommandThatLeavesAChildHasDoneItsWork: it was run three times more, as the child still had
// its standard error.
func TestACommandThatLeavesAChildHasDoneItsWork(t *testing.T) {
	err := Execute(t.Context(), "/bin/sh", []string{"-c", "sleep 5 & exit 0"}, nil)
	if err != nil {
		t.Error(err)
	}
	if err := Execute(t.Context(), "/bin/sh", []string{"-c", "sleep 5 & exit 1"}, nil); err == nil {
		t.Error("a command that failed has not")
	}
}
