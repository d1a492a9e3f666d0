// Package await waits in tests. A test of function waits for an event, not for a time: a busy
// machine needs longer than any short time, and an idle one less. Only tests may import it.
//
// Where all that a test waits for lies in this process, testing/synctest is better: its clock goes
// on when nothing is left to do.
package await

import (
	"testing"
	"time"
)

// hangs is for what never comes: however busy a machine is, nothing that comes takes as long.
const hangs = 3 * time.Minute

// Until asks again and again, more and more seldom, whether something is so. It gives up, and
// returns false, only where that hangs.
func Until(is func() bool) bool {
	const first, last = time.Millisecond / 4, 16 * time.Millisecond
	end := time.Now().Add(hangs)
	for pause := first; !is(); pause = min(2*pause, last) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// True waits until something is so. A test for which it never is ends with what that was.
func True(t testing.TB, what string, is func() bool) {
	t.Helper()
	if !Until(is) {
		t.Fatalf("waited in vain: %s", what)
	}
}

// OK waits until a check finds nothing wrong. A test for which it never does ends with what it
// found last.
func OK(t testing.TB, check func() error) {
	t.Helper()
	var err error
	if !Until(func() bool { err = check(); return err == nil }) {
		t.Fatalf("waited in vain: %v", err)
	}
}

// Pass lets a time pass, for what no event tells: a lease that the kernel's clock has to end, or a
// pace that is itself what is tested. The reason says which. More time than that must do no harm.
func Pass(d time.Duration, reason string) {
	if reason == "" {
		panic("a test sleeps without a reason")
	}
	time.Sleep(d)
}
