package dataplane

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"levee/internal/filter/codegen"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// SelfAddresses are the addresses of this network namespace, of all its interfaces, but for those
// of loopback: what `self` holds when a policy is put in force.
func SelfAddresses() ([]netip.Addr, error) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, kernel.Refuse(err, "list the addresses of this machine")
	}
	var out []netip.Addr
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if ip = ip.Unmap(); ok && !ip.IsLoopback() && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out, nil
}

// Endpoint is where packets of one machine arrive. What it does not have is zero.
type Endpoint struct {
	MAC        [6]byte
	IPv4, IPv6 netip.Addr
}

// Destination is where a packet to an interface of this network namespace goes: the first address
// of each family that it has, one that is not link-local before one that is. Where it has none of
// either family, as a port of a bridge, it is the first of the machine.
func Destination(dev string) (*Endpoint, error) {
	link, err := netlink.LinkByName(dev)
	if err != nil {
		return nil, noInterface(dev)
	}
	e := &Endpoint{}
	if mac := link.Attrs().HardwareAddr; len(mac) == len(e.MAC) {
		copy(e.MAC[:], mac)
	}
	for _, of := range []netlink.Link{link, nil} {
		addrs, err := netlink.AddrList(of, netlink.FAMILY_ALL)
		if err != nil {
			return nil, kernel.Refuse(err, "list the addresses of %s", dev)
		}
		for _, a := range addrs {
			ip, ok := netip.AddrFromSlice(a.IP)
			at := &e.IPv6
			if ip = ip.Unmap(); ip.Is4() {
				at = &e.IPv4
			}
			if !ok || of == nil && ip.IsLoopback() {
				continue
			}
			if !at.IsValid() || at.IsLinkLocalUnicast() && !ip.IsLinkLocalUnicast() {
				*at = ip
			}
		}
		if e.IPv4.IsValid() || e.IPv6.IsValid() {
			break
		}
	}
	return e, nil
}

// fillSelf makes `self` hold the addresses that this machine has now. A policy in force that shares
// the set sees the same: it means the same by it. A shadow changes nothing that is in force. The
// caller keeps other writers out.
func (u *up) fillSelf(l *loaded, p *codegen.Program) error {
	for _, ps := range p.Dynamic {
		if !ps.Self || u.beside != nil && u.at.current().hasSet(ps) {
			continue
		}
		addrs, err := SelfAddresses()
		if err != nil {
			return err
		}
		if len(addrs) > ps.Max {
			return fmt.Errorf("this machine has %d addresses, and %q holds %d at most: define a "+
				"set of them instead",
				len(addrs), ps.Name, ps.Max)
		}
		if err := fillWith(l.place(p, ps.Name), ps, addrs); err != nil {
			return err
		}
	}
	return nil
}

func fillWith(at place, ps *policy.Set, addrs []netip.Addr) error {
	s, err := openSet(at, ps.Name, ps.Type, ps.Lease)
	if err != nil {
		return err
	}
	defer s.Close()
	s.Mend()
	has := map[policy.Element]bool{}
	for _, a := range addrs {
		has[policy.Element{Prefix: netip.PrefixFrom(a, a.BitLen())}] = true
	}
	var gone []policy.Element
	for e := range s.All() {
		if !has[e] {
			gone = append(gone, e)
		}
	}
	for _, e := range gone { // first, so that there is room
		s.Delete(e)
	}
	for e := range has {
		if err := s.Add(e, 0); err != nil {
			return fmt.Errorf("put %s into the set %q: %w", e, ps.Name, err)
		}
	}
	return nil
}
