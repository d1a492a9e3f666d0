package dataplane

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

// addRoute adds a route by an interface, to a prefix.
func addRoute(t *testing.T, dev, to string) {
	t.Helper()
	_, dst, err := net.ParseCIDR(to)
	if err != nil {
		t.Fatal(err)
	}
	err = netlink.RouteAdd(&netlink.Route{LinkIndex: index(t, dev), Dst: dst,
		Scope: netlink.SCOPE_LINK})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLongPacketsAndAddressesOfNobodyWereTakenWrongly: at tc the kernel compares the length of the
// packet that arrived with what the interface of the way back takes. A smaller MTU there, as
// tunnels have, was taken for no way back at all. And by a default route there was a way back to
// sources that no machine has, such as groups.
func TestLongPacketsAndAddressesOfNobodyWereTakenWrongly(t *testing.T) {
	n, _ := backNet(t)
	for _, family := range []string{"ipv4", "ipv6"} {
		set(t, family+"/conf/lo/forwarding", "1")
	}
	addRoute(t, "lv0", "0.0.0.0/0")
	addRoute(t, "lv0", "::/0")
	l, err := netlink.LinkByName("lv2")
	if err == nil {
		err = netlink.LinkSetMTU(l, 1280)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range []string{"203.0.113.9", "2001:db8:2::9"} {
		err := netlink.NeighAdd(&netlink.Neigh{LinkIndex: index(t, "lv2"), IP: net.ParseIP(ip),
			State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}})
		if err != nil {
			t.Fatal(err)
		}
	}
	long := func(from, to string) []byte { return datagramFrom(t, from, to, 1400) }
	const six = "2001:db8:1::1"
	holdWays(t, n, []wayCase{
		{"default", udpFrom(t, "8.8.8.8", "192.0.2.1"), [4]uint64{1, 0, 1, 0}},
		{"long", long("203.0.113.9", "192.0.2.1"), [4]uint64{0, 1, 1, 0}},
		{"long IPv6", long("2001:db8:2::9", six), [4]uint64{0, 1, 1, 0}},
		{"zero", udpFrom(t, "0.0.0.0", "192.0.2.1"), [4]uint64{0, 1, 0, 1}},
		{"this network", udpFrom(t, "0.1.2.3", "192.0.2.1"), [4]uint64{0, 1, 0, 1}},
		{"zero to all", udpFrom(t, "0.0.0.0", "255.255.255.255"),
			[4]uint64{1, 0, 1, 0}},
		{"group", udpFrom(t, "224.0.0.9", "192.0.2.1"), [4]uint64{0, 1, 0, 1}},
		{"group of a site", udpFrom(t, "239.1.2.3", "192.0.2.1"), [4]uint64{0, 1, 0, 1}},
		{"all", udpFrom(t, "255.255.255.255", "192.0.2.1"), [4]uint64{0, 1, 0, 1}},
		{"loopback", udpFrom(t, "127.0.0.1", "192.0.2.1"), [4]uint64{0, 1, 0, 1}},
		{"IPv6 none", udpFrom(t, "::", six), [4]uint64{0, 1, 0, 1}},
		{"IPv6 loopback", udpFrom(t, "::1", six), [4]uint64{0, 1, 0, 1}},
		{"IPv6 group", udpFrom(t, "ff02::9", six), [4]uint64{0, 1, 0, 1}},
		{"IPv4-mapped", udpFrom(t, "::ffff:192.0.2.9", six), [4]uint64{0, 1, 0, 1}},
	})
}
