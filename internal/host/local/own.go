package local

import (
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// Own tells the addresses for which the kernel answers frames and packets on an interface.
type Own struct {
	// MACs are those whose frames it takes, that of the interface first. None are all: a port of a
	// bridge delivers to whoever is behind it.
	MACs [][6]byte
	// None are addresses of this machine's networks that belong to no single host: it answers no
	// SYN to them.
	None []netip.Addr
}

// OwnOf tells it of the interface of an index.
func OwnOf(index int) (*Own, error) {
	links, err := Links()
	if err != nil {
		return nil, err
	}
	o := &Own{}
	if o.MACs, err = macs(links, index); err != nil {
		return nil, kernel.Refuse(err, "list the Ethernet addresses of an interface")
	}
	if o.None, err = none(); err != nil {
		return nil, kernel.Refuse(err, "list the broadcast addresses of this machine")
	}
	return o, nil
}

// macs returns the Ethernet addresses whose frames an interface delivers.
func macs(links []netlink.Link, index int) (out [][6]byte, err error) {
	i := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Index == index })
	if i < 0 || len(links[i].Attrs().HardwareAddr) != 6 || forAll(links, index) {
		return nil, nil
	}
	out = [][6]byte{[6]byte(links[i].Attrs().HardwareAddr)}
	add := func(mac net.HardwareAddr) {
		if len(mac) == 6 && !slices.Contains(out, [6]byte(mac)) {
			out = append(out, [6]byte(mac))
		}
	}
	for _, l := range links {
		if l.Attrs().MasterIndex == index || standsOn(l, index) {
			add(l.Attrs().HardwareAddr)
		}
	}
	if t := links[i].Type(); t == "bridge" || t == "vxlan" { // their lists are of others
		return out, nil
	}
	// What stands on the interface in another network namespace has its address in here alone.
	err = consistent(func() error {
		all, err := netlink.NeighListExecute(netlink.Ndmsg{Family: unix.AF_BRIDGE,
			Index: uint32(index)})
		for _, n := range all {
			if n.LinkIndex == index && n.Flags&unix.NTF_SELF != 0 && len(n.HardwareAddr) == 6 &&
				n.HardwareAddr[0]&1 == 0 {
				add(n.HardwareAddr)
			}
		}
		return err
	})
	return out, err
}

// standsOn tells devices that are given frames of another: a veth device names its other end in the
// same place.
func standsOn(l netlink.Link, index int) bool {
	if l.Attrs().ParentIndex != index || l.Attrs().NetNsID >= 0 {
		return false
	}
	switch l.Type() {
	case "vlan", "macvlan", "macvtap":
		return true
	}
	return false
}

// forAll reports whether an interface delivers frames for any address, as it or something that
// stands on it is a port of a bridge, or passes all through.
func forAll(links []netlink.Link, index int) bool {
	for _, l := range links {
		a := l.Attrs()
		if a.Index == index && a.MasterIndex != 0 && bridges(links, a.MasterIndex) {
			return true
		}
		if !standsOn(l, index) {
			continue
		}
		if passesThrough(l) || l.Type() == "vlan" && forAll(links, a.Index) {
			return true
		}
	}
	return false
}

// bridges reports whether a device takes frames for any address from its ports.
func bridges(links []netlink.Link, master int) bool {
	for _, l := range links {
		if l.Attrs().Index != master {
			continue
		}
		switch l.Type() {
		case "bond", "team":
			return forAll(links, master)
		case "vrf":
			return false
		}
	}
	return true
}

func passesThrough(l netlink.Link) bool {
	switch v := l.(type) {
	case *netlink.Macvlan:
		return v.Mode == netlink.MACVLAN_MODE_PASSTHRU
	case *netlink.Macvtap:
		return v.Mode == netlink.MACVLAN_MODE_PASSTHRU
	}
	return false
}

// none returns the broadcast addresses of IPv4 and the anycast addresses of IPv6, in order.
func none() (out []netip.Addr, err error) {
	for _, of := range []struct {
		family int
		kind   uint8
	}{{unix.AF_INET, unix.RTN_BROADCAST}, {unix.AF_INET6, unix.RTN_ANYCAST}} {
		tables, err := reached(of.family)
		if err != nil {
			return nil, err
		}
		all, err := routes(nil, of.family, tables, of.kind)
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			if p.IsSingleIP() {
				out = append(out, p.Addr())
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}
