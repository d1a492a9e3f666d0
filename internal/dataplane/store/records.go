package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// Record describes a keeper: its process, its network namespace, the names of interfaces that it
// watches, and its policy.
type Record struct {
	Netns  uint64   `json:"netns"`
	Names  []string `json:"names"`
	Policy string   `json:"policy"`
	Pid    int      `json:"pid"`
	// Starting says that the keeper has not yet put the policy in force on what there is.
	Starting bool `json:"starting,omitempty"`
}

func (r *Record) ID() string {
	sum := sha256.Sum256([]byte(strings.Join(r.Names, "/")))
	return fmt.Sprintf("%d-%x", r.Netns, sum[:8])
}

// Fits reports whether the record is about an interface.
func (r *Record) Fits(netns uint64, dev string) bool {
	return r.Netns == netns && slices.ContainsFunc(r.Names,
		func(name string) bool { return policy.Fits(name, dev) })
}

func (s *Store) Keeps(elem ...string) string {
	return filepath.Join(append([]string{s.Dir, "keep"}, elem...)...)
}

// Records lists what is bound to names. A record that is damaged is removed, with a note, except
// for readers: its keeper ends, and what it kept stays in force.
func (s *Store) Records() ([]Record, error) {
	files, err := filepath.Glob(s.Keeps("*.json"))
	if err != nil {
		return nil, err
	}
	var all []Record
	for _, file := range files {
		var r Record
		err := ReadJSON(file, &r)
		if errors.Is(err, ErrDamaged) && !s.ReadOnly {
			s.Note("a record of what is kept for which interfaces is removed; `levee up --keep` "+
				"keeps a policy again: %v", err)
			lock := strings.TrimSuffix(file, ".json") + ".lock"
			if err := errors.Join(os.Remove(file), os.RemoveAll(lock)); err != nil {
				return nil, kernel.Refuse(err, "remove what is kept")
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// Kept reports whether an interface is to come back with its policy.
func (s *Store) Kept(netns uint64, dev string) bool {
	all, err := s.Records()
	fits := func(r Record) bool { return r.Fits(netns, dev) }
	return err == nil && slices.ContainsFunc(all, fits)
}

// LockRecord takes the lock of a record's keeper; the error is EWOULDBLOCK while one lives.
func (s *Store) LockRecord(r *Record) (*os.File, error) {
	f, err := os.OpenFile(s.Keeps(r.ID()+".lock"), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, LockMode)
	if err != nil {
		return nil, kernel.Refuse(err, "open the lock of what is kept")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
