package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// loan is a note of a setting of this machine that a process has changed for a while, made before
// it is changed. Whoever has changed it holds a lock on the note: a note without one is of a
// process that was killed, and the next sweep settles it.
type loan struct {
	JIT     string `json:",omitempty"` // the path of the compiler's switch
	Session string `json:",omitempty"` // the scheduler's name of a session
	Was     string // what the switch was, or the priority that the session had

	file *os.File
}

const loanSuffix = ".loan"

// errLent is that another process has the setting.
var errLent = errors.New("another process has changed it")

// lend notes a setting under a name. It returns errLent where another process has it. What a killed
// one has left is settled before, so that was is asked when that is done.
func lend(name string, was func(*loan) error) (*loan, error) {
	unlock, err := lock(context.Background()) // a sweep has each note for a moment
	if err != nil {
		return nil, err
	}
	defer unlock()
	f, err := locked(filepath.Join(dir(), name+loanSuffix), os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := settle(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l := &loan{file: f}
	if err := was(l); err != nil {
		l.over()
		return nil, err
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = f.WriteAt(text, 0)
	}
	if err != nil {
		l.over()
		return nil, err
	}
	return l, nil
}

// over ends a loan whose setting is back.
func (l *loan) over() { _ = errors.Join(os.Remove(l.file.Name()), l.file.Close()) }

// locked opens a note that no living process has.
func locked(path string, create int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|create, 0o600)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLent
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		opened, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if named, err := os.Stat(path); err == nil && os.SameFile(opened, named) {
			return f, nil
		}
		f.Close() // the one before has removed it meanwhile
	}
}

// settle gives back what a note of a killed process tells, and empties the note.
func settle(f *os.File) error {
	text, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	var l loan
	if json.Unmarshal(text, &l) == nil { // else it was killed before it changed anything
		if l.JIT != "" {
			err = jitBack(l.JIT, l.Was)
		}
		if l.Session != "" && raisedBy(l.Session, f.Name()) == nil {
			err = errors.Join(err, sessionBack(l.Session, l.Was))
		}
	}
	if err != nil {
		return err
	}
	return f.Truncate(0)
}

// settleAll settles the loans of killed processes.
func settleAll() (err error) {
	paths, _ := filepath.Glob(filepath.Join(dir(), "*"+loanSuffix)) // the pattern is right
	for _, path := range paths {
		f, wrong := locked(path, 0)
		if errors.Is(wrong, errLent) || errors.Is(wrong, fs.ErrNotExist) {
			continue
		}
		if wrong == nil {
			if wrong = settle(f); wrong == nil {
				wrong = os.Remove(path)
			}
			f.Close()
		}
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("giving back what a killed process has changed, "+
				"by %s: %w", path, wrong))
		}
	}
	return err
}
