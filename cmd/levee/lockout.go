package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"levee/internal/filter/oracle"
	"levee/internal/host/linklayer"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// session is one established TCP connection of this machine that must survive a new policy.
type session struct {
	local, remote netip.AddrPort
	what          string   // "the connection that this command is being run over", "an SSH session"
	tags          []uint16 // VLAN ids with which its packets arrive, outermost first
}

// refuseLockout refuses a policy that would drop packets of a session that arrive on dev.
//
// The sessions are those of this network namespace that belong to an SSH server, or to one of the processes that this
// one descends from. Where the kernel does not tell (no sock_diag), nothing is known and nothing refused: --confirm is
// the net below.
func (e *env) refuseLockout(p *policy.Policy, dev string) error {
	sessions, err := sessionsOn(dev)
	var noDev netlink.LinkNotFoundError
	if errors.As(err, &noDev) || errors.As(err, new(*linklayer.NotEthernet)) {
		return nil // for the one who attaches to say
	}
	if err != nil {
		e.sayf("cannot look for SSH sessions that the policy might cut: %v", err)
		return nil
	}
	ev := oracle.New(p)
	for _, s := range sessions {
		frames, err := s.frames()
		if err != nil {
			return err
		}
		for _, frame := range frames {
			if r := ev.Eval(frame); r.Action == policy.Drop {
				return fmt.Errorf("refused: %s, from %s to %s, would be dropped by %s; let it pass (`protect from %s tcp port %d`), or use --force",
					s.what, s.remote, s.local, oracle.Decider(p, p.Slots()[r.Slot]), s.remote.Addr(), s.local.Port())
			}
		}
	}
	return nil
}

// Lengths of IP packets that a session is tried with: a bare acknowledgement with time stamps, and a full segment.
var sessionLengths = [...]int{72, 1400}

// frames are packets as they arrive from the other end.
func (s session) frames() ([][]byte, error) {
	var frames [][]byte
	from, to, flags, proto := s.remote.Port(), s.local.Port(), uint8(packet.ACK), uint8(packet.ProtoTCP)
	for _, n := range sessionLengths {
		spec := packet.Spec{
			From: s.remote.Addr(), To: s.local.Addr(), Proto: &proto, FromPort: &from, ToPort: &to, Flags: &flags, Len: &n,
		}
		if len(s.tags) > 0 {
			spec.VLAN = &s.tags[0]
		}
		if len(s.tags) > 1 {
			spec.InnerVLAN = &s.tags[1]
		}
		f, err := packet.Build(spec)
		if err != nil {
			return nil, fmt.Errorf("make a packet of the session with %s: %w", s.remote, err)
		}
		frames = append(frames, f)
	}
	return frames, nil
}

// sessionsOn lists the sessions whose packets arrive on dev, or on an interface on top of it (VLAN, bridge,
// bond): the local address stands there, or the way back leads there.
func sessionsOn(dev string) ([]session, error) {
	all, err := sessions()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	above, err := interfacesAbove(dev)
	if err != nil {
		return nil, err
	}
	var out []session
	for _, s := range all {
		if index, ok := arrivesOn(s, above); ok {
			s.tags = above[index]
			out = append(out, s)
		}
	}
	return out, nil
}

// interfacesAbove maps the indices of dev and of what is built on it to the VLAN ids that their packets carry on dev.
func interfacesAbove(dev string) (map[int][]uint16, error) {
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return nil, fmt.Errorf("look up interface %q: %w", dev, err)
	}
	if err := linklayer.Ethernet(l); err != nil {
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
func arrivesOn(s session, above map[int][]uint16) (int, bool) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err == nil {
		for _, a := range addrs {
			ip, ok := netip.AddrFromSlice(a.IP)
			if _, here := above[a.LinkIndex]; here && ok && ip.Unmap() == s.local.Addr() {
				return a.LinkIndex, true
			}
		}
	}
	routes, err := netlink.RouteGet(s.remote.Addr().AsSlice())
	if err != nil || len(routes) == 0 {
		return 0, false
	}
	_, here := above[routes[0].LinkIndex]
	return routes[0].LinkIndex, here
}
