package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"levee/internal/await"
	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/store"
	"levee/internal/host/card"
	"levee/internal/lang/goldentest"
	"levee/internal/lang/resolve"
	"levee/internal/packet"
)

// kindNet is two hosts joined by one device of a kind:
//
//	          here                                peer
//	+-------------------------------+   +----------------------------+
//	| dk0 10.9.0.1/24 fd09::1/64    |   | far 10.9.0.2/24 fd09::2/64 |
//	|  <- policies go here          |   |                            |
//	| lv0 10.8.0.1/24 fd08::1/64    |===| lv1 10.8.0.2/24 fd08::2/64 |
//	+-------------------------------+   +----------------------------+
//
// A tun has no far end: packets are written to its file.
type kindNet struct {
	*testNet
	write func(ip []byte) // to the file of a tun
}

var (
	near4, far4 = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	near6, far6 = netip.MustParseAddr("fd09::1"), netip.MustParseAddr("fd09::2")
	ends4       = [2]net.IP{net.IPv4(10, 8, 0, 1).To4(), net.IPv4(10, 8, 0, 2).To4()}
	ends6       = [2]net.IP{net.ParseIP("fd08::1"), net.ParseIP("fd08::2")}
)

// at runs fn in a namespace, and comes back here.
func (n *kindNet) at(t *testing.T, where netns.NsHandle, fn func()) {
	t.Helper()
	if err := netns.Set(where); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netns.Set(n.here); err != nil {
			t.Fatal(err)
		}
	}()
	fn()
}

// both makes the two ends of a tunnel: side 0 is here.
func (n *kindNet) both(t *testing.T, link func(side int) netlink.Link) {
	t.Helper()
	addLink(t, link(0))
	n.at(t, n.peer, func() { addLink(t, link(1)) })
}

// kindAttrs are the attributes of a device.
func kindAttrs(side int) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = [...]string{"dk0", "far"}[side]
	return a
}

// putUp gives a device addresses and brings it up.
func putUp(t *testing.T, dev string, addrs ...string) {
	t.Helper()
	l, err := netlink.LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		addr := must2(netlink.ParseAddr(a))
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, addr); err != nil && !errors.Is(err, unix.EEXIST) {
			t.Fatalf("%s: address %s: %v", dev, a, err)
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
}

// linkKinds are kinds of device that carry packets between two hosts.
var linkKinds = []struct {
	name string
	only string // "" if both families pass, else 4 or 6
	join func(t *testing.T, n *kindNet)
}{
	{"veth", "", func(t *testing.T, n *kindNet) {
		addLink(t, &netlink.Veth{LinkAttrs: kindAttrs(0), PeerName: "far",
			PeerNamespace: netlink.NsFd(n.peer)})
	}},
	{"bridge", "", func(t *testing.T, n *kindNet) {
		n.over(t, &netlink.Bridge{LinkAttrs: kindAttrs(0)})
	}},
	{"bond", "", func(t *testing.T, n *kindNet) {
		b := netlink.NewLinkBond(kindAttrs(0))
		b.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
		n.over(t, b)
	}},
	{"VLAN", "", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			a := kindAttrs(side)
			a.ParentIndex = n.under(t, side)
			return &netlink.Vlan{LinkAttrs: a, VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
		})
	}},
	{"macvlan", "", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			a := kindAttrs(side)
			a.ParentIndex = n.under(t, side)
			return &netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE}
		})
	}},
	{"ipvlan", "", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			a := kindAttrs(side)
			a.ParentIndex = n.under(t, side)
			return &netlink.IPVlan{LinkAttrs: a, Mode: netlink.IPVLAN_MODE_L2}
		})
	}},
	{"VXLAN", "", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			return &netlink.Vxlan{LinkAttrs: kindAttrs(side), VxlanId: 7, SrcAddr: ends4[side],
				Group: ends4[1-side], Port: 4789}
		})
	}},
	{"Geneve", "", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			return &netlink.Geneve{LinkAttrs: kindAttrs(side), ID: 7, Remote: ends4[1-side],
				Dport: 6081}
		})
	}},
	{"gretap", "", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			return &netlink.Gretap{LinkAttrs: kindAttrs(side), Local: ends4[side],
				Remote: ends4[1-side]}
		})
	}},
	{"tap", "", func(t *testing.T, n *kindNet) { n.file(t, unix.IFF_TAP) }},
	{"tun", "", func(t *testing.T, n *kindNet) { n.file(t, unix.IFF_TUN) }},
	{"WireGuard", "", func(t *testing.T, n *kindNet) { n.wireguard(t) }},
	{"GRE", "", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			return &netlink.Gretun{LinkAttrs: kindAttrs(side), Local: ends4[side],
				Remote: ends4[1-side]}
		})
	}},
	{"GRE with keys", "", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			return &netlink.Gretun{LinkAttrs: kindAttrs(side), Local: ends4[side],
				Remote: ends4[1-side],
				IKey:   7, OKey: 7, IFlags: 0x20, OFlags: 0x20}
		})
	}},
	{"GRE in IPv6", "", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			return &netlink.Gretun{LinkAttrs: kindAttrs(side), Local: ends6[side],
				Remote: ends6[1-side]}
		})
	}},
	{"IPIP", "4", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			return &netlink.Iptun{LinkAttrs: kindAttrs(side), Local: ends4[side],
				Remote: ends4[1-side]}
		})
	}},
	{"SIT", "6", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			return &netlink.Sittun{LinkAttrs: kindAttrs(side), Local: ends4[side],
				Remote: ends4[1-side], Proto: unix.IPPROTO_IPV6}
		})
	}},
	{"IPv4 or IPv6 in IPv6", "", func(t *testing.T, n *kindNet) {
		n.both(t, func(side int) netlink.Link {
			return &netlink.Ip6tnl{LinkAttrs: kindAttrs(side), Local: ends6[side],
				Remote: ends6[1-side]}
		})
	}},
	{"PPP", "", func(t *testing.T, n *kindNet) { n.ppp(t) }},
	{"lo", "", nil},
}

