package dataplane

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/packet/template"
)

const eachWay = `out count udp from 203.0.113.1 uid 1000 as "raw"
out count udp port 2000 uid 1000 as "packet socket"
out count udp port 4789 uid 1000 as "tunnel"
out limit udp port 2001 rate 10/d burst 8 as "above the limit"
out count udp port 2001 as "within the limit"
out count udp port 2002 uid 1000 as "of a user"
out count icmp type 3/3 local as "refused"
out count icmp type echo-reply local as "echo"
out count tcp from port 2003 flags ack/syn,rst,fin,ack local as "segments"
out count icmp uid 0-65535 as "somebody's ICMP"
out count tcp uid 0-65535 as "somebody's segments"
out drop udp port 2002 as "dropped"
essential off
default pass
`

// TestEachWayToSendIsJudged: live tests of what leaves had datagrams and connections of processes.
// Here are raw and packet sockets, datagrams that the kernel cuts later, a tunnel, and what the
// kernel says itself: errors, replies, and for a connection that has ended.
func TestEachWayToSendIsJudged(t *testing.T) {
	n := newSenders(t)
	n.inPeer(t, func() { giveWays(t, "lv1", "192.0.2.2/24") })
	here, err := netlink.LinkByName("lv0")
	if err != nil {
		t.Fatal(err)
	}
	tunnels := vxlan(t, here)
	for _, way := range egressWays(t) {
		n.run(t, string(way), func(t *testing.T) {
			n.counted = map[string]uint64{}
			if _, err := Up(t.Context(), UpOptions{Dev: "lv0", PolicyPath: "out.levee",
				Source: []byte(eachWay), egressMode: way}, compileText(eachWay)); err != nil {
				t.Fatal(err)
			}
			to := &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 9}}
			raw := wordsOf(t, "ipv4 udp from 203.0.113.1 to 192.0.2.9 port 2000")
			n.sendBy(t, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, raw, to)
			n.counts(t, "a raw socket", "raw 1, packet socket 1")
			n.sendBy(t, unix.AF_PACKET, unix.SOCK_DGRAM, 0,
				wordsOf(t, "ipv4 udp from 192.0.2.1 to 192.0.2.9 port 2000"),
				&unix.SockaddrLinklayer{Protocol: 8, Ifindex: here.Attrs().Index})
			n.counts(t, "a packet socket", "packet socket 1")
			if tunnels {
				n.sendBy(t, unix.AF_INET, unix.SOCK_DGRAM, 0, []byte("x"),
					&unix.SockaddrInet4{Port: 25, Addr: [4]byte{10, 7, 0, 9}})
				n.counts(t, "a tunnel", "tunnel 1")
			}
			for _, want := range []string{"within the limit 1", "above the limit 1"} {
				sendAsOne(t, 0, "192.0.2.9:2001", 100, strings.Repeat("x", 600))
				n.counts(t, "six datagrams at once", want)
			}
			n.sendBy(t, unix.AF_INET, unix.SOCK_DGRAM, 0, []byte("x"),
				&unix.SockaddrInet4{Port: 2002, Addr: [4]byte{192, 0, 2, 9}})
			n.counts(t, "a datagram that is dropped", "of a user 1, dropped 1")
			n.inPeer(t, func() {
				if c, err := net.Dial("udp4", "192.0.2.1:2004"); err != nil {
					t.Error(err)
				} else if _, err := c.Write([]byte("x")); err != nil {
					t.Error(err)
				} else {
					c.Close()
				}
			})
			wantPackets(t, "refused", 1)
			n.arrives(t, here, "icmp type 8")
			wantPackets(t, "echo", 1)
			n.counts(t, "the kernel's own", "refused 1, echo 1")
			n.ended(t)
			segments := func() (n, users uint64) {
				a := status0(t)
				return packets(&a, "segments"), packets(&a, "somebody's segments")
			}
			await.True(t, "the last segment is acknowledged", func() bool {
				n, _ := segments()
				return n > 0
			})
			before, users := segments()
			n.arrives(t, here, "tcp from port 2005 port 2003 seq 1")
			await.True(t, "a segment behind the end is answered", func() bool {
				n, _ := segments()
				return n > before
			})
			if _, got := segments(); got != users {
				t.Error("what is said for a connection that has ended has a user")
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// vxlan makes a tunnel over an interface, and a neighbour 10.7.0.9 in it; false where the kernel
// has no such tunnels.
func vxlan(t *testing.T, over netlink.Link) bool {
	t.Helper()
	err := netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "vx0"}, VxlanId: 5,
		Group: net.IPv4(192, 0, 2, 9), Port: 4789, VtepDevIndex: over.Attrs().Index})
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Log("vxlan is not at hand")
		return false
	} else if err != nil {
		t.Fatal(err)
	}
	giveWays(t, "vx0", "10.7.0.1/24")
	if err := netlink.NeighAdd(&netlink.Neigh{LinkIndex: index(t, "vx0"), IP: net.IPv4(10, 7, 0, 9),
		State:        netlink.NUD_PERMANENT,
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 7, 9}}); err != nil {
		t.Fatal(err)
	}
	return true
}

