package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// autogroup is where the scheduler shows the group that this process's session forms (sched(7)).
// Where there are such groups, the priority of a thread counts within its own only, and every other
// session gets as much of the generator's core as the generator.
const autogroup = "/proc/self/autogroup"

// RaiseSession gives the session of this process a priority, until lower. The session of a process
// that is killed has its own again with the next lab or Sweep.
func RaiseSession(nice int) (lower func(), err error) {
	name, _, ok, err := session(autogroup)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !ok {
		return func() {}, nil // a kernel without, or the root group, whose threads count each
	}
	if err != nil {
		return nil, fmt.Errorf("reading the priority of this session: %w", err)
	}
	l, err := lend(strings.Trim(name, "/"), func(l *loan) (err error) {
		l.Session, l.Was, _, err = session(autogroup)
		return err
	})
	if errors.Is(err, errLent) {
		return func() {}, nil // whoever has raised it lowers it
	}
	if err != nil {
		return nil, fmt.Errorf("noting the priority of this session: %w", err)
	}
	if err := os.WriteFile(autogroup, fmt.Append(nil, nice), 0); err != nil {
		l.over()
		return nil, fmt.Errorf("raising the priority of this session: %w", err)
	}
	return func() {
		_ = os.WriteFile(autogroup, []byte(l.Was), 0) // was allowed before
		l.over()
	}, nil
}

// session reads the file of a process: "/autogroup-12 nice 0". It is not ok of the root group.
func session(path string) (name, nice string, ok bool, err error) {
	text, err := os.ReadFile(path)
	name, nice, ok = strings.Cut(strings.TrimSpace(string(text)), " nice ")
	return name, nice, ok, err
}

// sessionBack gives a session its priority back, by any of its processes. Where none is left, the
// session is gone.
func sessionBack(name, nice string) error {
	all, _ := filepath.Glob("/proc/[0-9]*/autogroup") // the pattern is right
	for _, path := range all {
		if of, _, ok, err := session(path); err != nil || !ok || of != name {
			continue
		}
		err := os.WriteFile(path, []byte(nice), 0)
		if !errors.Is(err, unix.ESRCH) && !errors.Is(err, fs.ErrNotExist) { // it ends, ask the next
			return err
		}
	}
	return nil
}
