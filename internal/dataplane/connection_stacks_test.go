package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/packet"
)

// stackTalks lists conversations of Linux hosts off the main line of RFC 9293. This machine has the
// policy and serves port 9000.
var stackTalks = []struct {
	name string
	talk func(*testing.T, *testNet, *wire) error
}{
	{"a client here that crashed connects from the same port", func(t *testing.T, n *testNet,
		_ *wire) error {
		return crash(t, n.here, fmt.Sprint("198.51.100.1:", n.port()), n.peer, "198.51.100.2:9001")
	}},
	{"a client that crashed connects from the same port", func(t *testing.T, n *testNet,
		_ *wire) error {
		return crash(t, n.peer, fmt.Sprint("198.51.100.2:", n.port()), n.here, "198.51.100.1:9000")
	}},
	{"both sides open", openBoth},
	{"both sides open, and the peer lets no SYN in", openOne},
	{"the first ACK of a client with TCP Fast Open is lost", fastOpen},
}

// TestStacksTalkAsWithConntrack: what stacks do where handshakes meet old connections, cross, or
// carry data is let through, by levee as by conntrack.
func TestStacksTalkAsWithConntrack(t *testing.T) {
	const server = `pass established
pass tcp syn port 9000
default drop
`
	const netfilter = `table inet reference {
	chain in {
		type filter hook input priority 0; policy drop;
		ct state established,related accept
		tcp dport 9000 tcp flags & (syn | ack) == syn accept
	}
}
`
	n := newTestNet(t)
	w := newWire(t, n)
	all := func(t *testing.T, dropped func() uint64) {
		for _, c := range stackTalks {
			begin, before := time.Now(), dropped()
			if err := c.talk(t, n, w); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			t.Logf("%s: %v", c.name, time.Since(begin).Round(10*time.Millisecond))
			w.carries(nil)
			if n := dropped() - before; n > 0 { // stacks may send again, and hide it
				t.Errorf("%s: %d packets were dropped", c.name, n)
			}
		}
	}
	n.run(t, "netfilter", func(t *testing.T) {
		run(t, n.here, netfilter, "nft", "-f", "-")
		all(t, func() uint64 { return 0 })
		run(t, n.here, "", "nft", "delete", "table", "inet", "reference")
	})
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if err := bringPolicyAt(t, "wr0", mode, server, 0); err != nil {
				t.Fatal(err)
			}
			all(t, func() uint64 {
				a := status(t)
				return packets(&a, "default")
			})
			if _, err := Down(t.Context(), "wr0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// withOptions sets options of a socket before it is bound or connected.
func withOptions(options ...func(fd int) error) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		ctl := c.Control(func(fd uintptr) {
			for _, set := range options {
				err = errors.Join(err, set(int(fd)))
			}
		})
		return errors.Join(err, ctl)
	}
}

func option(level, name, value int) func(int) error {
	return func(fd int) error { return unix.SetsockoptInt(fd, level, name, value) }
}

// listens has a listener in a namespace until the test ends, with options of its socket.
func listens(t *testing.T, ns netns.NsHandle, at string, options ...func(int) error) net.Listener {
	t.Helper()
	l := in(t, ns, func() (net.Listener, error) {
		config := net.ListenConfig{Control: withOptions(options...)}
		return config.Listen(t.Context(), "tcp", at)
	})
	t.Cleanup(func() { l.Close() })
	return l
}

// dialFrom connects from a port of its own.
func dialFrom(t *testing.T, ns netns.NsHandle, from, to string) (net.Conn, error) {
	type dialed struct {
		net.Conn
		err error
	}
	d := in(t, ns, func() (dialed, error) {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from)),
			Control: withOptions(option(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))}
		ctx, cancel := context.WithTimeout(t.Context(), hangs)
		defer cancel()
		c, err := dialer.DialContext(ctx, "tcp", to)
		return dialed{c, err}, nil
	})
	return d.Conn, d.err
}

// port is one that no connection of the test has had.
func (n *testNet) port() uint16 {
	n.ports++
	return 40000 + n.ports
}

// crash connects, forgets the connection without a word, and connects from the same port again.
func crash(t *testing.T, client netns.NsHandle, from string, server netns.NsHandle,
	to string) error {
	l := listens(t, server, to)
	defer l.Close()
	c, err := dialFrom(t, client, from, to)
	if err != nil {
		return fmt.Errorf("before the crash: %w", err)
	}
	old, err := l.Accept()
	if err != nil {
		return err
	}
	defer old.Close()
	raw := must2(c.(*net.TCPConn).SyscallConn())
	if err := withOptions(option(unix.SOL_TCP, unix.TCP_REPAIR, 1))("", "", raw); err != nil {
		return err
	}
	c.Close()
	again, err := dialFrom(t, client, from, to)
	if err != nil {
		return err
	}
	defer again.Close()
	accepted, err := l.Accept()
	if err != nil {
		return err
	}
	defer accepted.Close()
	return errors.Join(tells(again, accepted), tells(accepted, again))
}

