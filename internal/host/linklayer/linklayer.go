// Package linklayer says which header packets of a network device have first: an Ethernet header,
// the IP header, or something else.
//
// In goes what netlink tells of a device; out comes the link layer, or a sentence that names the
// device and its link type. The package must never let a device through that it does not know:
// whoever judges or sends packets there would read, or write, other things in their place.
package linklayer

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"levee/internal/kernel"
	"levee/internal/packet"
)

// Of returns what packets of a device begin with, as programs see them that judge what arrives. The
// error is a *NotEthernet with its Why.
//
// Which devices without Ethernet show the IP header first is known by kind, since the link type
// does not tell: the tests of package dataplane send packets through each of them.
func Of(l netlink.Link) (packet.Link, error) {
	err := Ethernet(l)
	if err == nil {
		return packet.Ethernet, nil
	}
	not := err.(*NotEthernet)
	switch kindOf(l) {
	case "tun", "wireguard", "ipip", "ip6tnl", "sit", "ppp":
		return packet.L3, nil
	case "gre", "ip6gre":
		if remote(l) {
			return packet.L3, nil
		}
		// The driver shows whoever looks the header that a packet came in (header_ops of
		// net/ipv4/ip_gre.c): for each packet as long as its options.
		not.Why = "without the address of the other end its packets begin with the tunnel's header"
	case "vti", "vti6", "xfrm":
		not.Why = "its packets begin with the header of the device that they came through"
	default:
		not.Why = "levee judges Ethernet frames and IP packets"
	}
	return 0, not
}

// remote reports whether a tunnel knows the one address that its packets come from, or is told it
// with each packet.
func remote(l netlink.Link) bool {
	t, ok := l.(*netlink.Gretun)
	return ok && (t.FlowBased ||
		len(t.Remote) > 0 && !t.Remote.IsUnspecified() && !t.Remote.IsMulticast())
}

// NotEthernet is the error for a device whose packets have no Ethernet header. It matches
// kernel.ErrRefused. Callers add what to do instead.
type NotEthernet struct {
	Dev  string
	Kind string // in words, with its article: "a WireGuard device"
	Type string // the link type as `ip link` calls it: "none", "gre"
	Why  string // of Of: why no policy goes there
}

func (e *NotEthernet) Error() string {
	if e.Why != "" {
		return fmt.Sprintf("%s is %s: %s", e.Dev, e.What(), e.Why)
	}
	return fmt.Sprintf("%s is %s: its packets have no Ethernet header", e.Dev, e.What())
}

// What returns the device in words, with its link type.
func (e *NotEthernet) What() string { return fmt.Sprintf("%s (link type %s)", e.Kind, e.Type) }

// Unwrap gives kernel.ErrRefused.
func (e *NotEthernet) Unwrap() error { return kernel.ErrRefused }

// Ethernet is nil for a device whose frames begin with an Ethernet header, else a *NotEthernet.
//
// The link type decides (ARPHRD_*, linux/if_arp.h), not the kind: the same driver makes both, as
// for vxlan and vxlan with gpe, and a bond takes over the type of its slaves. lo has the type
// loopback and an Ethernet header (drivers/net/loopback.c). A tun device has no header, whatever
// type TUNSETLINK gave it.
func Ethernet(l netlink.Link) error {
	tuntap, _ := l.(*netlink.Tuntap)
	tun := tuntap != nil && tuntap.Mode == netlink.TUNTAP_MODE_TUN
	switch l.Attrs().EncapType {
	case "ether", "loopback":
		if !tun {
			return nil
		}
	}
	kind := kindOf(l)
	e := &NotEthernet{Dev: l.Attrs().Name, Type: typeName(l.Attrs().EncapType)}
	switch {
	case kinds[kind] != "":
		e.Kind = kinds[kind]
	case types[e.Type] != "":
		e.Kind = types[e.Type]
	case kind == "device": // the kernel tells no kind: a driver of hardware
		e.Kind = "a device without Ethernet"
	default:
		e.Kind = fmt.Sprintf("a device of kind %q", kind)
	}
	return e
}

// kindOf returns the kernel's name of a kind (IFLA_INFO_KIND), with "tap" for one kind of tun.
// Drivers of PPP over serial lines, and of others, tell none: the link type does.
func kindOf(l netlink.Link) string {
	kind := l.Type()
	if t, ok := l.(*netlink.Tuntap); ok {
		kind = "tap"
		if t.Mode == netlink.TUNTAP_MODE_TUN {
			kind = "tun"
		}
	}
	if kind == "device" && l.Attrs().EncapType == "ppp" {
		kind = "ppp"
	}
	return kind
}

// kinds are devices in words, by the kernel's name of their kind (IFLA_INFO_KIND).
var kinds = map[string]string{
	"tun":       "a tun device",
	"tap":       "a tap device",
	"wireguard": "a WireGuard device",
	"gre":       "a GRE tunnel",
	"ip6gre":    "a GRE tunnel", // what netlink calls a gre without addresses, too
	"ipip":      "an IP-in-IP tunnel",
	"ip6tnl":    "an IP-in-IPv6 tunnel",
	"sit":       "an IPv6-in-IPv4 tunnel",
	"vti":       "an IPsec tunnel",
	"vti6":      "an IPsec tunnel",
	"xfrm":      "an IPsec tunnel",
	"vxlan":     "a VXLAN tunnel of IP packets",
	"geneve":    "a Geneve tunnel of IP packets",
	"bareudp":   "a UDP tunnel of IP packets",
	"gtp":       "a GTP tunnel",
	"ppp":       "a PPP link",
	"can":       "a CAN bus",
	"vcan":      "a CAN bus",
	"vxcan":     "a CAN bus",
	"ipoib":     "an InfiniBand device",
	"nlmon":     "a netlink monitor",
}

// types are devices in words, by link type, for those whose kind says less.
var types = map[string]string{
	"ppp":                 "a PPP link",
	"slip":                "a SLIP link",
	"infiniband":          "an InfiniBand device",
	"ieee802.11":          "a Wi-Fi monitor",
	"ieee802.11/prism":    "a Wi-Fi monitor",
	"ieee802.11/radiotap": "a Wi-Fi monitor",
	"can":                 "a CAN bus",
	"rawip":               "a mobile broadband device",
}

// typeName returns a link type as `ip link` calls it. The netlink library does not know the younger
// ones.
func typeName(encap string) string {
	number, unknown := strings.CutPrefix(encap, "unknown")
	if !unknown {
		return encap
	}
	if name := younger[number]; name != "" {
		return name
	}
	return number
}

// younger are link types by number (linux/if_arp.h), with iproute2's names of them.
var younger = map[string]string{
	"280": "can",
	"519": "rawip",
	"823": "gre6",
	"824": "netlink",
	"825": "6lowpan",
}
