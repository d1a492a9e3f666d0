package dataplane

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/packet"
)

const backPolicy = `count reverse-path strict as "strict"
count not reverse-path strict as "not strict"
count reverse-path loose as "loose"
count not reverse-path loose as "not loose"
count inner-vlan 1-4095 as "twice"
default pass
`

// backNet is lv0 with 192.0.2.0/24 and 2001:db8:1::/64 behind it, VLAN 7 on it with 10.7.0.0/24,
// and another interface with 203.0.113.0/24 and 2001:db8:2::/64.
func backNet(t *testing.T) (n *testNet, vlans bool) {
	n = newTestNet(t)
	set(t, "ipv6/conf/default/disable_ipv6", "0")
	set(t, "ipv6/conf/lv0/disable_ipv6", "0")
	addVeth(t, "lv2", "lv3", n.peer)
	err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "lv0.7",
		ParentIndex: index(t, "lv0")}, VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q})
	if vlans = err == nil; !vlans && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatal(err)
	}
	giveWays(t, "lv0", "192.0.2.1/24", "2001:db8:1::1/64")
	giveWays(t, "lv2", "203.0.113.1/24", "2001:db8:2::1/64")
	if vlans {
		giveWays(t, "lv0.7", "10.7.0.1/24")
	}
	return n, vlans
}

// giveWays gives an interface addresses, and so the routes of their networks.
func giveWays(t testing.TB, dev string, addresses ...string) {
	t.Helper()
	l, err := netlink.LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, a); err != nil {
			t.Fatal(err)
		}
	}
}

func index(t testing.TB, dev string) int {
	t.Helper()
	l, err := netlink.LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Index
}

