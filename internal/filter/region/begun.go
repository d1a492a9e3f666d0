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

// begun is packets that a rule passes while nothing is known, so that a connection may begin with
// them.
type begun struct {
	class   ir.Class
	same    bool                      // they are of the same side as the packet
	group   bool                      // they ask a group, of whose members any may answer
	asked   map[sideKey][]field.Range // addresses and ports, as the packet has them
	words   string                    // for what else one has: length and payload, who sends it
	entries []Entry                   // that the rule asks for
}

// opening is rules that pass packets with which connections may begin.
type opening struct {
	*space
	rules []*rule
	same  bool
}

// Bounds of the search for packets with which connections begin.
const (
	mostBegun  = 16      // of a class that the rules of one policy pass
	begunSteps = 1 << 10 // for a packet of one rule
)

// otherRules are the words for connections of which no packet passes as the first by the rules of
// both policies. One that is older than a policy goes on under it.
const otherRules = "the connection began under other rules"

// beginning is a search for an example of a difference by the packets with which connections begin.
type beginning struct {
	*comparison
	space  *space
	of     *Difference
	known  int // the side that is 1 of what belongs to a connection
	where  box
	unions []union
	none   []*rule
}

// example returns an example from packets that belong to no connection, and from those of
// connections that rules let begin. It is false if there are no such packets by the rules of one of
// the policies.
func (l *beginning) example(classes []ir.Class) (e *Example, began bool) {
	if e, began = l.within(classes, want{l.known, single(0)}); e != nil {
		return e, true
	}
	is := want{l.known, single(1)}
	where, ok := l.space.within(l.where, []want{is})
	if !ok {
		return nil, began
	}
	for _, class := range classes {
		var but []begun // to which no packet of the difference belongs
		for range mostBegun {
			all, none := l.space.beginnings(class, where, but)
			if none {
				break
			}
			n := len(but)
			for _, b := range all {
				wants := []want{is}
				for key, values := range b.asked {
					if i, ok := l.space.index[key]; ok {
						wants = append(wants, want{i, values})
					}
				}
				e, some := l.within([]ir.Class{class}, wants...)
				if e != nil {
					return e, true
				}
				if !some && !b.group {
					but = append(but, b)
				}
			}
			if len(but) == n || len(but) >= mostBegun {
				began = true
				break
			}
		}
	}
	return nil, began
}

// within returns an example of which more is wanted; false if there are no such packets.
func (l *beginning) within(classes []ir.Class, wants ...want) (e *Example, some bool) {
	where, ok := l.space.within(l.where, wants)
	if !ok {
		return nil, false
	}
	look := &search{l.space, maxSteps}
	shown, ok := look.find(where, l.unions, l.none)
	if !ok {
		return nil, look.left < 0
	}
	return l.comparison.example(l.space, shown, classes, l.of), true
}

// openings returns the rules by which connections of a class begin, for each policy: those of what
// leaves for packets that arrive; for those that leave both, since over UDP and TCP either side may
// begin.
func (s *space) openings(c ir.Class) [][]*opening {
	c.Fragment = false
	if known, ok := s.begun[c]; ok {
		return known
	}
	of := []ir.Transport{c.Transport}
	if c.Transport == ir.ICMP && !s.leaves {
		of = append(of, ir.UDP, ir.TCP)
	}
	var out [][]*opening
	for _, p := range s.of {
		other := p.Whole()
		if !p.Leaves() {
			other = leaving(other)
		}
		sides := []*policy.Policy{other}
		if s.leaves {
			sides = append(sides, p)
		}
		var all []*opening
		for i, side := range sides {
			prog := ir.Build(side)
			for _, t := range of {
				whole := ir.Class{Family: c.Family, Transport: t}
				first := whole
				first.Fragment = true
				all = append(all, newOpening(whole, side, prog, i > 0))
				if &prog.Lists[whole.Index()][0] != &prog.Lists[first.Index()][0] {
					all = append(all, newOpening(first, side, prog, i > 0))
				}
			}
		}
		out = append(out, all)
	}
	if s.begun == nil {
		s.begun = map[ir.Class][][]*opening{}
	}
	s.begun[c] = out
	return out
}

func newOpening(c ir.Class, p *policy.Policy, prog *ir.Program, same bool) *opening {
	o := &opening{space: newSpace(c, 0, p), same: same}
	o.rules = o.lower(p, prog.Lists[c.Index()])
	o.close()
	return o
}

// beginnings returns packets with which connections may begin to which packets of a box belong,
// from rules of either policy, but for some that are known. It is none if by one of the policies no
// such connection begins. An error that arrives belongs to the connection of the packet that it
// quotes.
func (s *space) beginnings(c ir.Class, b box, but []begun) (all []begun, none bool) {
	seen := map[string]bool{}
	for _, openings := range s.openings(c) {
		begins := s.leaves && c.Transport != ir.UDP // some by their form
		for _, o := range openings {
			found, more := o.begin(s, b, c, but, false)
			if len(found) == 0 && !more && c.Transport == ir.UDP && !s.leaves {
				found, more = o.begin(s, b, c, nil, true)
			}
			begins = begins || more || len(found) > 0
			for _, n := range found {
				if key := fmt.Sprint(n); !seen[key] {
					seen[key] = true
					all = append(all, n)
				}
			}
		}
		none = none || !begins
	}
	return all, none
}