// under is the index of the end of the wire that lies on a side.
func (n *kindNet) under(t *testing.T, side int) int {
	t.Helper()
	return must2(netlink.LinkByName([...]string{"lv0", "lv1"}[side])).Attrs().Index
}

// over puts the wire into a bridge or bond; the far end of the wire is the other host.
func (n *kindNet) over(t *testing.T, l netlink.Link) {
	t.Helper()
	addLink(t, l)
	wire := must2(netlink.LinkByName("lv0"))
	if err := netlink.LinkSetDown(wire); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetMaster(wire, must2(netlink.LinkByName("dk0"))); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(wire); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.at(t, n.here, func() { _ = netlink.LinkSetNoMaster(wire) })
	})
	n.at(t, n.peer, func() { putUp(t, "lv1", far4.String()+"/24", far6.String()+"/64") })
}

// file makes a tun or a tap, whose other end is this test.
func (n *kindNet) file(t *testing.T, flags uint16) {
	t.Helper()
	fd := openTun(t, "dk0", flags)
	n.write = func(ip []byte) {
		if flags == unix.IFF_TAP {
			kind := []byte{8, 0}
			if ip[0]>>4 == 6 {
				kind = []byte{0x86, 0xdd}
			}
			mac := must2(netlink.LinkByName("dk0")).Attrs().HardwareAddr
			ip = slices.Concat(mac, []byte{2, 0, 0, 0, 0, 9}, kind, ip)
		}
		if _, err := unix.Write(fd, ip); err != nil {
			t.Errorf("write a packet: %v", err)
		}
	}
}

// datagram sends one from the far end to a port here.
func (n *kindNet) datagram(t *testing.T, family, port int) {
	t.Helper()
	from, to := far4, near4
	if family == 6 {
		from, to = far6, near6
	}
	if n.write != nil {
		frame := must2(packet.Build(packet.Spec{From: from, To: to,
			FromPort: new(uint16(5000)), ToPort: new(uint16(port)), Payload: []byte("x")}))
		n.write(frame[14:])
		return
	}
	n.at(t, n.peer, func() {
		c, err := net.Dial("udp", net.JoinHostPort(to.String(), fmt.Sprint(port)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte("x")) // the answer to one before may be that nobody listens
	})
}

// listen takes datagrams to two ports here; came waits for so many packets at one of them, and says
// how many came. What is not to come is not waited for: it would be there already.
func listen(t *testing.T, family int) (came func(port, of int) int, end func()) {
	t.Helper()
	addr := near4
	if family == 6 {
		addr = near6
	}
	all := map[int]*net.UDPConn{}
	for _, port := range []int{droppedPort, passedPort} {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: addr.AsSlice(), Port: port})
		if err != nil {
			t.Fatal(err)
		}
		all[port] = c
	}
	came = func(port, of int) (n int) {
		patience := hangs
		if of == 0 {
			patience = 2 * time.Millisecond
		}
		_ = all[port].SetReadDeadline(time.Now().Add(patience))
		for n < max(of, 1) {
			if _, err := all[port].Read(make([]byte, 100)); err != nil {
				break
			}
			n++
		}
		return n
	}
	return came, func() { all[droppedPort].Close(); all[passedPort].Close() }
}

