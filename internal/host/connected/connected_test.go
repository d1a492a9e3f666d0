package connected

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
