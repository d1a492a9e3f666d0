package session

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"levee/internal/host/linklayer"
)

// On lists the sessions of this network namespace whose packets arrive on dev, or on an interface
// on top of it (VLAN, bridge, bond): the local address stands there, or the way back leads there.
// They belong to an SSH server, or to one of the processes that this one descends from. An
// interface that does not exist, or whose packets levee cannot judge, has none: no policy is put
// there. The error is of a kernel that does not tell, as one without sock_diag.
func On(dev string) ([]Session, error) {
	all, err := sessions()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	above, err := interfacesAbove(dev)
	if errors.As(err, new(netlink.LinkNotFoundError)) ||
		errors.As(err, new(*linklayer.NotEthernet)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Session
	for _, s := range all {
		if index, ok := arrivesOn(s, above); ok {
			s.Tags = above[index]
			out = append(out, s)
		}
	}
	return out, nil
}

// interfacesAbove maps the indices of dev and of what is built on it to the VLAN ids that their
// packets carry on dev.
func interfacesAbove(dev string) (map[int][]uint16, error) {
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return nil, fmt.Errorf("look up interface %q: %w", dev, err)
	}
	if _, err := linklayer.Of(l); err != nil {
		return nil, err
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	above := map[int][]uint16{l.Attrs().Index: nil}
	for grew := true; grew; {
		grew = false
		for _, k := range links {
			a := k.Attrs()
			if tags, ok := above[a.Index]; ok && a.MasterIndex != 0 {
				if _, known := above[a.MasterIndex]; !known {
					above[a.MasterIndex], grew = tags, true
				}
			}
			tags, ok := above[a.ParentIndex]
			if v, vlan := k.(*netlink.Vlan); ok && vlan {
				if _, known := above[a.Index]; !known {
					above[a.Index], grew = append(slices.Clone(tags), uint16(v.VlanId)), true
				}
			}
		}
	}
	return above, nil
}

// arrivesOn is the interface of a set on which a session's packets arrive, if it is one of them.
func arrivesOn(s Session, above map[int][]uint16) (int, bool) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err == nil {
		for _, a := range addrs {
			ip, ok := netip.AddrFromSlice(a.IP)
			if _, here := above[a.LinkIndex]; here && ok && ip.Unmap() == s.Local.Addr() {
				return a.LinkIndex, true
			}
		}
	}
	routes, err := netlink.RouteGet(s.Remote.Addr().AsSlice())
	if err != nil || len(routes) == 0 {
		return 0, false
	}
	_, here := above[routes[0].LinkIndex]
	return routes[0].LinkIndex, here
}