func set(t testing.TB, sysctl, value string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/"+sysctl, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// udpFrom is a datagram from and to an address, with tags.
func udpFrom(t testing.TB, from, to string, tags ...uint64) []byte {
	t.Helper()
	return datagramFrom(t, from, to, 0, tags...)
}

// datagramFrom is one with a payload of so many bytes.
func datagramFrom(t testing.TB, from, to string, payload int, tags ...uint64) []byte {
	t.Helper()
	proto, port := uint8(packet.ProtoUDP), uint16(9)
	s := packet.Spec{Family: packet.IPv4, Proto: &proto, FromPort: &port, ToPort: &port,
		From: netip.MustParseAddr(from), To: netip.MustParseAddr(to),
		Payload: make([]byte, payload)}
	if s.From.Is6() {
		s.Family = packet.IPv6
	}
	for i, id := range tags {
		s.Set([]string{"vlan", "inner-vlan"}[i], id)
	}
	f, err := packet.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestForgedSourcesOfOtherNetworksPassed: rules knew no routes, so that networks behind other
// interfaces had to be written out, and were not when they changed. Then no source had a way back
// of what went to a group or to an address of the link over IPv6, neighbour discovery among it.
func TestForgedSourcesOfOtherNetworksPassed(t *testing.T) {
	n, vlans := backNet(t)
	for _, family := range []string{"ipv4", "ipv6"} {
		set(t, family+"/conf/lo/forwarding", "1")
	}
	const group, six, asked = "255.255.255.255", "2001:db8:1::1", "ff02::1:ff00:1"
	cases := []wayCase{
		{"a neighbour", udpFrom(t, "192.0.2.9", "192.0.2.1"), [4]uint64{1, 0, 1, 0}},
		{"behind another", udpFrom(t, "203.0.113.9", "192.0.2.1"), [4]uint64{0, 1, 1, 0}},
		{"nowhere", udpFrom(t, "198.51.100.9", "192.0.2.1"), [4]uint64{0, 1, 0, 1}},
		{"this machine", udpFrom(t, "192.0.2.1", "192.0.2.1"), [4]uint64{0, 1, 0, 1}},
		{"no address yet", udpFrom(t, "0.0.0.0", group), [4]uint64{1, 0, 1, 0}},
		{"no address", udpFrom(t, "0.0.0.0", "192.0.2.1"), [4]uint64{0, 1, 0, 1}},
		{"IPv6", udpFrom(t, "2001:db8:1::9", six), [4]uint64{1, 0, 1, 0}},
		{"IPv6 behind another", udpFrom(t, "2001:db8:2::9", six), [4]uint64{0, 1, 1, 0}},
		{"IPv6 nowhere", udpFrom(t, "2001:db8:3::9", six), [4]uint64{0, 1, 0, 1}},
		{"IPv6 of this machine", udpFrom(t, six, six), [4]uint64{0, 1, 0, 1}},
		{"IPv6 of the link", udpFrom(t, "fe80::9", six), [4]uint64{1, 0, 1, 0}},
		{"a neighbour asks all", udpFrom(t, "192.0.2.9", group), [4]uint64{1, 0, 1, 0}},
		{"a neighbour asks a group", udpFrom(t, "192.0.2.9", "224.0.0.251"),
			[4]uint64{1, 0, 1, 0}},
		{"a group from behind another", udpFrom(t, "203.0.113.9", "224.0.0.251"),
			[4]uint64{0, 1, 1, 0}},
		{"IPv6 to a group", udpFrom(t, "2001:db8:1::9", asked), [4]uint64{1, 0, 1, 0}},
		{"IPv6 to a group from behind another", udpFrom(t, "2001:db8:2::9", asked),
			[4]uint64{0, 1, 1, 0}},
		{"IPv6 to a group from nowhere", udpFrom(t, "2001:db8:3::9", asked),
			[4]uint64{0, 1, 0, 1}},
		{"IPv6 to the link", udpFrom(t, "2001:db8:1::9", "fe80::1"), [4]uint64{1, 0, 1, 0}},
		{"IPv6 to the link from behind another", udpFrom(t, "2001:db8:2::9", "fe80::1"),
			[4]uint64{0, 1, 1, 0}},
		{"a VLAN", udpFrom(t, "10.7.0.9", "10.7.0.1", 7), [4]uint64{1, 0, 1, 0}},
		{"a VLAN without a tag", udpFrom(t, "10.7.0.9", "192.0.2.1"),
			[4]uint64{0, 1, 1, 0}},
		{"in a VLAN", udpFrom(t, "192.0.2.9", "10.7.0.1", 7), [4]uint64{0, 1, 1, 0}},
		{"no interface of its tag", udpFrom(t, "192.0.2.9", "10.7.0.1", 8),
			[4]uint64{0, 0, 1, 0}},
		{"two tags", udpFrom(t, "192.0.2.9", "10.7.0.1", 7, 8), [4]uint64{0, 0, 1, 0}},
	}
	if !vlans {
		cases = slices.DeleteFunc(cases, func(c wayCase) bool {
			return strings.Contains(c.what, "VLAN")
		})
	}
	holdWays(t, n, cases)
}

// wayCase is a frame, and how often it is counted as strict, not strict, loose and not loose.
type wayCase struct {
	what string
	f    []byte
	want [4]uint64
}

// holdWays sends frames in each mode, and looks at what they are counted as.
func holdWays(t *testing.T, n *testNet, cases []wayCase) {
	t.Helper()
	for _, mode := range allModes(t) {
		n.run(t, string(mode), func(t *testing.T) {
			if _, err := Up(t.Context(), UpOptions{Dev: "lv0", Mode: mode, PolicyPath: "b.levee",
				Source: []byte(backPolicy)}, compileText(backPolicy)); err != nil {
				t.Fatal(err)
			}
			counts := func() (all [4]uint64) {
				a := status0(t)
				for i, id := range []string{"strict", "not strict", "loose", "not loose"} {
					all[i] = packets(&a, id)
				}
				return all
			}
			sent := packetsOf(t, "default")
			for _, c := range cases {
				before := counts()
				n.sendFrame(t, c.f)
				sent++
				wantPackets(t, "default", sent)
				var got [4]uint64
				for i, now := range counts() {
					got[i] = now - before[i]
				}
				if got != c.want {
					t.Errorf("%s: strict, not strict, loose, not loose %v, want %v", c.what, got,
						c.want)
				}
			}
			if _, err := Down(t.Context(), "lv0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func packetsOf(t *testing.T, id string) uint64 {
	t.Helper()
	a := status0(t)
	return packets(&a, id)
}

// TestNoAnswerOfTheKernelWasTakenForOne: a machine that does not forward is told no routes, and
// neither that there is a way back nor that there is none holds then. It is said when the policy
// comes into force.
func TestNoAnswerOfTheKernelWasTakenForOne(t *testing.T) {
	n, _ := backNet(t)
	for _, family := range []string{"ipv4", "ipv6"} { // or a machine that forwards lends its own
		set(t, family+"/conf/all/forwarding", "0")
	}
	res, err := Up(t.Context(), UpOptions{Dev: "lv0", Mode: allModes(t)[0], PolicyPath: "b.levee",
		Source: []byte(backPolicy)}, compileText(backPolicy))
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		want := "net." + family + ".conf.lo.forwarding=1"
		if notes := strings.Join(res.Notes, " "); !strings.Contains(notes, want) {
			t.Errorf("%s was not said: %q", want, notes)
		}
	}
	for i, c := range [][2]string{{"192.0.2.9", "192.0.2.1"}, {"203.0.113.9", "192.0.2.1"},
		{"198.51.100.9", "192.0.2.1"}, {"2001:db8:1::9", "2001:db8:1::1"},
		{"2001:db8:1::9", "ff02::1:ff00:1"}} {
		n.sendFrame(t, udpFrom(t, c[0], c[1]))
		wantPackets(t, "default", uint64(i+1))
	}
	for _, id := range []string{"strict", "not strict", "loose", "not loose"} {
		if got := packetsOf(t, id); got != 0 {
			t.Errorf("%d packets were counted as %s", got, id)
		}
	}
}
