package store

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// Writers is the lock of those who change the dynamic sets of one attachment. Its file grows by a
// byte whenever other maps may take the place of those that a writer has open.
type Writers struct{ F *os.File }

func (s *Store) OpenWriters(key string) (*Writers, error) {
	f, err := os.OpenFile(s.State(key, "sets"), os.O_RDWR|os.O_CREATE, LockMode)
	if errors.Is(err, unix.EROFS) {
		f, err = os.Open(s.State(key, "sets"))
	}
	if err != nil {
		return nil, kernel.Refuse(err, "open the lock of dynamic sets")
	}
	return &Writers{f}, nil
}

// Lock waits for all other writers until ctx ends.
func (w *Writers) Lock(ctx context.Context) error {
	if err := Flock(ctx, w.F); err != nil {
		return fmt.Errorf("wait for another change of the dynamic sets to finish: %w", err)
	}
	return nil
}

func (w *Writers) Unlock() { _ = unix.Flock(int(w.F.Fd()), unix.LOCK_UN) }

// Serial tells generations of open maps apart; it is negative when the attachment is gone.
func (w *Writers) Serial() int64 {
	var st unix.Stat_t
	if unix.Fstat(int(w.F.Fd()), &st) != nil || st.Nlink == 0 {
		return -1
	}
	return st.Size
}

// Bump makes every writer open its maps anew. It comes before they change: a kill in between only
// makes writers look once more.
func (w *Writers) Bump() error {
	if err := w.F.Truncate(w.Serial() + 1); err != nil {
		return kernel.Refuse(err, "tell writers of dynamic sets of the change")
	}
	return nil
}

// Exclude keeps writers out of an attachment's sets until the returned file is closed. The file is
// nil if the attachment has no sets and its next generation (next) has none either.
func (s *Store) Exclude(key string, next bool) (*os.File, error) {
	_, err := os.Stat(s.State(key, "sets"))
	if err != nil && !next {
		return nil, nil
	}
	if err := MakeDirs(s.State(key)); err != nil {
		return nil, kernel.Refuse(err, "create the runtime directory")
	}
	w, err := s.OpenWriters(key)
	if err != nil {
		return nil, err
	}
	if err = w.Lock(s.Ctx); err == nil {
		err = w.Bump()
	}
	if err != nil {
		return nil, errors.Join(err, w.F.Close())
	}
	return w.F, nil
}
