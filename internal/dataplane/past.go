package dataplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/past"
	"levee/internal/dataplane/sets"
	"levee/internal/dataplane/store"
)

// Policies that came into force are kept on the disk by the name of their interface. A reboot that
// finds no valid policy takes the last one (`levee up --or-last`), and `levee rollback` brings one
// back. A policy on trial is kept once it is confirmed; that of `on error` is not kept. See
// docs/explanation/decisions/0090-past.md.

// pastDir is the directory of an interface's policies, in library().
const pastDir = "policies"

// errNoPast is wrapped where no past policies are kept.
var errNoPast = errors.New("past policies are kept in the network namespace of process 1 alone, " +
	"as interfaces have the same names in others; LEVEE_LIB names a directory for another one")

func pastOf(steps store.Steps, dev string) (past.Store, error) {
	if os.Getenv(sets.LibEnv) == "" && !firstNetns() {
		return past.Store{}, errNoPast
	}
	dir, err := sets.Library()
	return past.Store{Dir: filepath.Join(dir, dev, pastDir),
		Step: func(name string) error { return steps.Step("past: " + name) }}, err
}

// firstNetns reports whether this thread is in the network namespace of process 1. Files of /proc
// about a namespace tell by their numbers, and need no right, as its own handle does. Where process
// 1 is hidden this one is taken for a service, which are in that namespace.
func firstNetns() bool {
	number := func(path string) uint64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	first := number("/proc/1/net/dev")
	return first == 0 || first == number("/proc/thread-self/net/dev")
}

// remember keeps the policy in force on an interface as the newest of those that were.
func remember(s *store.Store, key, dev string, g *store.Description) {
	err := func() error {
		at, err := pastOf(s.Steps, dev)
		if errors.Is(err, errNoPast) {
			return nil
		}
		if err != nil {
			return err
		}
		files, err := s.SetFiles(key, g)
		if err != nil {
			return err
		}
		return at.Add(past.Policy{Path: g.Policy, Names: g.Names, Since: g.Since, Source: g.Source,
			Files: files})
	}()
	if err != nil {
		s.Note("%s is in force on %s, but could not be written to the disk (%v): after a reboot "+
			"nothing but its file has it, and `levee rollback` does not know it", g.Policy, dev,
			err)
	}
}

// tried notes that a policy is on trial on an interface. Where nobody confirms it, nothing that
// begins by itself puts it in force (Unconfirmed).
func tried(s *store.Store, dev string, g *store.Description) {
	at, err := pastOf(s.Steps, dev)
	if errors.Is(err, errNoPast) {
		return
	}
	if err == nil {
		err = at.Try(g.Source)
	}
	if err != nil {
		s.Note("%s is on trial on %s, which could not be written to the disk (%v): where its file "+
			"is what a boot reads, that puts it in force although nobody has confirmed it",
			g.Policy, dev, err)
	}
}

// Unconfirmed reports whether a policy with this text was on trial on interfaces of a name, and was
// neither confirmed nor put in force without a trial since.
func Unconfirmed(dev string, source []byte) (is bool, err error) {
	at, err := pastOf(nil, dev)
	if errors.Is(err, errNoPast) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = store.OnHost(func() (err error) {
		is, err = at.Unconfirmed(source)
		return err
	})
	return is, err
}

// Past lists the policies that were in force on interfaces of a name, the newest first, and says
// which could not be read. An interface that was renamed has those of its name before until one
// comes into force under the new one.
func Past(ctx context.Context, dev string) (all []past.Policy, notes []string, err error) {
	names := []string{dev}
	running, _, err := inspect.Status(ctx, false)
	for i := range running {
		if running[i].Dev == dev && running[i].PutOn != dev {
			names = append(names, running[i].PutOn)
		}
	}
	for _, name := range names {
		at, perr := pastOf(nil, name)
		if perr != nil {
			return nil, notes, perr
		}
		var damaged []past.Damaged
		if perr = store.OnHost(func() (err error) {
			all, damaged, err = at.List()
			return err
		}); perr != nil {
			return nil, notes, perr
		}
		for _, d := range damaged {
			notes = append(notes, fmt.Sprintf("a policy that was in force is lost: %s: %v", d.Path,
				d.Err))
		}
		if len(all) > 0 {
			break
		}
	}
	return all, notes, err
}
