package dataplane

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// writers is the lock of those who change the dynamic sets of one attachment. Its file grows by a
// byte whenever other maps may take the place of those that a writer has open.
type writers struct{ f *os.File }

func (s *store) openWriters(key string) (*writers, error) {
	f, err := os.OpenFile(s.state(key, "sets"), os.O_RDWR|os.O_CREATE, lockMode)
	if errors.Is(err, unix.EROFS) {
		f, err = os.Open(s.state(key, "sets"))
	}
	if err != nil {
		return nil, kernel.Refuse(err, "open the lock of dynamic sets")
	}
	return &writers{f}, nil
}

// lock waits for all other writers until ctx ends.
func (w *writers) lock(ctx context.Context) error {
	if err := flock(ctx, w.f); err != nil {
		return fmt.Errorf("wait for another change of the dynamic sets to finish: %w", err)
	}
	return nil
}

func (w *writers) unlock() { _ = unix.Flock(int(w.f.Fd()), unix.LOCK_UN) }

// serial tells generations of open maps apart; it is negative when the attachment is gone.
func (w *writers) serial() int64 {
	var st unix.Stat_t
	if unix.Fstat(int(w.f.Fd()), &st) != nil || st.Nlink == 0 {
		return -1
	}
	return st.Size
}

// bump makes every writer open its maps anew. It comes before they change: whoever is killed in
// between has only cost the writers a look.
func (w *writers) bump() error {
	if err := w.f.Truncate(w.serial() + 1); err != nil {
		return kernel.Refuse(err, "tell writers of dynamic sets of the change")
	}
	return nil
}

// exclude keeps writers out of an attachment's sets until the file is closed; nil when it has none
// and next has none either.
func (s *store) exclude(key string, next bool) (*os.File, error) {
	_, err := os.Stat(s.state(key, "sets"))
	if err != nil && !next {
		return nil, nil
	}
	if err := makeDirs(s.state(key)); err != nil {
		return nil, kernel.Refuse(err, "create the runtime directory")
	}
	w, err := s.openWriters(key)
	if err != nil {
		return nil, err
	}
	if err = w.lock(s.ctx); err == nil {
		err = w.bump()
	}
	if err != nil {
		return nil, errors.Join(err, w.f.Close())
	}
	return w.f, nil
}