// begin returns a packet for each of the rules that pass some while nothing is known, with the
// addresses and ports of a box of another space, and not those of some others. more says that there
// may be further ones. Of a group the other side's are not asked.
func (o *opening) begin(of *space, b box, c ir.Class, but []begun, group bool) (all []begun,
	more bool) {
	quotes := o.class.Transport != c.Transport
	end := func(key sideKey, values []field.Range) want {
		if !o.same {
			key = mirrored[key]
		}
		return want{o.side(side{about: key.about, field: key.field}), values}
	}
	var ends []want
	for key := range mirrored {
		if i, ok := of.index[key]; ok && i < len(b) && b[i] != nil &&
			!(quotes && key.about == ofNumber) && (!group || localEnd[key]) {
			ends = append(ends, end(key, b[i]))
		}
	}
	var known []*rule
	for i := range but {
		r := &rule{}
		for key, values := range but[i].asked {
			r.wants = append(r.wants, end(key, values))
		}
		known = append(known, r)
	}
	begins := o.firsts()
	for i, r := range o.rules {
		if len(all) == mostBegun {
			return all, true
		}
		if r.outcome != Pass {
			more = more || r.outcome != Drop
			continue
		}
		none := slices.Concat(o.impossible, known, o.rules[:i])
		for _, wants := range begins {
			asked, ok := o.within(nil, slices.Concat(ends, wants))
			if ok {
				asked, ok = o.within(asked, r.wants)
			}
			if !ok {
				continue
			}
			look := &search{o.space, begunSteps}
			where, ok := look.find(asked, r.unions, slices.Concat(o.unsaid, none))
			if !ok {
				if len(o.unsaid) > 0 && look.left >= 0 { // some that no test has
					_, ok = look.find(asked, r.unions, none)
				}
				more = more || ok || look.left < 0
				continue
			}
			p := &point{space: o.space, box: where, class: o.class}
			if i, ok := of.index[sideKey{about: ofSource}]; ok && group {
				p.near = of.values(b, i)[0].Lo
			}
			if n, ok := p.begins(o.same, group); ok {
				all = append(all, n)
			} else {
				more = true
			}
		}
	}
	return all, more
}

// firsts returns what packets ask for by which a connection begins, each list for itself: that
// nothing is known, or a SYN-ACK that leaves, which answers by its form. A RST begins none, and of
// ICMP a request does.
func (s *space) firsts() [][]want {
	var first []want
	switch s.class.Transport {
	case ir.TCP:
		first = []want{{s.number(field.TCPFlags), masked(packet.RST, 0, false)}}
	case ir.ICMP:
		f, request := field.ICMPType, uint64(8<<8)
		if s.class.Family == ir.IPv6 {
			f, request = field.ICMP6Type, 128<<8
		}
		first = []want{{s.number(f), single(request)}}
	}
	known, asked := s.index[sideKey{about: ofNumber, field: field.Flow}]
	if !asked {
		return [][]want{first}
	}
	all := [][]want{append(slices.Clip(first), want{known, single(0)})}
	if s.leaves && s.class.Transport == ir.TCP {
		const both = packet.SYN | packet.ACK
		all = append(all, []want{{s.number(field.TCPFlags), masked(both|packet.RST, both, false)}})
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

// localEnd are those of the side that the policy is for, of what arrives.
var localEnd = map[sideKey]bool{{about: ofDestination}: true, {about: ofDestinationLow}: true,
	{about: ofNumber, field: field.DstPort}: true}

// begins returns the packet as one with which a connection begins; false if none can be made.
func (p *point) begins(same, group bool) (b begun, ok bool) {
	b = begun{class: p.class, same: same, group: group, asked: map[sideKey][]field.Range{}}
	if b.entries, ok = p.entries(); !ok {
		return b, false
	}
	put := func(key sideKey, values []field.Range) {
		if !same {
			key = mirrored[key]
		}
		if !group || localEnd[key] {
			b.asked[key] = values
		}
	}
	for key := range mirrored {
		if i, ok := p.index[key]; ok && i < len(p.box) && p.box[i] != nil {
			put(key, p.box[i])
		}
	}
	src, _ := p.addr(true)
	dst, _ := p.addr(false)
	if len(b.entries) > 0 || group { // entries are of these addresses
		for about, a := range map[about]netip.Addr{ofSource: src, ofDestination: dst} {
			high, low := halves(a)
			put(sideKey{about: about}, single(high))
			if p.class.Family == ir.IPv6 {
				put(sideKey{about: about + 1}, single(low))
			}
		}
	}
	for _, word := range slices.Concat(p.hops(), p.rest(), p.wayBack(), p.sender()) {
		b.words += " " + word
	}
	if group {
		port, _ := p.number(field.DstPort, usualPort[field.DstPort])
		b.words = fmt.Sprintf(" to %s port %d ether to 33:33:00:00:00:01", dst, port) + b.words
		b.asked[sideKey{about: ofSource}] = onLink(src)
	}
	return b, true
}

// onLink returns the addresses, of IPv6 the upper halves, that answer who asks a group
// (docs/reference/connections.md).
func onLink(a netip.Addr) []field.Range {
	high, _ := halves(a)
	switch {
	case a.Is6():
		return single(high)
	case a.IsPrivate(), a.IsLinkLocalUnicast():
		return []field.Range{{Lo: high &^ 0xffff, Hi: high | 0xffff}}
	}
	return []field.Range{{Lo: high &^ 0xff, Hi: high | 0xff}}
}
