package guard

import (
	"fmt"
	"net/netip"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
	"levee/internal/host/session"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// answers returns the kinds of packets of a session that leave: its own, and those by which this
// machine looks for the neighbour or answers it.
func answers(p *policy.Policy, s session.Session, link packet.Link) []packets {
	back := s
	back.Local, back.Remote = s.Remote, s.Local
	back.SrcMAC, back.DstMAC, back.Neighbour = s.DstMAC, s.SrcMAC, netip.Addr{}
	own := arriving(back, link)[0]
	own.needs = "what it answers"
	own.remedy = fmt.Sprintf("out protect to %s tcp from port %d", s.Remote.Addr(), s.Local.Port())
	if s.Own {
		own.Known[field.Local] = one(1)
		own.Known[field.UID] = one(uint64(s.UID))
		own.Known[field.User] = usersOf(&p.Senders, s.Users)
	}
	all := []packets{own}
	if !s.Neighbour.IsValid() || link == packet.L3 {
		return all
	}
	back.Local = netip.AddrPortFrom(s.Neighbour, s.Remote.Port())
	back.Neighbour = s.Local.Addr()
	if s.Neighbour.Is4() {
		all = append(all, arp(back)...)
	} else {
		all = append(all, discovery(back)...)
	}
	for i := range all[1:] {
		all[1+i].remedy = "out " + all[1+i].remedy
	}
	return all
}

// usersOf returns the places that a user, by his own names, has among those that a policy names; 0
// is of all others.
func usersOf(of *policy.Senders, names []string) (places []field.Range) {
	for i, name := range of.Users {
		if slices.Contains(names, name) {
			places = append(places, field.Range{Lo: uint64(i) + 1, Hi: uint64(i) + 1})
		}
	}
	if places == nil {
		return one(0)
	}
	return field.Join(places)
}

// checkAnswers is a *CutError if a policy would drop what leaves of a session.
func checkAnswers(p *policy.Policy, prog *ir.Program, s session.Session, link packet.Link,
	entries Entries) error {
	if prog.Out == nil {
		return nil
	}
	all := answers(p, s, link)
	for _, k := range all {
		k.Has = entries.has
		if d := prog.Out.FirstDropped(&k.Traffic); d != nil {
			return &CutError{Session: s, Needs: k.needs,
				Decider: oracle.Decider(p, p.Slots()[d.Slot]), Remedy: k.remedy}
		}
	}
	return starved(p, prog.Out, s, &all[0], entries)
}
