package tap

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// sole is the lock by which one process at a time uses an attachment. It goes with the process; its
// file goes with the attachment. Only who may change policies can open the file: anybody could take
// the name of an abstract socket, and hold it against root.
type sole struct{ f *os.File }

// errTaken is that another process has it.
var errTaken = errors.New("taken by another process")

// take takes the lock of that name, unless it is held already.
func (o *sole) take(s *store.Store, key, name string) error {
	path := s.State(key, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, store.LockMode)
	if errors.Is(err, unix.EROFS) {
		f, err = os.Open(path)
	}
	if err != nil {
		return kernel.Refuse(err, "open the lock of %s", name)
	}
	if o.holds(f) {
		return f.Close()
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if f.Close(); errors.Is(err, unix.EWOULDBLOCK) {
			return errTaken
		}
		return kernel.Refuse(err, "lock %s", path)
	}
	o.Release() // of an attachment that has gone
	o.f = f
	return nil
}

// holds reports whether the lock that is held is on that file.
func (o *sole) holds(f *os.File) bool {
	if o.f == nil {
		return false
	}
	held, err := o.f.Stat()
	if err != nil {
		return false
	}
	there, err := f.Stat()
	return err == nil && os.SameFile(held, there)
}

func (o *sole) Release() {
	if o.f != nil {
		o.f.Close()
		o.f = nil
	}
}