const droppedPort, passedPort = 7007, 7009

// kindPolicy decides by addresses, protocol, port and length, so that a program that looks in the
// wrong place cannot be right by chance.
const kindPolicy = `set here = { 10.9.0.0/24, fd09::/64 }
drop from { 10.9.0.2, fd09::2 } to here udp port 7007 len 29 as "dropped4"
drop from { fd09::2, fd09::1 } udp port 7007 len 49 as "dropped6"
pass udp port 7009 ttl > 30 as "passed"
pass icmp6 as "icmp6"
drop udp port { 7007, 7009 } as "wrong"
default pass
`

// judged sends datagrams that are to be dropped and to be passed, and says what was wrong.
func (n *kindNet) judged(t *testing.T, families []int) (judge, stats string) {
	t.Helper()
	judge, stats = "yes", "yes"
	const each = 5
	before := status(t)
	var dropped [2]uint64
	for _, family := range families {
		came, end := listen(t, family)
		for range each {
			n.datagram(t, family, droppedPort)
			n.datagram(t, family, passedPort)
		}
		passed, others := came(passedPort, each), came(droppedPort, 0)
		if passed != each || others > 0 {
			judge = fmt.Sprintf("no: IPv%d: %d of %d datagrams came, and %d that are dropped",
				family, passed, each, others)
		}
		end()
		dropped[family/6] = each
	}
	after := status(t)
	for label, want := range map[string]uint64{"dropped4": dropped[0], "dropped6": dropped[1],
		"passed": uint64(each * len(families)), "wrong": 0} {
		if n := packets(&after, label) - packets(&before, label); n != want {
			stats = fmt.Sprintf("no: %q counted %d, want %d", label, n, want)
		}
	}
	return judge, stats
}

// open reports whether all datagrams come.
func (n *kindNet) open(t *testing.T, families []int) bool {
	t.Helper()
	for _, family := range families {
		came, end := listen(t, family)
		for range 3 {
			n.datagram(t, family, droppedPort)
		}
		got := came(droppedPort, 3)
		if end(); got != 3 {
			return false
		}
	}
	return true
}

// newKindNet joins two hosts, and skips the test if the kernel has no such device.
func newKindNet(t *testing.T, kind int) *kindNet {
	t.Helper()
	n := &kindNet{testNet: newTestNet(t)}
	k := linkKinds[kind]
	// An interface answers for its own addresses only, not for those of the device on top of it.
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	withIPv6(t)
	n.at(t, n.peer, func() { withIPv6(t) })
	putUp(t, "lo")
	putUp(t, "lv0", ends4[0].String()+"/24", ends6[0].String()+"/64")
	n.at(t, n.peer, func() { putUp(t, "lv1", ends4[1].String()+"/24", ends6[1].String()+"/64") })
	if k.join == nil { // lo
		putUp(t, "lo", near4.String()+"/32", near6.String()+"/128", far4.String()+"/32",
			far6.String()+"/128")
		n.write = func(ip []byte) { n.loop(t, ip) }
		n.reach(t, []int{4, 6})
		return n
	}
	k.join(t, n)
	putUp(t, "dk0", near4.String()+"/24", near6.String()+"/64")
	if n.write == nil && k.name != "bridge" && k.name != "bond" {
		n.at(t, n.peer, func() { putUp(t, "far", far4.String()+"/24", far6.String()+"/64") })
	}
	n.reach(t, map[string][]int{"": {4, 6}, "4": {4}, "6": {6}}[k.only])
	return n
}

// unmerged has a device not merge packets: generic XDP does not judge the lengths of merged ones.
func unmerged(t *testing.T, dev string) {
	t.Helper()
	e, err := ethtool.NewEthtool()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Change(dev, map[string]bool{card.GRO: false}); err != nil {
		t.Fatal(err)
	}
}

