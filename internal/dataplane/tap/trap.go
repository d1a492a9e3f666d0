package tap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/divert"
	"levee/internal/filter/state"
	"levee/internal/kernel"
)

// Trap has what policies divert reach listening sockets. It is used by one goroutine.
type Trap struct {
	dev     string
	sockets [divert.Sockets]net.Listener // nil: none
	stamp   string                       // of the runtime directory, when it was last looked at
	joined  bool
}

// NewTrap makes a trap of sockets for what the policy on dev diverts, which may come later. They
// have to be of TCP alone, without its multipath.
func NewTrap(dev string, listeners []net.Listener) (*Trap, error) {
	if _, err := attach.FindDevice(dev); err != nil {
		return nil, err
	}
	t := &Trap{dev: dev}
	for _, l := range listeners {
		four, six, err := familiesOf(l)
		if err != nil {
			return nil, err
		}
		if four && t.sockets[divert.IPv4] == nil {
			t.sockets[divert.IPv4] = l
		}
		if six && t.sockets[divert.IPv6] == nil {
			t.sockets[divert.IPv6] = l
		}
	}
	return t, nil
}

// Lacks names an IP family without a socket that takes its connections, "" if both have one.
func (t *Trap) Lacks() string {
	for i, family := range map[uint32]string{divert.IPv4: "IPv4", divert.IPv6: "IPv6"} {
		if t.sockets[i] == nil {
			return ", but for " + family + ": that is refused"
		}
	}
	return ""
}

// familiesOf says from which families a socket takes connections.
func familiesOf(l net.Listener) (four, six bool, err error) {
	err = control(l, func(fd int) error {
		domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil || domain == unix.AF_INET {
			four = true
			return err
		}
		only, err := unix.GetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
		four, six = only == 0, true
		return err
	})
	return four, six, err
}

// control calls f with the descriptor of a socket.
func control(l net.Listener, f func(fd int) error) error {
	socket, ok := l.(syscall.Conn)
	if !ok {
		return fmt.Errorf("what listens at %s is no socket", l.Addr())
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("ask for the socket at %s: %w", l.Addr(), err)
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	if err := errors.Join(err, inner); err != nil {
		return fmt.Errorf("ask for the socket at %s: %w", l.Addr(), err)
	}
	return nil
}

// Join puts the sockets where the policy in force looks for them, if they are not there: that is
// once for as long as the interface has policies, from the first that diverts on. It says whether
// they are there. Where nothing has changed since the last call, it asks the kernel for nothing.
func (t *Trap) Join(ctx context.Context) (joined bool, err error) {
	stamp, err := generation.RunStamp()
	if err != nil || stamp == t.stamp {
		return t.joined, err
	}
	t.joined = false
	err = generation.TransactOn(ctx, t.dev, func(s *store.Store, a *attach.Attachment) error {
		m, err := openHolding(s, a, state.HoldsTrap)
		if err != nil || m == nil {
			return err
		}
		defer m.Close()
		for i, l := range t.sockets {
			if l == nil {
				continue
			}
			if err := putSocket(m, uint32(i), l); err != nil {
				return fmt.Errorf("take what the policy on %s diverts: %w", t.dev,
					ofAll(s, a, err))
			}
		}
		t.joined = true
		return nil
	})
	if errors.As(err, new(*generation.NotAttachedError)) {
		err = nil
	}
	if err != nil {
		return false, err
	}
	t.stamp = stamp
	return t.joined, nil
}

// ofAll says, where another trap is in the way, that the interface has its trap with others.
func ofAll(s *store.Store, a *attach.Attachment, err error) error {
	if !errors.Is(err, errTrapThere) {
		return err
	}
	all, herr := generation.Having(s, a.Together(), "")
	if herr != nil || len(all) < 2 {
		return err
	}
	var names []string
	for _, other := range all {
		names = append(names, "--divert "+other.Current().Dev)
		other.Close()
	}
	slices.Sort(names)
	return fmt.Errorf("%w. Interfaces of one policy have one trap: %s of one command is for them",
		err, strings.Join(names, " "))
}

// putSocket puts a socket in its place, if it is not there.
func putSocket(m *ebpf.Map, place uint32, l net.Listener) error {
	return control(l, func(fd int) error {
		own, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		if err != nil {
			return fmt.Errorf("ask for its cookie: %w", err)
		}
		there, err := socketIn(m, place)
		switch {
		case err != nil:
			return err
		case there == own:
			return nil
		case there != 0:
			return errTrapThere
		}
		if err := m.Update(place, uint64(fd), ebpf.UpdateNoExist); err != nil {
			return kernel.Refuse(err, "put the socket into the map of the trap")
		}
		return nil
	})
}

// socketIn returns the cookie of the socket in a place, 0 if there is none.
func socketIn(m *ebpf.Map, place uint32) (cookie uint64, err error) {
	err = m.Lookup(place, &cookie)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, kernel.Refuse(err, "look for the sockets of a trap")
	}
	return cookie, nil
}

// errTrapThere is of a place that the socket of another trap has.
var errTrapThere = errors.New("another trap has it: end that one first")
