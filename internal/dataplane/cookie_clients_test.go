package dataplane

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

const cookiePolicy = `cookie tcp port 9000 as "cookie"
pass arp
pass icmp6
pass tcp port 9000 as "service"
default drop
`

// hearXDP gives an interface an XDP program that passes everything: so its other end may send it
// what XDP answers.
func hearXDP(t testing.TB, ns netns.NsHandle, dev string) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, attach.XdpPass), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	l := in(t, ns, func() (link.Link, error) {
		d, err := netlink.LinkByName(dev)
		if err != nil {
			return nil, err
		}
		return link.AttachXDP(link.XDPOptions{Interface: d.Attrs().Index, Program: p,
			Flags: link.XDPDriverMode})
	})
	t.Cleanup(func() { l.Close() })
}

// enableIPv6 lets both ends of the veth have IPv6.
func enableIPv6(t testing.TB, n *testNet) {
	t.Helper()
	for ns, dev := range map[netns.NsHandle]string{n.here: "lv0", n.peer: "lv1"} {
		in(t, ns, func() (any, error) {
			return nil, os.WriteFile("/proc/sys/net/ipv6/conf/"+dev+"/disable_ipv6", []byte("0"), 0)
		})
	}
}

// giveBothFamilies gives both ends of the veth an address of each family.
func giveBothFamilies(t testing.TB, n *testNet) {
	t.Helper()
	enableIPv6(t, n)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	giveAddress(t, n.here, "lv0", "2001:db8:7::1/64")
	giveAddress(t, n.peer, "lv1", "198.51.100.2/24")
	giveAddress(t, n.peer, "lv1", "2001:db8:7::2/64")
}

var listenerIdle = flag.Duration("idle", 0, "cookies: how long a listener has seen nobody before")

// TestCookieClients: clients of Linux get through, whatever their stack offers and whatever
// listens, however long nobody came, and an answer of the host is not needed for their second
// connection.
func TestCookieClients(t *testing.T) {
	n := newTestNet(t)
	enableIPv6(t, n)
	giveAddress(t, n.here, "lv0", "198.51.100.1/24")
	giveAddress(t, n.here, "lv0", "2001:db8:7::1/64")
	for i := range 12 {
		giveAddress(t, n.peer, "lv1", fmt.Sprintf("198.51.100.%d/24", 10+i))
		giveAddress(t, n.peer, "lv1", fmt.Sprintf("2001:db8:7::%d/64", 10+i))
	}
	for _, multipath := range []bool{false, true} {
		var lc net.ListenConfig
		lc.SetMultipathTCP(multipath)
		t.Run(fmt.Sprintf("multipath %v", multipath), func(t *testing.T) {
			for network, addr := range map[string]string{"tcp4": "0.0.0.0:9000",
				"tcp6": "[::]:9000"} {
				l := in(t, n.here, func() (net.Listener, error) {
					return lc.Listen(context.Background(), network, addr)
				})
				serveEcho(l)
				defer l.Close()
			}
			await.Pass(*listenerIdle, "nobody asks the listener")
			cookieClients(t, n)
		})
	}
}

func cookieClients(t *testing.T, n *testNet) {
	modes := []store.Mode{store.XDPNative, store.XDPGeneric}
	if kernel.TCX.Check() == nil {
		modes = append(modes, store.TCX)
	} else {
		modes = append(modes, store.Clsact)
	}
	for _, mode := range modes {
		n.run(t, string(mode), func(t *testing.T) {
			if mode == store.XDPNative {
				hearXDP(t, n.peer, "lv1")
			}
			if err := bringPolicyAt(t, "lv0", mode, cookiePolicy, 0); err != nil {
				t.Fatal(err)
			}
			for i, stack := range []string{"", "ipv4/tcp_timestamps=0", "ipv4/tcp_window_scaling=0",
				"ipv4/tcp_sack=0", "ipv4/tcp_ecn=1", "ipv4/tcp_fastopen=3", "multipath"} {
				name, value, set := strings.Cut(stack, "=")
				if set {
					before := in(t, n.peer, func() ([]byte, error) {
						return os.ReadFile("/proc/sys/net/" + name)
					})
					write := func(v string) {
						in(t, n.peer, func() (any, error) {
							return nil, os.WriteFile("/proc/sys/net/"+name, []byte(v), 0)
						})
					}
					write(value)
					defer write(string(before))
				}
				for _, family := range []string{"198.51.100.%d", "2001:db8:7::%d"} {
					from := fmt.Sprintf(family, 10+i)
					to := fmt.Sprintf(family, 1)
					for try := range 2 {
						again, err := connects(t, n.peer, from, net.JoinHostPort(to, "9000"),
							stack == "multipath")
						if err != nil || again != againBy[try] {
							t.Errorf("%s, connection %d from %s: %d SYNs were sent again, %v",
								stack, try, from, again, err)
						}
					}
				}
			}
			c := status(t).Cookies
			if c == nil || c.Sources != 14 || c.Proven != 14 || len(c.Answering) != 1 {
				t.Errorf("status says %+v", c)
			}
			if _, err := Down(context.Background(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// againBy counts the SYNs that a client of Linux sends again: that which proves it is followed by
// another one at once, and one that is proven has nothing to send again. One more would be a second
// for it, or more; counted, as a busy machine may take a second by itself.
var againBy = [2]uint32{1, 0}

// connects connects and has a line come back. It says how often the client sent its SYN again.
func connects(t testing.TB, ns netns.NsHandle, from, to string, multipath bool) (again uint32,
	err error) {
	t.Helper()
	d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	d.SetMultipathTCP(multipath)
	type dialed struct {
		net.Conn
		err error
	}
	c := in(t, ns, func() (dialed, error) {
		c, err := d.Dial("tcp", to)
		return dialed{c, err}, nil
	})
	if c.err != nil {
		return 0, c.err
	}
	defer c.Close()
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	if err := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			again = info.Total_retrans
		}
	}); err != nil {
		return 0, err
	}
	if err != nil {
		return 0, err
	}
	return again, speaks(c)
}