// withIPv6 gives all devices of the network namespace IPv6, which other tests do without.
func withIPv6(t *testing.T) {
	t.Helper()
	for _, of := range []string{"all", "default"} {
		path := "/proc/sys/net/ipv6/conf/" + of + "/disable_ipv6"
		if err := os.WriteFile(path, []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// reach sends until datagrams come: until neighbours are found and keys exchanged.
func (n *kindNet) reach(t *testing.T, families []int) {
	t.Helper()
	for _, family := range families {
		came, end := listen(t, family)
		n.datagram(t, family, passedPort)
		await.OK(t, func() error {
			if came(passedPort, 0) == 0 {
				n.datagram(t, family, passedPort)
				return fmt.Errorf("IPv%d does not come, without a policy", family)
			}
			return nil
		})
		end()
	}
}

// loop sends what another host would, to itself.
func (n *kindNet) loop(t *testing.T, ip []byte) {
	t.Helper()
	var p packet.Packet
	packet.L3.Decode(ip, &p)
	c, err := net.DialUDP("udp", &net.UDPAddr{IP: p.Src.AsSlice()},
		&net.UDPAddr{IP: p.Dst.AsSlice(), Port: int(p.DstPort)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

// kindsPage has a row for each kind of device.
const kindsPage = "../../docs/reference/devices.md"

// Policies judge the same packets the same way on devices of every kind, at each hook that the
// device has, and leave nothing behind. What comes out is the table of docs/reference/devices.md.
func TestEveryKindOfDeviceIsJudgedRight(t *testing.T) {
	needRoot(t)
	rows := map[string]string{}
	for i, k := range linkKinds {
		t.Run(k.name, func(t *testing.T) {
			n := newKindNet(t, i)
			rows[k.name] = n.row(t, k.name,
				map[string][]int{"": {4, 6}, "4": {4}, "6": {6}}[k.only])
		})
	}
	if tcModes(t)[0] != store.TCX {
		return // the page is of kernels that have it
	}
	page, err := os.ReadFile(filepath.FromSlash(kindsPage))
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for name, row := range rows {
		re := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + ` \|.*$`)
		if !re.MatchString(text) {
			t.Errorf("%s has no row for %s: %s", kindsPage, name, row)
		}
		text = re.ReplaceAllLiteralString(text, row)
	}
	goldentest.Compare(t, kindsPage, []byte(text))
}

// row tries all hooks on one device.
func (n *kindNet) row(t *testing.T, name string, families []int) string {
	t.Helper()
	dev := "dk0"
	if name == "lo" {
		dev = "lo"
	}
	p, ds := resolve.Parse("kind.levee", []byte(kindPolicy), nil)
	if ds.HasErrors() {
		t.Fatal(ds.Err())
	}
	layer, err := attach.LinkLayer(dev)
	if err != nil {
		t.Fatal(err)
	}
	var taken []string
	auto, judge, stats, detach := "", "yes", "yes", "yes"
	unmerged(t, dev)
	for _, mode := range []store.Mode{store.Auto, store.XDPNative, store.TCX, store.XDPGeneric} {
		rep, err := Up(t.Context(), UpOptions{Dev: dev, Mode: mode, PolicyPath: "/etc/kind.levee"},
			Compiler(p))
		switch {
		case err != nil && mode == store.XDPNative && strings.Contains(err.Error(), "native XDP"),
			err != nil && mode == store.TCX && strings.Contains(err.Error(), "no TCX"):
			continue
		case err != nil:
			t.Fatalf("%s: %v", mode, err)
		case mode == store.Auto:
			auto = string(rep.Mode)
		default:
			taken = append(taken, string(mode))
		}
		j, s := n.judged(t, families)
		if j != "yes" || s != "yes" {
			t.Errorf("%s: judged right: %s; counted: %s", mode, j, s)
			judge, stats = j, s
		}
		if _, err := Down(t.Context(), dev); err != nil {
			t.Errorf("%s: %v", mode, err)
			detach = "no"
		}
		if !n.open(t, families) {
			detach = "no"
		}
		runDirIsGone(t)
	}
	for i, mode := range taken {
		if mode == auto {
			taken[i] = "**" + mode + "**"
		}
	}
	words := map[packet.Link]string{packet.Ethernet: "Ethernet", packet.L3: "IP"}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", name, words[layer],
		strings.Join(taken, ", "), judge, stats, detach)
}
