package connected

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"levee/internal/await"
)

// TestEach: of TCP and UDP, of both families and of one within the other, connected sockets are
// told with both ends, and others are not.
func TestEach(t *testing.T) {
	at := func(a net.Addr) netip.AddrPort {
		p := netip.MustParseAddrPort(a.String())
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	type pair struct {
		proto         uint8
		local, remote netip.AddrPort
	}
	want, unwanted := map[pair]string{}, map[netip.AddrPort]string{}
	for _, hosts := range [][2]string{{"127.0.0.1", "127.0.0.1"}, {"::1", "::1"},
		{"::", "127.0.0.1"}} {
		l, err := net.Listen("tcp", net.JoinHostPort(hosts[0], "0"))
		if err != nil {
			t.Skipf("a network with IPv6 is not at hand: %v", err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		client, err := net.Dial("tcp", net.JoinHostPort(hosts[1], port))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		for _, c := range []net.Conn{client, server} {
			want[pair{unix.IPPROTO_TCP, at(c.LocalAddr()), at(c.RemoteAddr())}] = hosts[0]
		}
		open, err := net.ListenPacket("udp", net.JoinHostPort(hosts[1], "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		asks, err := net.Dial("udp", open.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer asks.Close()
		want[pair{unix.IPPROTO_UDP, at(asks.LocalAddr()), at(asks.RemoteAddr())}] = hosts[0]
		unwanted[at(open.LocalAddr())] = hosts[0]
	}
	told := map[pair]bool{}
	if err := Each(time.Minute, func(s Socket) {
		told[pair{s.Proto, s.Local, s.Remote}] = true
		if why, bad := unwanted[s.Local]; bad && s.Proto == unix.IPPROTO_UDP {
			t.Errorf("a socket that is not connected, at %s, was told: %+v", why, s)
		}
		if s.Closing {
			if _, ours := want[pair{s.Proto, s.Local, s.Remote}]; ours {
				t.Errorf("%+v closes", s)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	for p, host := range want {
		if !told[p] {
			t.Errorf("%+v, by %s, was not told", p, host)
		}
	}
}

// TestHandshakesAndWhatHasEnded: a request that waits for the end of its handshake is no
// connection, since whoever forges a SYN makes one, nor is a socket that listens, nor what has
// ended.
func TestHandshakesAndWhatHasEnded(t *testing.T) {
	waits := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { // the ACK of a client alone ends no handshake
			const seconds = 60
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, seconds)
		})
		return errors.Join(err, failed)
	}}
	listens, err := waits.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listens.Close()
	half, err := net.Dial("tcp", listens.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ended.Close(), server.Close()); err != nil {
		t.Fatal(err)
	}
	port := func(a net.Addr) uint16 { return netip.MustParseAddrPort(a.String()).Port() }
	told := func() (ends [][2]uint16) {
		if err := Each(time.Minute, func(s Socket) {
			if s.Proto == unix.IPPROTO_TCP {
				ends = append(ends, [2]uint16{s.Local.Port(), s.Remote.Port()})
			}
		}); err != nil {
			t.Fatal(err)
		}
		return ends
	}
	client, service := port(half.LocalAddr()), port(listens.Addr())
	all := told()
	if !slices.Contains(all, [2]uint16{client, service}) {
		t.Error("the client's end, whose handshake is done, was not told")
	}
	if slices.Contains(all, [2]uint16{service, client}) {
		t.Error("a request that waits for the end of its handshake was told")
	}
	if slices.ContainsFunc(all, func(e [2]uint16) bool { return e[1] == 0 }) {
		t.Error("a socket that listens was told")
	}
	await.True(t, "that what has ended is told no more", func() bool {
		return !slices.Contains(told(), [2]uint16{port(ended.LocalAddr()), port(l.Addr())})
	})
}

// TestDamagedMessages: what is shorter than a message, or has no other end, is no socket.
func TestDamagedMessages(t *testing.T) {
	m := make([]byte, messageBytes)
	m[0] = unix.AF_INET
	for n := range m {
		if _, ok := parse(m[:n], unix.IPPROTO_TCP); ok {
			t.Fatalf("%d bytes are a socket", n)
		}
	}
	if s, ok := parse(m, unix.IPPROTO_UDP); ok {
		t.Errorf("%+v has no other end", s)
	}
	m[7] = 9
	if _, ok := parse(m, unix.IPPROTO_UDP); !ok {
		t.Error("a whole message is no socket")
	}
}
