package generators

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"levee/internal/lab"
)

// niceness of the receiving thread, and of this process with the generators that it starts: what
// else runs on the machine shall not be what is measured.
const niceness = -20

// first puts the receiving thread and all threads of this process before others, until lower.
// Threads and processes to come inherit it.
func first(napi int) (lower func(), err error) {
	session, err := lab.RaiseSession(niceness)
	if err != nil {
		return nil, err
	}
	if napi > 0 {
		err = unix.Setpriority(unix.PRIO_PROCESS, napi, niceness)
	}
	lower = func() {
		_ = renice(0)
		session()
	}
	if err = errors.Join(err, renice(niceness)); err != nil {
		lower()
		return nil, fmt.Errorf("raising the priority of the measurement: %w", err)
	}
	return lower, nil
}

// renice sets the priority of all threads of this process; again, for those that came meanwhile.
func renice(nice int) error {
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range tasks {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, id, nice); err != nil &&
				!errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}
