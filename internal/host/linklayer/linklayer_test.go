package linklayer

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"levee/internal/kernel"
	"levee/internal/packet"
)

func TestOnlyLinkTypesWithEthernetHeadersAreTaken(t *testing.T) {
	generic := func(kind string) netlink.Link { return &netlink.GenericLink{LinkType: kind} }
	for _, c := range []struct {
		link  netlink.Link
		encap string
		what  string // "" for Ethernet
	}{
		{&netlink.Device{}, "ether", ""},
		{&netlink.Device{}, "loopback", ""},
		{&netlink.Veth{}, "ether", ""},
		{&netlink.Bridge{}, "ether", ""},
		{&netlink.Bond{}, "ether", ""},
		{&netlink.Vlan{}, "ether", ""},
		{&netlink.Macvlan{}, "ether", ""},
		{&netlink.Dummy{}, "ether", ""},
		{&netlink.Vxlan{}, "ether", ""},
		{&netlink.Gretap{}, "ether", ""},
		{&netlink.Tuntap{Mode: netlink.TUNTAP_MODE_TAP}, "ether", ""},
		{generic("novel"), "ether", ""},

		{&netlink.Wireguard{}, "none", "a WireGuard device (link type none)"},
		{&netlink.Tuntap{Mode: netlink.TUNTAP_MODE_TUN}, "none", "a tun device (link type none)"},
		{&netlink.Tuntap{Mode: netlink.TUNTAP_MODE_TUN}, "ether", "a tun device (link type ether)"},
		{&netlink.Tuntap{Mode: netlink.TUNTAP_MODE_TAP}, "none", "a tap device (link type none)"},
		{&netlink.Gretun{Local: []byte{192, 0, 2, 1}}, "gre", "a GRE tunnel (link type gre)"},
		{&netlink.Gretun{}, "gre", "a GRE tunnel (link type gre)"},
		{&netlink.Gretun{}, "unknown823", "a GRE tunnel (link type gre6)"},
		{&netlink.Iptun{}, "ipip", "an IP-in-IP tunnel (link type ipip)"},
		{&netlink.Ip6tnl{}, "tunnel6", "an IP-in-IPv6 tunnel (link type tunnel6)"},
		{&netlink.Sittun{}, "sit", "an IPv6-in-IPv4 tunnel (link type sit)"},
		{&netlink.Vti{}, "ipip", "an IPsec tunnel (link type ipip)"},
		{&netlink.Vxlan{}, "none", "a VXLAN tunnel of IP packets (link type none)"},
		{&netlink.Geneve{}, "none", "a Geneve tunnel of IP packets (link type none)"},
		{&netlink.Bond{}, "infiniband", "an InfiniBand device (link type infiniband)"},
		{generic("ppp"), "ppp", "a PPP link (link type ppp)"},
		{&netlink.Device{}, "ppp", "a PPP link (link type ppp)"},
		{generic("vcan"), "unknown280", "a CAN bus (link type can)"},
		{generic("rmnet"), "unknown519", "a mobile broadband device (link type rawip)"},
		{generic("novel"), "none", `a device of kind "novel" (link type none)`},
		{generic("novel"), "unknown999", `a device of kind "novel" (link type 999)`},
		{&netlink.Device{}, "none", "a device without Ethernet (link type none)"},
		{&netlink.Device{}, "ieee802.11/radiotap",
			"a Wi-Fi monitor (link type ieee802.11/radiotap)"},
	} {
		c.link.Attrs().Name, c.link.Attrs().EncapType = "dev0", c.encap
		err := Ethernet(c.link)
		var not *NotEthernet
		switch {
		case c.what == "" && err != nil:
			t.Errorf("%s, %s: %v", c.link.Type(), c.encap, err)
		case c.what == "":
		case !errors.As(err, &not) || !errors.Is(err, kernel.ErrRefused):
			t.Errorf("%s, %s: %v, want a refusal", c.link.Type(), c.encap, err)
		case not.What() != c.what || err.Error() != "dev0 is "+c.what+
			": its packets have no Ethernet header":
			t.Errorf("%s, %s: %v", c.link.Type(), c.encap, err)
		}
	}
}

func TestPacketsOfKnownTunnelsBeginWithIP(t *testing.T) {
	generic := func(kind string) netlink.Link { return &netlink.GenericLink{LinkType: kind} }
	remote := net.IPv4(192, 0, 2, 2)
	for _, c := range []struct {
		link  netlink.Link
		encap string
		why   string // "" where the policy is compiled for IP
	}{
		{&netlink.Wireguard{}, "none", ""},
		{&netlink.Tuntap{Mode: netlink.TUNTAP_MODE_TUN}, "none", ""},
		{&netlink.Tuntap{Mode: netlink.TUNTAP_MODE_TUN}, "ether", ""},
		{&netlink.Gretun{Remote: remote}, "gre", ""},
		{&netlink.Gretun{FlowBased: true}, "gre", ""},
		{&netlink.Gretun{Remote: net.ParseIP("2001:db8::2")}, "unknown823", ""},
		{&netlink.Iptun{}, "ipip", ""},
		{&netlink.Ip6tnl{}, "tunnel6", ""},
		{&netlink.Sittun{}, "sit", ""},
		{generic("ppp"), "ppp", ""},
		{&netlink.Device{}, "ppp", ""},

		{&netlink.Gretun{}, "gre", "tunnel's header"},
		{&netlink.Gretun{Remote: net.IPv4zero}, "gre", "tunnel's header"},
		{&netlink.Gretun{Remote: net.IPv4(224, 0, 0, 9)}, "gre", "tunnel's header"},
		{&netlink.Vti{}, "ipip", "header of the device"},
		{&netlink.Xfrmi{}, "none", "header of the device"},
		{&netlink.Tuntap{Mode: netlink.TUNTAP_MODE_TAP}, "none", "Ethernet frames and IP packets"},
		{&netlink.Vxlan{}, "none", "Ethernet frames and IP packets"},
		{&netlink.Device{}, "none", "Ethernet frames and IP packets"},
		{generic("vcan"), "unknown280", "Ethernet frames and IP packets"},
	} {
		c.link.Attrs().Name, c.link.Attrs().EncapType = "dev0", c.encap
		got, err := Of(c.link)
		switch {
		case c.why == "" && (err != nil || got != packet.L3):
			t.Errorf("%s, %s: %s, %v", c.link.Type(), c.encap, got, err)
		case c.why != "" && (!errors.Is(err, kernel.ErrRefused) ||
			!strings.Contains(err.Error(), c.why)):
			t.Errorf("%s, %s: %s, %v", c.link.Type(), c.encap, got, err)
		}
	}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{EncapType: "ether"}}
	if got, err := Of(veth); err != nil ||
		got != packet.Ethernet {
		t.Errorf("veth: %s, %v", got, err)
	}
}
