// Package echo times round trips of UDP datagrams to a service that sends each back (RFC 862), or
// of echo requests that a kernel answers (RFC 792).
//
// In go an address and times, out comes the round trip of each datagram, counted from the time at
// which it should have been sent (an open loop). Else a system that stands still would delay one
// probe, and hide those that would have followed (Tene, "coordinated omission").
//
// What probes goes first on the core that it shares with a generator, so that what is timed is the
// other end. The service comes after what receives there and before what else runs on the machine.
// The package must never listen or send outside a lab.
package echo

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

const (
	// Port is the UDP port of the service, FromPort the source port of probes.
	Port     = 7
	FromPort = 40007

	size = 16 // bytes: a number that tells runs apart, and the number of the probe
	// pollEvery bounds how long a thread sleeps without looking whether it should end.
	pollEvery = 50 * time.Millisecond

	probePriority = 2
	topNice       = -20 // where there is no budget for real-time priority
	serviceNice   = -15
)

// Lost stands for a probe that did not return.
const Lost = -1

// First gives a thread a place before all programs. A control group may have no real-time budget;
// the thread then has the highest priority of the others.
func First(tid int) error {
	err := kernel.GoFirst(tid, probePriority)
	if errors.Is(err, unix.EPERM) {
		err = unix.Setpriority(unix.PRIO_PROCESS, tid, topNice)
	}
	if err != nil {
		return fmt.Errorf("raising the priority of the probes: %w", err)
	}
	return nil
}

// socket makes one in the calling thread's namespace.
func socket(at netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	t := unix.NsecToTimeval(int64(pollEvery))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t),
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}))
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// again tells an error of a receiving call after which it is called again: nothing came; a signal;
// an ICMP error about a datagram that was sent.
func again(err error) bool {
	return err == unix.EAGAIN || err == unix.EINTR || err == unix.ECONNREFUSED
}