// wordsOf returns the IP packet that words of a test describe.
func wordsOf(t *testing.T, words string) []byte {
	t.Helper()
	p, ds := template.One("a packet", words)
	if p == nil {
		t.Fatal(ds.Err())
	}
	f, err := p.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f[14:]
}

// sendBy sends by a socket of the user 1000.
func (n *senders) sendBy(t *testing.T, family, kind, proto int, b []byte, to unix.Sockaddr) {
	t.Helper()
	unix.SetfsuidRetUid(1000)
	s, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
	unix.SetfsuidRetUid(0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	if err := unix.Sendto(s, b, 0, to); err != nil {
		t.Fatal(err)
	}
}

// arrives has a packet come from the peer's address.
func (n *senders) arrives(t *testing.T, here netlink.Link, words string) {
	t.Helper()
	b := wordsOf(t, "ipv4 from 192.0.2.2 to 192.0.2.1 "+words)
	n.sendFrame(t, append(append([]byte(nil), append(here.Attrs().HardwareAddr,
		2, 0, 0, 0, 0, 2, 8, 0)...), b...))
}

// ended makes a connection from port 2005 of the peer to port 2003, which this side ends first.
func (n *senders) ended(t *testing.T) {
	t.Helper()
	var how net.ListenConfig
	how.SetMultipathTCP(false)
	l, err := how.Listen(t.Context(), "tcp4", "192.0.2.1:2003")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var c net.Conn
	n.inPeer(t, func() {
		var d net.Dialer
		d.LocalAddr = &net.TCPAddr{Port: 2005}
		c, err = d.Dial("tcp4", "192.0.2.1:2003")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	served, err := l.Accept()
	if err == nil {
		err = served.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
}

// TestAUserSentBySocketsOfTheKernel: AF_SMC, which is for everybody, hands what a process sends to
// a socket of the kernel, of TCP where the other end knows nothing else. No rule for its user held.
func TestAUserSentBySocketsOfTheKernel(t *testing.T) {
	n := newSenders(t)
	n.inPeer(t, func() { giveWays(t, "lv1", "192.0.2.2/24") })
	l := in(t, n.peer, func() (net.Listener, error) { return net.Listen("tcp4", "192.0.2.2:25") })
	defer l.Close()
	n.bring(t, `out count tcp uid 1000 as "user"
out count tcp not uid 1000 as "others"
out count tcp service "web.service" as "service"
out count tcp as "all"
default pass
`)
	n.enter(t, "system.slice/web.service")
	unix.SetfsuidRetUid(1000)
	s, err := unix.Socket(unix.AF_SMC, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	unix.SetfsuidRetUid(0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skip("AF_SMC is not at hand")
	} else if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	err = unix.Connect(s, &unix.SockaddrInet4{Port: 25, Addr: [4]byte{192, 0, 2, 2}})
	if err == nil {
		_, err = unix.Write(s, []byte("HELO"))
	}
	if err != nil {
		t.Fatal(err)
	}
	a := status0(t)
	all := packets(&a, "all")
	if all < 3 {
		t.Errorf("%d packets", all)
	}
	for _, what := range []string{"user", "service"} {
		if got := packets(&a, what); got != all {
			t.Errorf("%d of %d packets are of the %s", got, all, what)
		}
	}
	if got := packets(&a, "others"); got > 0 {
		t.Errorf("%d of %d packets are of others", got, all)
	}
}
