package guard

import (
	"fmt"
	"net/netip"

	"levee/internal/filter/ir"
	"levee/internal/filter/oracle"
	"levee/internal/host/session"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// answers returns the kinds of packets of a session that leave: its own, and those by which this
// machine looks for the neighbour or answers it.
func answers(s session.Session, link packet.Link) []kind {
	back := s
	back.Local, back.Remote = s.Remote, s.Local
	back.SrcMAC, back.DstMAC, back.Neighbour = s.DstMAC, s.SrcMAC, netip.Addr{}
	own := arriving(back, link)[0]
	own.needs = "what it answers"
	own.remedy = fmt.Sprintf("out protect to %s tcp from port %d", s.Remote.Addr(), s.Local.Port())
	all := []kind{own}
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

// checkAnswers is a *CutError if a policy would drop what leaves of a session.
func checkAnswers(p *policy.Policy, prog *ir.Program, s session.Session, link packet.Link,
	entries Entries) error {
	if prog.Out == nil {
		return nil
	}
	for _, k := range answers(s, link) {
		k.Has = entries.has
		if d := prog.Out.FirstDropped(&k.Traffic); d != nil {
			return &CutError{Session: s, Needs: k.needs,
				Decider: oracle.Decider(p, p.Slots()[d.Slot]), Remedy: k.remedy}
		}
	}
	return nil
}
