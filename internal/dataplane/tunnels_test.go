package dataplane

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"net"
	"strconv"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes of a WireGuard device, linux/wireguard.h.
const (
	wgSetDevice = 1

	wgDeviceName, wgDeviceKey, wgDevicePort, wgDevicePeers = 2, 3, 6, 8

	wgPeerKey, wgPeerEndpoint, wgPeerAllowed = 1, 4, 9

	wgAllowedFamily, wgAllowedAddr, wgAllowedMask = 1, 2, 3
)

// wireguard joins the two hosts by a WireGuard tunnel.
func (n *kindNet) wireguard(t *testing.T) {
	t.Helper()
	n.both(t, func(side int) netlink.Link { return &netlink.Wireguard{LinkAttrs: kindAttrs(side)} })
	var keys [2]*ecdh.PrivateKey
	for i := range keys {
		keys[i] = must2(ecdh.X25519().GenerateKey(rand.Reader))
	}
	keyed := func(side int) {
		setWireGuard(t, kindAttrs(side).Name, keys[side], keys[1-side].PublicKey(), ends4[1-side])
	}
	keyed(0)
	n.at(t, n.peer, func() { keyed(1) })
}

// setWireGuard gives a device its key and its one peer, from which everything may come.
func setWireGuard(t *testing.T, dev string, own *ecdh.PrivateKey, peer *ecdh.PublicKey,
	endpoint net.IP) {
	t.Helper()
	family, err := netlink.GenlFamilyGet("wireguard")
	if err != nil {
		t.Fatal(err)
	}
	const port = 51820
	to := make([]byte, 16) // struct sockaddr_in
	binary.NativeEndian.PutUint16(to, unix.AF_INET)
	binary.BigEndian.PutUint16(to[2:], port)
	copy(to[4:], endpoint)
	one := nl.NewRtAttr(unix.NLA_F_NESTED, nil)
	one.AddRtAttr(wgPeerKey, peer.Bytes())
	one.AddRtAttr(wgPeerEndpoint, to)
	allowed := one.AddRtAttr(wgPeerAllowed|unix.NLA_F_NESTED, nil)
	for family, bytes := range map[uint16]int{unix.AF_INET: 4, unix.AF_INET6: 16} {
		a := allowed.AddRtAttr(unix.NLA_F_NESTED, nil)
		a.AddRtAttr(wgAllowedFamily, nl.Uint16Attr(family))
		a.AddRtAttr(wgAllowedAddr, make([]byte, bytes))
		a.AddRtAttr(wgAllowedMask, []byte{0})
	}
	peers := nl.NewRtAttr(wgDevicePeers|unix.NLA_F_NESTED, nil)
	peers.AddChild(one)
	req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	// Not nl.Genlmsg: it serialises two bytes beyond itself, and Linux 7.3 checks that they are 0.
	req.AddRawData([]byte{wgSetDevice, 1, 0, 0})
	for _, attr := range []*nl.RtAttr{
		nl.NewRtAttr(wgDeviceName, nl.ZeroTerminated(dev)),
		nl.NewRtAttr(wgDeviceKey, own.Bytes()),
		nl.NewRtAttr(wgDevicePort, nl.Uint16Attr(port)),
		peers,
	} {
		req.AddRawData(attr.Serialize())
	}
	if _, err := req.Execute(unix.NETLINK_GENERIC, 0); err != nil {
		t.Fatalf("set up the WireGuard device %s: %v", dev, err)
	}
}

// ppp joins the two hosts by PPP over the wire between them (PPPoE, RFC 2516), of a session that
// both know without having discovered it.
func (n *kindNet) ppp(t *testing.T) {
	t.Helper()
	var macs [2]net.HardwareAddr
	macs[0] = must2(netlink.LinkByName("lv0")).Attrs().HardwareAddr
	n.at(t, n.peer, func() { macs[1] = must2(netlink.LinkByName("lv1")).Attrs().HardwareAddr })
	pppoe(t, "lv0", macs[1], kindAttrs(0).Name)
	n.at(t, n.peer, func() { pppoe(t, "lv1", macs[0], kindAttrs(1).Name) })
}

// pppoe makes a PPP device on top of an Ethernet device.
func pppoe(t *testing.T, under string, peer net.HardwareAddr, name string) {
	t.Helper()
	unit := openDriver(t, "/dev/ppp")
	session, err := unix.Socket(unix.AF_PPPOX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) // PX_PROTO_OE
	if err != nil {
		t.Skipf("a kernel with PPPoE is not at hand: %v", err)
	}
	t.Cleanup(func() { unix.Close(session) })
	to := &unix.SockaddrPPPoE{SID: 7, Remote: peer, Dev: under}
	if err := unix.Connect(session, to); err != nil {
		t.Fatal(err)
	}
	channel := must2(unix.IoctlGetInt(session, unix.PPPIOCGCHAN))
	through := openDriver(t, "/dev/ppp")
	for _, call := range []struct {
		fd  int
		req uint
		arg int
	}{
		{through, unix.PPPIOCATTCHAN, channel}, {unit, unix.PPPIOCNEWUNIT, -1},
		{through, unix.PPPIOCCONNECT, -1},
	} {
		if call.req == unix.PPPIOCCONNECT {
			call.arg = unitOf(t, unit)
		}
		if err := unix.IoctlSetPointerInt(call.fd, call.req, call.arg); err != nil {
			t.Fatal(err)
		}
	}
	made := must2(netlink.LinkByName("ppp" + strconv.Itoa(unitOf(t, unit))))
	if err := netlink.LinkSetName(made, name); err != nil {
		t.Fatal(err)
	}
}

func unitOf(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.IoctlGetInt(fd, unix.PPPIOCGUNIT)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
