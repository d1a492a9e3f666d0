// Package hosttest gives tests that read the machine network namespaces to read. Only tests may
// import it.
package hosttest

import (
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
)

// Enter makes a network namespace and moves the test there. It skips a test that may not.
func Enter(t testing.TB) netns.NsHandle {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	// Never unlocked: the thread ends with the test, so that no other goroutine gets it.
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}
