package region

import (
	"fmt"
	"net/netip"
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// begun is packets that a rule of the other side passes while nothing is known, so that a
// connection may begin with them.
type begun struct {
	class   ir.Class
	asked   map[sideKey][]field.Range // addresses and ports, as packets of this side have them
	words   string                    // for what else one has: length and payload, who sends it
	entries []Entry                   // that the rule asks for
}

// beginnings are packets with which connections of a class begin.
type beginnings struct {
	all  []begun
	more bool // there may be others
}

// Bounds of the search for packets with which connections begin.
const (
	mostBegun  = 16      // of a class that the rules of one policy pass
	begunSteps = 1 << 10 // for a packet of one rule
)

// beginnings returns what the rules of the other side pass of a class. An error that arrives
// belongs to a connection by the packet that it quotes, so that there are others for these.
func (s *space) beginnings(c ir.Class) beginnings {
	c.Fragment = false
	if known, ok := s.begun[c]; ok {
		return known
	}
	of := []ir.Transport{c.Transport}
	if c.Transport == ir.ICMP && !s.leaves {
		of = append(of, ir.UDP, ir.TCP)
	}
	var out beginnings
	for _, p := range s.of {
		other := p.Whole()
		if !p.Leaves() {
			other = leaving(other)
		}
		prog := ir.Build(other)
		for _, t := range of {
			begins := ir.Class{Family: c.Family, Transport: t}
			out.add(begins, other, prog.Lists[begins.Index()])
		}
	}
	if s.begun == nil {
		s.begun = map[ir.Class]beginnings{}
	}
	s.begun[c] = out
	return out
}

// add adds a packet of a class for each of the rules that pass some while nothing is known.
func (all *beginnings) add(c ir.Class, p *policy.Policy, rules []ir.Rule) {
	s := newSpace(c, 0, p)
	list := s.lower(p, rules)
	s.close()
	begins := s.beginning()
	seen := map[string]bool{}
	for i, r := range list {
		if len(seen) == mostBegun {
			all.more = true
			break
		}
		if r.outcome != Pass {
			continue
		}
		none := slices.Concat(s.impossible, s.unsaid, list[:i])
		for _, wants := range begins {
			asked, ok := s.within(nil, slices.Concat(r.wants, wants))
			if !ok {
				continue
			}
			look := &search{s, begunSteps}
			where, ok := look.find(asked, r.unions, none)
			all.more = all.more || look.left < 0 || ok && !where.is(asked)
			if !ok {
				continue
			}
			b, ok := (&point{space: s, box: where, class: c}).begins()
			if key := fmt.Sprint(b); ok && !seen[key] {
				seen[key] = true
				all.all = append(all.all, b)
			}
		}
	}
}

// beginning returns what packets ask for by which a connection begins, each list for itself: that
// nothing is known, or a SYN-ACK that leaves, which answers by its form.
func (s *space) beginning() [][]want {
	known, asked := s.index[sideKey{about: ofNumber, field: field.Flow}]
	if !asked {
		return [][]want{nil}
	}
	all := [][]want{{{known, single(0)}}}
	if s.leaves && s.class.Transport == ir.TCP {
		const both = packet.SYN | packet.ACK
		all = append(all, []want{{s.number(field.TCPFlags), single(both)}})
	}
	return all
}

// mirrored are the sides that addresses and ports of one direction have in the other.
var mirrored = map[sideKey]sideKey{
	{about: ofSource}:                       {about: ofDestination},
	{about: ofSourceLow}:                    {about: ofDestinationLow},
	{about: ofDestination}:                  {about: ofSource},
	{about: ofDestinationLow}:               {about: ofSourceLow},
	{about: ofNumber, field: field.SrcPort}: {about: ofNumber, field: field.DstPort},
	{about: ofNumber, field: field.DstPort}: {about: ofNumber, field: field.SrcPort},
}

// begins returns the packet as one with which a connection begins; false if none can be made.
func (p *point) begins() (b begun, ok bool) {
	b.class, b.asked = p.class, map[sideKey][]field.Range{}
	if b.entries, ok = p.entries(); !ok {
		return b, false
	}
	for key, other := range mirrored {
		if i, ok := p.index[key]; ok && i < len(p.box) && p.box[i] != nil {
			b.asked[other] = p.box[i]
		}
	}
	if len(b.entries) > 0 { // which are of these addresses
		src, _ := p.addr(true)
		dst, _ := p.addr(false)
		for key, a := range map[sideKey]netip.Addr{{about: ofDestination}: src,
			{about: ofSource}: dst} {
			high, low := halves(a)
			b.asked[key] = single(high)
			if p.class.Family == ir.IPv6 {
				key.about++
				b.asked[key] = single(low)
			}
		}
	}
	for _, word := range slices.Concat(p.hops(), p.rest(), p.wayBack(), p.sender()) {
		b.words += " " + word
	}
	return b, true
}

// fits says whether the packet may have the addresses and ports with which the connection begins.
func (p *point) fits() bool {
	for key := range p.by.asked {
		values := p.begun(key)
		i, ok := p.index[key]
		if ok && values != nil && relate(p.values(p.box, i), values) == none {
			return false
		}
	}
	return true
}
