package sets

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// Endpoint holds the addresses at which packets of one machine arrive; zero: it has none.
type Endpoint struct {
	MAC        [6]byte
	IPv4, IPv6 netip.Addr
}

// Destination returns where a packet to an interface of this network namespace goes: the first
// address of each family that it has, one that is not link-local before one that is. Where it has
// none of either family, as a port of a bridge, it is the first of the machine.
func Destination(dev string) (*Endpoint, error) {
	link, err := netlink.LinkByName(dev)
	if err != nil {
		return nil, attach.NoInterface(dev)
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

// Among tells whether a prefix is one of some, which are in order.
func Among(all []netip.Prefix, p netip.Prefix) bool {
	_, found := slices.BinarySearchFunc(all, p, netip.Prefix.Compare)
	return found
}

// Reachable reports whether hosts beyond the link can send to a destination.
func Reachable(p netip.Prefix) bool {
	a := p.Addr()
	return !a.IsLoopback() && !a.IsLinkLocalUnicast() && a != limitedBroadcast
}

var limitedBroadcast = netip.MustParseAddr("255.255.255.255")

// RoomFor returns an error where a set of this machine's destinations has no room for them.
func RoomFor(name string, room int, there []netip.Prefix) error {
	if len(there) <= room {
		return nil
	}
	return fmt.Errorf("this machine has %d addresses and local routes, and %q holds %d at most: "+
		"define a set of them instead", len(there), name, room)
}

func FillWith(at Place, ps *policy.Set, there []netip.Prefix) error {
	s, err := Access(at, ps.Name, ps.Type, ps.Lease)
	if err != nil {
		return err
	}
	defer s.Close()
	s.Mend()
	has := map[policy.Element]bool{}
	for _, e := range selfElements(there) {
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

// TellSelf updates `self` of the policy on an interface, and on those that share the policy, with
// the destinations that the machine has now. What somebody else has put there stays. It does
// nothing where the policy has no such set.
func TellSelf(ctx context.Context, dev string, gone, there []netip.Prefix) error {
	name, err := selfOn(ctx, dev, there)
	if err != nil || name == "" {
		return err
	}
	if _, _, err := Delete(ctx, dev, name, selfElements(gone)); err != nil {
		return err // first, so that there is room
	}
	_, err = Add(ctx, dev, name, selfEntries(there))
	return err
}

// ResetSelf makes `self` of the policy on an interface, on no other, hold these destinations alone.
func ResetSelf(ctx context.Context, dev string, there []netip.Prefix) error {
	name, err := selfOn(ctx, dev, there)
	if err != nil || name == "" {
		return err
	}
	_, err = eachSet(ctx, dev, name, func(sets []*Set) error {
		for _, s := range sets {
			if s.dev != dev {
				continue
			}
			var gone []policy.Element
			for _, e := range s.Maps[0].entries() {
				if !Among(there, e.Prefix) {
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

// selfOn returns the name of the set of the machine's destinations that the policy on an interface
// has, "" if it has none: a policy may define another set of its name. It has room for these.
func selfOn(ctx context.Context, dev string, there []netip.Prefix) (name string, err error) {
	err = store.Transact(ctx, func(s *store.Store) error {
		a, err := generation.Find(s, dev)
		if err != nil {
			return err
		}
		defer a.Close()
		for _, info := range a.Current().Sets {
			if info.Self {
				name = info.Name
				return RoomFor(name, info.Max, there)
			}
		}
		return nil
	})
	return name, err
}

func selfEntries(there []netip.Prefix) (out []Entry) {
	for _, p := range there {
		out = append(out, Entry{Prefix: p, Lease: Forever})
	}
	return out
}

func selfElements(there []netip.Prefix) (out []policy.Element) {
	for _, p := range there {
		out = append(out, policy.Element{Prefix: p})
	}
	return out
}
