package session

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"levee/internal/host/hosttest"
)

// nets are three network namespaces in a row: far, here, which forwards, and inner. This thread is
// in here.
type nets struct{ far, here, inner netns.NsHandle }

func newNets(t *testing.T) *nets {
	t.Helper()
	n := &nets{far: hosttest.Enter(t), inner: hosttest.Enter(t), here: hosttest.Enter(t)}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// in runs f in a namespace.
func (n *nets) in(t *testing.T, ns netns.NsHandle, f func()) {
	t.Helper()
	if err := netns.Set(ns); err != nil {
		t.Fatal(err)
	}
	f()
	if err := netns.Set(n.here); err != nil {
		t.Fatal(err)
	}
}

func add(t *testing.T, l netlink.Link, name string, addrs ...string) netlink.Link {
	t.Helper()
	l.Attrs().Name = name
	if err := netlink.LinkAdd(l); err != nil {
		t.Fatal(err)
	}
	return set(t, name, addrs...)
}

func set(t *testing.T, name string, addrs ...string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err == nil {
			err = netlink.AddrAdd(l, addr)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
	return l
}

func veth(peer string, ns netns.NsHandle) netlink.Link {
	return &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: peer,
		PeerNamespace: netlink.NsFd(ns)}
}

func route(t *testing.T, via string) {
	t.Helper()
	if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(via)}); err != nil {
		t.Fatal(err)
	}
}

// connect makes a connection from far to this process in here.
func (n *nets) connect(t *testing.T, to string) {
	t.Helper()
	l, err := net.Listen("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	n.dial(t, to)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
}

func (n *nets) dial(t *testing.T, to string) {
	t.Helper()
	n.in(t, n.far, func() {
		c, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	})
}

// only is the one session on dev.
func only(t *testing.T, dev string) Session {
	t.Helper()
	all, err := On(dev)
	if err != nil || len(all) != 1 {
		t.Fatalf("on %s: %+v, %v; want one session", dev, all, err)
	}
	return all[0]
}

func macOf(t *testing.T, name string) string {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().HardwareAddr.String()
}

// TestASessionOnMacvlanArrivesBelow: on the device that has the policy, with the addresses that its
// packets have there, and to whoever owns the port of SSH.
func TestASessionOnMacvlanArrivesBelow(t *testing.T) {
	n := newNets(t)
	add(t, veth("eth0", n.far), "eth0")
	var far string
	n.in(t, n.far, func() { set(t, "eth0", "192.0.2.7/24"); far = macOf(t, "eth0") })
	parent, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	la := netlink.NewLinkAttrs()
	la.ParentIndex = parent.Attrs().Index
	add(t, &netlink.Macvlan{LinkAttrs: la, Mode: netlink.MACVLAN_MODE_BRIDGE}, "mac0",
		"192.0.2.1/24")
	n.connect(t, "192.0.2.1:22")
	s := only(t, "eth0")
	if s.Local.String() != "192.0.2.1:22" || s.What != sshSession || s.MTU != 1500 ||
		s.SrcMAC.String() != far || s.DstMAC.String() != macOf(t, "mac0") ||
		s.Neighbour.String() != "192.0.2.7" {
		t.Errorf("%+v", s)
	}
}

// TestASessionBehindAGateway has the gateway's Ethernet address and needs the gateway.
func TestASessionBehindAGateway(t *testing.T) {
	n := newNets(t)
	add(t, veth("eth0", n.far), "eth0")
	set(t, "lo")
	var far string
	n.in(t, n.far, func() {
		set(t, "eth0", "192.0.2.7/24")
		set(t, "lo", "203.0.113.9/32")
		far = macOf(t, "eth0")
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		_, to, _ := net.ParseCIDR("198.51.100.0/24")
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: to,
			Gw: net.ParseIP("192.0.2.1"), Src: net.ParseIP("203.0.113.9")}); err != nil {
			t.Fatal(err)
		}
	})
	set(t, "eth0", "192.0.2.1/24", "198.51.100.1/32")
	route(t, "192.0.2.7")
	n.connect(t, "198.51.100.1:22")
	s := only(t, "eth0")
	if s.Remote.Addr().String() != "203.0.113.9" || s.SrcMAC.String() != far ||
		s.DstMAC.String() != macOf(t, "eth0") || s.Neighbour.String() != "192.0.2.7" {
		t.Errorf("%+v", s)
	}
	neighbour := &netlink.Neigh{IP: net.ParseIP("192.0.2.7"), State: netlink.NUD_PERMANENT,
		HardwareAddr: s.SrcMAC}
	l, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	neighbour.LinkIndex = l.Attrs().Index
	if err := netlink.NeighSet(neighbour); err != nil {
		t.Fatal(err)
	}
	if s := only(t, "eth0"); s.Neighbour.IsValid() {
		t.Errorf("a neighbour that is never forgotten is needed: %+v", s)
	}
}

// TestASessionInAnotherNetworkNamespace: sshd runs behind this namespace, on a port of its own.
func TestASessionInAnotherNetworkNamespace(t *testing.T) {
	n := newNets(t)
	add(t, veth("eth0", n.far), "eth0", "192.0.2.1/24")
	add(t, veth("eth0", n.inner), "eth1", "198.51.100.254/24")
	n.in(t, n.far, func() { set(t, "eth0", "192.0.2.7/24"); route(t, "192.0.2.1") })
	n.in(t, n.inner, func() {
		set(t, "eth0", "198.51.100.1/24")
		route(t, "198.51.100.254")
	})
	accepted := n.serve(t, n.inner, serving{name: "sshd"}, "198.51.100.1:2222")
	n.dial(t, "198.51.100.1:2222")
	accepted()
	s := only(t, "eth0")
	if s.Local.String() != "198.51.100.1:2222" || s.What != sshSession || s.DstMAC != nil ||
		s.Neighbour != netip.MustParseAddr("192.0.2.7") {
		t.Errorf("%+v", s)
	}
	if all, err := On("eth1"); err != nil || len(all) != 0 {
		t.Errorf("on the way in: %+v, %v", all, err)
	}
}

// TestSSHConnectionIsBelieved: in another PID namespace nothing else tells.
func TestSSHConnectionIsBelieved(t *testing.T) {
	local, remote := netip.MustParseAddrPort("198.51.100.1:2222"),
		netip.MustParseAddrPort("192.0.2.7:50000")
	for env, want := range map[string]bool{
		"192.0.2.7 50000 198.51.100.1 2222": true,
		"192.0.2.7 50001 198.51.100.1 2222": false,
		"192.0.2.7 50000 198.51.100.1":      false,
		"":                                  false,
	} {
		if isConnection(env, local, remote) != want {
			t.Errorf("%q: want %v", env, want)
		}
	}
}
