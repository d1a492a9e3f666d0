package dataplane

import (
	"context"
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
		ofALink := func(a netip.Addr) bool { return a.IsLinkLocalUnicast() }
		if len(slices.DeleteFunc(slices.Clone(addrs), ofALink)) == 0 {
			u.note("this machine has no address yet: nothing is `to self` before `levee up " +
				"--keep` or another `levee up` sees one")
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
	for _, e := range selfElements(addrs) {
		has[e] = true
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

// followSelf tells `self` of the policy on an interface, and on those that have it as one, of
// addresses that have left this machine and of those that it has. What somebody else has put there
// stays. It does nothing where the policy has no such set.
func followSelf(ctx context.Context, dev string, gone, there []netip.Addr) error {
	name, err := selfOn(ctx, dev)
	if err != nil || name == "" {
		return err
	}
	if _, _, err := SetDel(ctx, dev, name, selfElements(gone)); err != nil {
		return err // first, so that there is room
	}
	_, err = SetAdd(ctx, dev, name, selfEntries(there))
	return err
}

// resetSelf makes `self` of the policy on an interface, on no other, hold these addresses alone.
func resetSelf(ctx context.Context, dev string, there []netip.Addr) error {
	name, err := selfOn(ctx, dev)
	if err != nil || name == "" {
		return err
	}
	_, err = eachSet(ctx, dev, name, func(sets []*Set) error {
		for _, s := range sets {
			if s.dev != dev {
				continue
			}
			var gone []policy.Element
			for _, e := range s.maps[0].entries() {
				if p := e.Prefix; !p.IsSingleIP() || !slices.Contains(there, p.Addr()) {
					gone = append(gone, e.Element())
				}
			}
			s.remove(gone)
			return addAll([]*Set{s}, selfEntries(there))
		}
		return nil
	})
	return err
}

// selfOn is the name of the set of the machine's addresses that the policy on an interface has, ""
// if it has none: a policy may define another set of its name.
func selfOn(ctx context.Context, dev string) (name string, err error) {
	err = transact(ctx, func(s *store) error {
		a, err := s.find(dev)
		if err != nil {
			return err
		}
		defer a.Close()
		for _, info := range a.current().Sets {
			if info.Self {
				name = info.Name
			}
		}
		return nil
	})
	return name, err
}

func selfEntries(addrs []netip.Addr) (out []SetEntry) {
	for _, e := range selfElements(addrs) {
		out = append(out, SetEntry{Prefix: e.Prefix, Lease: Forever})
	}
	return out
}

func selfElements(addrs []netip.Addr) (out []policy.Element) {
	for _, a := range addrs {
		out = append(out, policy.Element{Prefix: netip.PrefixFrom(a, a.BitLen())})
	}
	return out
}
