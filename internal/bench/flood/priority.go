package flood

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
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
	lower, err := RaiseSession()
	if err != nil {
		return err
	}
	defer lower()
	return f()
}

// autogroup is where the scheduler shows the group that this process's session forms (sched(7)).
// Where there are such groups, the priority of a thread counts within its own only, and every other
// session gets as much of the generator's core as the generator.
const autogroup = "/proc/self/autogroup"

// RaiseSession gives the session of this process the priority of the receiving thread, until lower.
func RaiseSession() (lower func(), err error) {
	text, err := os.ReadFile(autogroup)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil // a kernel without
	}
	if err != nil {
		return nil, fmt.Errorf("reading the priority of this session: %w", err)
	}
	_, nice, ok := strings.Cut(strings.TrimSpace(string(text)), " nice ")
	if !ok {
		return func() {}, nil // of the root group, whose threads count each for itself
	}
	if err := os.WriteFile(autogroup, fmt.Append(nil, receiverNice), 0); err != nil {
		return nil, fmt.Errorf("raising the priority of this session: %w", err)
	}
	return func() { _ = os.WriteFile(autogroup, []byte(nice), 0) }, nil // was allowed before
}
