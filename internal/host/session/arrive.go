package session

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"levee/internal/host/account"
	"levee/internal/host/linklayer"
	"levee/internal/host/local"
)

// On lists the sessions of this machine whose packets arrive on dev, or on an interface on top of
// it (VLAN, bridge, bond, macvlan): the local address stands there, or the way back leads there.
// They belong to an SSH server, or to an ancestor of this process. The server may be in another
// network namespace, behind this one. An interface that does not exist, or whose packets have no
// Ethernet header, has no sessions: it takes no policy. The error is of a kernel that cannot list
// sockets, such as one without sock_diag.
func On(dev string) ([]Session, error) {
	here, elsewhere, err := sessions()
	if err != nil || len(here)+len(elsewhere) == 0 {
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
	for _, s := range here {
		if index, ok := arrivesOn(s, above); ok {
			s.describe(above[index], index)
			s.Back = s.Back && above[index].link.Attrs().Name == dev
			names, err := account.Names(s.UID)
			s.Own, s.Users = err == nil, names // else who sends is not known
			out = append(out, s)
		}
	}
	translated := translations(elsewhere)
	for _, s := range elsewhere {
		index, ok := wayBack(s, above)
		if !ok {
			continue
		}
		outside, routed := translated[s.Local]
		if routed {
			s.Local = outside
		}
		s.describe(above[index], index)
		s.Back = s.Back && above[index].link.Attrs().Name == dev
		if !routed {
			s.DstMAC = nil // of an interface of the other namespace, if the packets are bridged
		}
		out = append(out, s)
	}
	return out, nil
}

// describe notes how packets of a session arrive, on an interface.
func (s *Session) describe(on upper, index int) {
	a := on.link.Attrs()
	s.Tags, s.MTU, s.DstMAC = on.tags, a.MTU, a.HardwareAddr
	routes, err := netlink.RouteGetWithOptions(s.Remote.Addr().AsSlice(), s.routing(index))
	if err != nil || len(routes) == 0 || routes[0].LinkIndex != index {
		return
	}
	s.Back = true
	hop := s.Remote.Addr()
	if gw, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		hop = gw.Unmap()
	} else if via, ok := routes[0].Via.(*netlink.Via); ok {
		hop, _ = netip.AddrFromSlice(via.Addr)
	}
	learnt := a.RawFlags&unix.IFF_NOARP == 0
	neighbours, err := netlink.NeighList(index, netlink.FAMILY_ALL)
	if err != nil {
		return
	}
	for _, n := range neighbours {
		if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == hop {
			s.SrcMAC = n.HardwareAddr
			learnt = learnt && n.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) == 0
		}
	}
	if learnt {
		s.Neighbour = hop
	}
}

// routing returns the properties of a session on which the route of its answers depends.
func (s *Session) routing(index int) *netlink.RouteGetOptions {
	if s.Remote.Addr().IsLinkLocalUnicast() {
		return &netlink.RouteGetOptions{OifIndex: index}
	}
	return nil
}

// translations returns the addresses and ports to which packets of sessions in other network
// namespaces come, where this one translates them, as published ports of containers.
func translations(elsewhere []Session) map[netip.AddrPort]netip.AddrPort {
	out := map[netip.AddrPort]netip.AddrPort{}
	if len(elsewhere) == 0 {
		return out
	}
	// To ask a kernel that tracks no connections would make it begin.
	if _, err := os.Stat("/proc/sys/net/netfilter/nf_conntrack_count"); err != nil {
		return out
	}
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			continue
		}
		for _, f := range flows {
			inside := addrPort(f.Reverse.SrcIP, f.Reverse.SrcPort)
			outside := addrPort(f.Forward.DstIP, f.Forward.DstPort)
			remote := addrPort(f.Forward.SrcIP, f.Forward.SrcPort)
			for _, s := range elsewhere {
				if f.Forward.Protocol == unix.IPPROTO_TCP && s.Local == inside &&
					s.Remote == remote {
					out[inside] = outside
				}
			}
		}
	}
	return out
}

// upper is an interface on top of another.
type upper struct {
	link netlink.Link
	tags []uint16 // VLAN ids that its packets carry below
}

// Above returns the indexes of the interfaces that are built on dev (VLAN, bridge, bond, macvlan):
// what arrives on one of them arrived on dev.
func Above(dev string) (indexes []int, err error) {
	above, err := interfacesAbove(dev)
	for index, u := range above {
		if u.link.Attrs().Name != dev {
			indexes = append(indexes, index)
		}
	}
	return indexes, err
}

// interfacesAbove maps the indices of dev and of what is built on it to what they are.
func interfacesAbove(dev string) (map[int]upper, error) {
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return nil, fmt.Errorf("look up interface %q: %w", dev, err)
	}
	if _, err := linklayer.Of(l); err != nil {
		return nil, err
	}
	links, err := local.Links()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	above := map[int]upper{l.Attrs().Index: {link: l}}
	byIndex := map[int]netlink.Link{}
	for _, k := range links {
		byIndex[k.Attrs().Index] = k
	}
	for grew := true; grew; {
		grew = false
		add := func(index int, tags []uint16) {
			if _, known := above[index]; !known && byIndex[index] != nil {
				above[index], grew = upper{byIndex[index], tags}, true
			}
		}
		for _, k := range links {
			a := k.Attrs()
			if below, ok := above[a.Index]; ok && a.MasterIndex != 0 {
				add(a.MasterIndex, below.tags)
			}
			below, ok := above[a.ParentIndex]
			if !ok || a.NetNsID >= 0 {
				continue
			}
			switch k := k.(type) {
			case *netlink.Vlan:
				add(a.Index, append(slices.Clone(below.tags), uint16(k.VlanId)))
			case *netlink.Macvlan, *netlink.Macvtap, *netlink.IPVlan, *netlink.IPVtap:
				add(a.Index, below.tags)
			}
		}
	}
	return above, nil
}

// arrivesOn returns the interface of a set on which a session's packets arrive, if it is one of
// them.
func arrivesOn(s Session, above map[int]upper) (int, bool) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err == nil {
		for _, a := range addrs {
			ip, ok := netip.AddrFromSlice(a.IP)
			if _, here := above[a.LinkIndex]; here && ok && ip.Unmap() == s.Local.Addr() {
				return a.LinkIndex, true
			}
		}
	}
	return wayBack(s, above)
}

// wayBack returns the interface of a set to which answers of a session go, if it is one of them.
func wayBack(s Session, above map[int]upper) (int, bool) {
	routes, err := netlink.RouteGet(s.Remote.Addr().AsSlice())
	if err != nil || len(routes) == 0 {
		return 0, false
	}
	_, here := above[routes[0].LinkIndex]
	return routes[0].LinkIndex, here
}
