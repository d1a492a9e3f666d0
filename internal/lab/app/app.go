// Package app is an application that takes UDP datagrams as fast as it can and throws them away:
// the last place where a flood can be dropped, and the witness of what every earlier place lets
// through.
//
// In go a host of a lab, a port and a core, out comes the count of datagrams. It receives by
// recvmmsg(2), as a fast service does, with one thread and one socket a family. The package must
// never answer a packet or listen outside a lab, and leaves no thread and no socket behind once
// Close has returned.
package app

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lab"
)

const (
	batch    = 64   // datagrams a system call
	datagram = 2048 // room for each, in bytes; an MTU of 1500 fits
	// queueBytes is the receive buffer of a socket. A live frame counts as the page that it lies
	// in, so this holds some 8,000 datagrams: what arrives in the few milliseconds between two
	// turns of the application on a core that it shares with the receiver.
	queueBytes = 32 << 20
	// wakeUp bounds how long a thread sleeps without looking whether it should end.
	wakeUp = 50 * time.Millisecond
)

// Application is a running application.
type Application struct {
	port    uint16
	workers []*worker
	stop    atomic.Bool
	done    sync.WaitGroup
}

// worker is one thread with its socket.
type worker struct {
	family   int // unix.AF_INET or AF_INET6
	fd       int
	tid      int
	received atomic.Uint64
	err      atomic.Pointer[error]
}

// Listen starts the application on all addresses of a host, pinned to a core (negative for any).
// first lets it go before all else on that core, where the kernel allows it (SCHED_FIFO): a full
// queue then never makes the receiver's work vain. A kernel without IPv6 gets IPv4 alone.
func Listen(h *lab.Host, port uint16, cpu int, first bool) (*Application, error) {
	a := &Application{port: port}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		w := &worker{family: family, fd: -1}
		err := h.Do(func() (err error) {
			w.fd, err = open(family, port)
			return err
		})
		if errors.Is(err, unix.EAFNOSUPPORT) && family == unix.AF_INET6 {
			continue
		}
		if err == nil {
			started := make(chan error, 1)
			a.done.Add(1)
			go a.work(w, cpu, first, started)
			a.workers = append(a.workers, w)
			err = <-started
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("starting the application on UDP port %d: %w", port,
				err), a.Close())
		}
	}
	return a, nil
}

// open makes a socket in the calling thread's namespace.
func open(family int, port uint16) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var to unix.Sockaddr = &unix.SockaddrInet4{Port: int(port)}
	if family == unix.AF_INET6 {
		to = &unix.SockaddrInet6{Port: int(port)}
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		// the kernel doubles it
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queueBytes/2)
	}
	if err == nil {
		t := unix.NsecToTimeval(int64(wakeUp))
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t)
	}
	if err == nil {
		err = unix.Bind(fd, to)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// mmsghdr is struct mmsghdr of include/linux/socket.h.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// work receives until the application is closed.
func (a *Application) work(w *worker, cpu int, first bool, started chan<- error) {
	defer a.done.Done()
	// never unlocked: the thread, its core and its priority end with the goroutine
	runtime.LockOSThread()
	w.tid = unix.Gettid()
	if err := settle(cpu, first); err != nil {
		started <- err
		return
	}
	started <- nil
	var (
		room [batch][datagram]byte
		iov  [batch]unix.Iovec
		msgs [batch]mmsghdr
		pin  runtime.Pinner
	)
	defer pin.Unpin()
	pin.Pin(&room)
	pin.Pin(&iov)
	for i := range msgs {
		iov[i].Base = &room[i][0]
		iov[i].SetLen(datagram)
		msgs[i].hdr.Iov = &iov[i]
		msgs[i].hdr.SetIovlen(1)
	}
	for !a.stop.Load() {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(w.fd),
			uintptr(unsafe.Pointer(&msgs[0])), batch, unix.MSG_WAITFORONE, 0, 0)
		switch errno {
		case 0:
			w.received.Add(uint64(n))
		case unix.EAGAIN, unix.EINTR,
			unix.ECONNREFUSED: // nothing came; a signal; an ICMP error about nothing it sent
		default:
			err := fmt.Errorf("receiving: %w", errno)
			w.err.Store(&err)
			return
		}
	}
}

// settle pins the calling thread and sets its priority.
func settle(cpu int, first bool) error {
	if cpu >= 0 {
		if err := kernel.RunOn(cpu); err != nil {
			return err
		}
	}
	if !first {
		return nil
	}
	// Without a budget for real-time priority the application is one program of many.
	if err := kernel.GoFirst(0, 1); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("setting its priority: %w", err)
	}
	return nil
}

// Port returns the port that it listens on.
func (a *Application) Port() uint16 { return a.port }

// Received returns the number of datagrams that the application has taken, both families together.
// An error says why it takes no more.
func (a *Application) Received() (uint64, error) {
	var sum uint64
	for _, w := range a.workers {
		if err := w.err.Load(); err != nil {
			return 0, fmt.Errorf("the application ended: %w", *err)
		}
		sum += w.received.Load()
	}
	return sum, nil
}

// Lost returns the number of datagrams for which the sockets had no room, both families together
// (SK_MEMINFO_DROPS of include/uapi/linux/sock_diag.h).
func (a *Application) Lost() (uint64, error) {
	var sum uint64
	for _, w := range a.workers {
		var memory [9]uint32 // what the kernel tells of a socket's memory; drops are the last
		size := uint32(unsafe.Sizeof(memory))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(w.fd), unix.SOL_SOCKET,
			unix.SO_MEMINFO, uintptr(unsafe.Pointer(&memory)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			return 0, fmt.Errorf("asking a socket of the application what it has lost: %w", errno)
		}
		sum += uint64(memory[8])
	}
	return sum, nil
}

// Threads returns the ids of the application's threads.
func (a *Application) Threads() []int {
	var tids []int
	for _, w := range a.workers {
		tids = append(tids, w.tid)
	}
	return tids
}

// Attach puts an eBPF program of type socket filter in front of all sockets; Detach takes it off.
func (a *Application) Attach(program int) error {
	for _, w := range a.workers {
		if err := unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF,
			program); err != nil {
			return errors.Join(fmt.Errorf("attaching a filter to the application's socket: %w",
				err), a.Detach())
		}
	}
	return nil
}

// Detach takes the filter off; where there is none, nothing happens.
func (a *Application) Detach() error {
	var errs []error
	for _, w := range a.workers {
		if err := unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_DETACH_BPF, 0); err != nil &&
			!errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("taking the filter off the application's socket: %w",
				err))
		}
	}
	return errors.Join(errs...)
}

// Close ends the application. It returns once its threads are gone, and may be called again.
func (a *Application) Close() error {
	a.stop.Store(true)
	a.done.Wait()
	var errs []error
	for _, w := range a.workers {
		if w.fd >= 0 {
			errs = append(errs, unix.Close(w.fd))
			w.fd = -1
		}
	}
	return errors.Join(errs...)
}
