package echo

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lab"
)

// Service sends each probe back.
type Service struct {
	fd     int
	stop   atomic.Bool
	thread sync.WaitGroup
	failed atomic.Pointer[error]
}

// Serve starts it at an IPv4 address of a host, on a core.
func Serve(h *lab.Host, at netip.Addr, cpu int) (s *Service, err error) {
	err = h.Do(func() (err error) {
		s, err = ServeHere(netip.AddrPortFrom(at, Port), cpu)
		return err
	})
	return s, err
}

// ServeHere is Serve at any port, in the network namespace of the calling thread.
func ServeHere(at netip.AddrPort, cpu int) (s *Service, err error) {
	s = new(Service)
	if s.fd, err = socket(at); err != nil {
		return nil, fmt.Errorf("opening the socket of the echo service: %w", err)
	}
	s.thread.Go(func() { s.answer(cpu) })
	return s, nil
}

// Err returns the reason that it ended, nil while it serves.
func (s *Service) Err() error {
	if err := s.failed.Load(); err != nil {
		return fmt.Errorf("the echo service ended: %w", *err)
	}
	return nil
}

// Close ends it.
func (s *Service) Close() error {
	s.stop.Store(true)
	s.thread.Wait()
	return unix.Close(s.fd)
}

func (s *Service) answer(cpu int) {
	runtime.LockOSThread() // never unlocked: the thread and its core end with the goroutine
	if err := errors.Join(kernel.RunOn(cpu),
		unix.Setpriority(unix.PRIO_PROCESS, 0, serviceNice)); err != nil {
		s.failed.Store(&err)
		return
	}
	buf := make([]byte, 2*size)
	for !s.stop.Load() {
		n, from, err := unix.Recvfrom(s.fd, buf, 0)
		switch {
		case again(err):
		case err != nil:
			s.failed.Store(&err)
			return
		case n == size:
			_ = unix.Sendto(s.fd, buf[:n], 0, from) // no room is a lost probe
		}
	}
}
