package echo

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
	"levee/internal/lab"
)

// Probes says which probes are sent.
type Probes struct {
	From, To netip.Addr // IPv4
	Port     uint16     // of the service; 0: Port
	// ICMP has the kernel of To answer, in the place of a service.
	ICMP bool
	CPU  int    // the core that sends and receives
	ID   uint64 // tells them from those of other runs
	// At is the time of each, in ns from the beginning, ascending.
	At []int64
	// Begin is the beginning, of the monotonic clock; 0: as soon as can be.
	Begin time.Duration
	// Patience is the longest wait for the last ones.
	Patience time.Duration
}

// Run sends probes from a host, and returns the round trip of each in ns, Lost for those that did
// not return.
func (p Probes) Run(ctx context.Context, h *lab.Host) ([]int64, error) {
	fd := -1
	err := h.Do(func() (err error) {
		if p.ICMP {
			fd, err = pinging(p.From)
		} else {
			fd, err = socket(netip.AddrPortFrom(p.From, FromPort))
		}
		if err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrInet4{Port: int(cmp.Or(p.Port, Port)),
			Addr: p.To.As4()})
	})
	if fd >= 0 {
		defer unix.Close(fd)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the socket of the probes: %w", err)
	}
	r := &roundTrips{Probes: p, fd: fd, took: make([]int64, len(p.At))}
	for i := range r.took {
		r.took[i] = Lost
	}
	r.begin = int64(p.Begin)
	if p.Begin == 0 {
		r.begin = int64(kernel.Monotonic() + 5*time.Millisecond) // for both threads to be there
	}
	done := make(chan error, 1)
	go func() { done <- r.receive() }()
	sent := make(chan error, 1)
	go func() { sent <- r.send(ctx) }()
	err = <-sent
	if err == nil {
		err = lab.Sleep(ctx, p.Patience)
	}
	r.ended.Store(true)
	return r.took, errors.Join(err, <-done)
}

type roundTrips struct {
	Probes
	fd    int
	begin int64
	took  []int64 // each written by the receiving thread only
	ended atomic.Bool
}

func (r *roundTrips) send(ctx context.Context) error {
	if err := realTime(r.CPU); err != nil {
		return err
	}
	head := 0
	if r.ICMP {
		head = icmpHeader
	}
	buf := make([]byte, head+size)
	binary.NativeEndian.PutUint64(buf[head:], r.ID)
	for i, at := range r.At {
		if !kernel.SleepUntil(ctx, time.Duration(r.begin+at)) {
			return ctx.Err()
		}
		binary.NativeEndian.PutUint64(buf[head+8:], uint64(i))
		if r.ICMP {
			asRequest(buf, uint16(r.ID), uint16(i))
		}
		if _, err := unix.Write(r.fd, buf); err != nil && !again(err) && err != unix.ENOBUFS {
			return fmt.Errorf("sending a probe: %w", err)
		}
	}
	return nil
}

func (r *roundTrips) receive() error {
	if err := realTime(r.CPU); err != nil {
		return err
	}
	room := make([]byte, ipHeaderMost+icmpHeader+2*size)
	for !r.ended.Load() {
		n, err := unix.Read(r.fd, room)
		now := int64(kernel.Monotonic())
		if again(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receiving a probe: %w", err)
		}
		buf := room[:max(n, 0)]
		if r.ICMP {
			buf = answered(buf)
		}
		if len(buf) != size {
			continue
		}
		i := binary.NativeEndian.Uint64(buf[8:])
		if binary.NativeEndian.Uint64(buf) != r.ID || i >= uint64(len(r.took)) ||
			r.took[i] != Lost {
			continue // of a round before, or a stranger's
		}
		r.took[i] = max(now-r.begin-r.At[i], 0)
	}
	return nil
}

// realTime gives the calling goroutine a thread of its own on a core, before all programs there.
func realTime(cpu int) error {
	// never unlocked: the thread, its core and its priority end with the goroutine
	runtime.LockOSThread()
	if err := kernel.RunOn(cpu); err != nil {
		return err
	}
	return First(0)
}
