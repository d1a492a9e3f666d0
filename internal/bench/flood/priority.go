package flood

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lab"
)

// receiverNice is the priority of the receiving thread, and of what measures it.
const receiverNice = -20

// generatorNice is below the measuring thread's, with which the generator shares its core.
const generatorNice = -15

// Pinned runs f on the generator's core, so that what this process does is never at the receiver's
// expense, and before what else runs on this machine.
func (l *Lab) Pinned(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return fmt.Errorf("reading the allowed cores: %w", err)
	}
	if err := kernel.RunOn(l.GeneratorCPU); err != nil {
		return err
	}
	defer func() { _ = unix.SchedSetaffinity(0, &old) }() // was allowed before
	prio, err := unix.Getpriority(unix.PRIO_PROCESS, 0)   // 20 - nice, of this thread
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, receiverNice)
	}
	if err != nil {
		return fmt.Errorf("raising the priority of the measuring thread: %w", err)
	}
	defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, 20-prio) }()
	lower, err := lab.RaiseSession(receiverNice)
	if err != nil {
		return err
	}
	defer lower()
	return f()
}
