// Package linklayer says whether frames of a network device begin with an Ethernet header.
//
// In goes what netlink tells of a device; out comes nil, or a sentence that names the device and
// its link type. The package must never let a device through that it does not know: whoever judges
// or sends Ethernet frames there would read, or write, other things in their place.
package linklayer

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"levee/internal/kernel"
)

// NotEthernet is the error for a device whose packets have no Ethernet header. It matches
// kernel.ErrRefused. Callers add what to do instead.
type NotEthernet struct {
	Dev  string
	Kind string // in words, with its article: "a WireGuard device"
	Type string // the link type as `ip link` calls it: "none", "gre"
}

func (e *NotEthernet) Error() string {
	return fmt.Sprintf("%s is %s: its packets have no Ethernet header", e.Dev, e.What())
}

// What is the device in words, with its link type.
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
	kind := l.Type()
	if tuntap != nil {
		kind = "tap"
		if tun {
			kind = "tun"
		}
	}
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

// typeName is a link type as `ip link` calls it. The netlink library does not know the younger
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
