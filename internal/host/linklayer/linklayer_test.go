package linklayer

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"levee/internal/kernel"
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
