package dataplane

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// keepRecord is what is kept under names, by the process of a keeper.
type keepRecord struct {
	Netns  uint64   `json:"netns"`
	Names  []string `json:"names"`
	Policy string   `json:"policy"`
	Pid    int      `json:"pid"`
}

func (r *keepRecord) id() string {
	sum := sha256.Sum256([]byte(strings.Join(r.Names, "/")))
	return fmt.Sprintf("%d-%x", r.Netns, sum[:8])
}

// fits reports whether the record is about an interface.
func (r *keepRecord) fits(netns uint64, dev string) bool {
	return r.Netns == netns && slices.ContainsFunc(r.Names,
		func(name string) bool { return policy.Fits(name, dev) })
}

func (s *store) keeps(elem ...string) string {
	return filepath.Join(append([]string{s.dir, "keep"}, elem...)...)
}

// records lists what is bound to names.
func (s *store) records() ([]keepRecord, error) {
	files, err := filepath.Glob(s.keeps("*.json"))
	if err != nil {
		return nil, err
	}
	var all []keepRecord
	for _, file := range files {
		var r keepRecord
		if err := readJSON(file, &r); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// kept reports whether an interface is to come back with its policy.
func (s *store) kept(netns uint64, dev string) bool {
	all, err := s.records()
	fits := func(r keepRecord) bool { return r.fits(netns, dev) }
	return err == nil && slices.ContainsFunc(all, fits)
}

// lockRecord takes the lock of a record's keeper; the error is EWOULDBLOCK while one lives.
func (s *store) lockRecord(r *keepRecord) (*os.File, error) {
	f, err := os.OpenFile(s.keeps(r.id()+".lock"), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, lockMode)
	if err != nil {
		return nil, kernel.Refuse(err, "open the lock of what is kept")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
