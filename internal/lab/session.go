package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// autogroup is the file in which the scheduler shows the group that this process's session forms
// (sched(7)). Where there are such groups, the priority of a thread counts within its own only, and
// every other session gets as much of the generator's core as the generator.
const autogroup = "/proc/self/autogroup"

// RaiseSession gives the session of this process a priority, until lower. Of several that have
// raised it the last one lowers it. The session of a process that is killed has its own priority
// again with the next lab or Sweep.
func RaiseSession(nice int) (lower func(), err error) {
	name, _, ok, err := session(autogroup)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !ok {
		return func() {}, nil // a kernel without, or the root group, whose threads count each
	}
	if err != nil {
		return nil, fmt.Errorf("reading the priority of this session: %w", err)
	}
	l, err := raise(autogroup, nice)
	if err != nil {
		return nil, fmt.Errorf("raising the priority of the session %s: %w", name, err)
	}
	return func() { l.lower(autogroup) }, nil
}

// raise notes the priority of the session that a file shows, and gives it another.
func raise(path string, nice int) (*loan, error) {
	name, _, _, err := session(path)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%s-%d-%d", strings.Trim(name, "/"), os.Getpid(), serial.Add(1))
	l, err := lend(note, func(l *loan) (err error) {
		wrong := settleAll() // what who was killed has left
		if l.Session, l.Was, _, err = session(path); err != nil {
			return err
		}
		if of := raisedBy(l.Session, l.file.Name()); of != nil {
			l.Was = of.Was
		}
		return wrong
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, fmt.Append(nil, nice), 0); err != nil {
		l.over()
		return nil, err
	}
	return l, nil
}

// lower ends the loan, and gives the session its priority back, unless another process has raised
// it, too.
func (l *loan) lower(path string) {
	if unlock, err := lock(context.Background()); err == nil { // else both would be the last
		defer unlock()
	}
	if raisedBy(l.Session, l.file.Name()) == nil {
		_ = os.WriteFile(path, []byte(l.Was), 0) // was allowed before
	}
	l.over()
}

// raisedBy returns a note of a living process that has raised a session, besides one; nil if there
// is none. The caller holds the lock.
func raisedBy(session, besides string) *loan {
	paths, _ := filepath.Glob(filepath.Join(dir(), "*"+loanSuffix)) // the pattern is right
	for _, path := range paths {
		text, err := os.ReadFile(path)
		var l loan
		if path == besides || err != nil || json.Unmarshal(text, &l) != nil ||
			l.Session != session {
			continue
		}
		f, err := locked(path, 0)
		if errors.Is(err, errLent) {
			return &l
		}
		if err == nil {
			f.Close() // of a killed one
		}
	}
	return nil
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