// openBoth has both sides connect to each other at once. Segments of one kind wait for each other:
// the SYNs cross, and the SYN-ACKs do, if there is one each way.
func openBoth(t *testing.T, n *testNet, w *wire) error {
	first := make(chan bool)
	waits := map[uint8][]byte{}
	var began sync.Once
	w.carries(func(to heading, frame []byte) bool {
		p, _, ok := segmentOf(frame)
		if !ok || p.Flags&packet.SYN == 0 {
			return true
		}
		if to == outwards {
			waits[p.Flags] = bytes.Clone(frame)
			began.Do(func() { close(first) })
			return false
		}
		if mine := waits[p.Flags]; mine != nil {
			w.put(outwards, mine)
		}
		return true
	})
	return connectBoth(t, n, first)
}

// openOne is as openBoth, and the peer has a filter that no SYN passes: it begins, and it alone.
func openOne(t *testing.T, n *testNet, w *wire) error {
	first := make(chan bool)
	var began sync.Once
	w.carries(func(to heading, frame []byte) bool {
		p, _, ok := segmentOf(frame)
		if !ok || to != outwards || p.Flags != packet.SYN {
			return true
		}
		began.Do(func() { close(first) })
		return false
	})
	return connectBoth(t, n, first)
}

// connectBoth connects both sides to each other, the peer once a SYN of this side has been seen.
func connectBoth(t *testing.T, n *testNet, first <-chan bool) error {
	port := n.port()
	here, peer := fmt.Sprint("198.51.100.1:", port), fmt.Sprint("198.51.100.2:", port)
	var ours, theirs net.Conn
	var ourErr, theirErr error
	var both sync.WaitGroup
	failed := make(chan bool)
	both.Go(func() {
		if ours, ourErr = dialFrom(t, n.here, here, peer); ourErr != nil {
			close(failed)
		}
	})
	select {
	case <-first:
	case <-failed:
	}
	theirs, theirErr = dialFrom(t, n.peer, peer, here)
	both.Wait()
	if err := errors.Join(ourErr, theirErr); err != nil {
		return err
	}
	defer ours.Close()
	defer theirs.Close()
	return errors.Join(tells(ours, theirs), tells(theirs, ours))
}

// fastOpen has a client ask with its SYN, and the server answer with its SYN-ACK. The first segment
// of the client that carries nothing is lost: those behind it acknowledge data.
func fastOpen(t *testing.T, n *testNet, w *wire) error {
	const answer = 200_000
	for _, ns := range []netns.NsHandle{n.here, n.peer} {
		run(t, ns, "", "sysctl", "-qw", "net.ipv4.tcp_fastopen=3")
	}
	l := listens(t, n.here, "198.51.100.1:9000", option(unix.SOL_TCP, unix.TCP_FASTOPEN, 16))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.ReadFull(c, make([]byte, 5)); err == nil {
					_, _ = c.Write(make([]byte, answer))
					_, _ = io.Copy(io.Discard, c) // until the client has it all
				}
			}()
		}
	}()
	ask := func() error {
		c := in(t, n.peer, func() (net.Conn, error) {
			fast := option(unix.SOL_TCP, unix.TCP_FASTOPEN_CONNECT, 1)
			d := net.Dialer{Control: withOptions(fast)}
			return d.DialContext(t.Context(), "tcp", "198.51.100.1:9000")
		})
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(hangs))
		if _, err := io.WriteString(c, "hello"); err != nil {
			return err
		}
		if got, err := io.CopyN(io.Discard, c, answer); err != nil {
			return fmt.Errorf("%d of %d bytes: %w", got, answer, err)
		}
		return nil
	}
	if err := ask(); err != nil { // it gets a cookie
		return fmt.Errorf("the first time: %w", err)
	}
	fast, lost, port := false, 0, uint16(0)
	w.carries(func(to heading, frame []byte) bool {
		p, carries, ok := segmentOf(frame)
		if !ok || to != inwards {
			return true
		}
		if p.Flags == packet.SYN {
			fast, port = carries > 0, p.SrcPort
		}
		// The connection before may end meanwhile, and acknowledges that.
		if p.Flags == packet.ACK && carries == 0 && p.SrcPort == port {
			lost++
			return lost != 1
		}
		return true
	})
	err := ask()
	w.carries(nil)
	if !fast || lost == 0 {
		return errors.Join(err, fmt.Errorf("a SYN with data: %v, ACKs: %d", fast, lost))
	}
	return err
}
