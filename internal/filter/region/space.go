// Package region reckons with sets of packets: which packets two policies decide otherwise, and who
// gets to what under one.
//
// In go programs of package ir. Out come pairs of rules by which packets are decided otherwise,
// each with an example that the oracle has judged, or the sources of the packets that each rule
// decides. Both are exact for all that a packet says of itself. What only run time knows, whether a
// set holds an address or a limit is reached, is a side of its own that may be either, the same
// one for both policies where it has the same name.
//
// The package needs no privileges. It must never ask the kernel, nor run compiled programs.
package region

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"levee/internal/filter/ir"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// about is the subject of a side.
type about uint8

const (
	ofSource      about = iota // all 32 bits in IPv4, the upper 64 in IPv6
	ofSourceLow                // the lower 64 bits
	ofDestination              // likewise
	ofDestinationLow
	ofNumber  // a numeric field
	ofByte    // a byte of the payload
	ofLater   // 1 for a fragment that is not the first
	ofMessage // a field of a DNS message, or the value of those that lack it
	ofUnknown // what only run time knows: 1 if it is so; the last
)

// side is one thing that rules ask of packets.
type side struct {
	about
	field  field.Field   // ofNumber, ofMessage
	at     int           // ofByte: offset in the payload
	name   string        // ofUnknown: in words, as "the source is in blocked"
	set    *policy.Set   // ofUnknown: whose elements it is about, or nil
	cond   *ir.Cond      // ofUnknown: what asks
	domain []field.Range // all values that there are
}

// Values of sides that no rule can name.
const (
	noByte        = 256 // the payload ends before
	nothingWithin = 2   // of a match of the packet within a tunnel: there is none
)

// sideKey tells sides apart.
type sideKey struct {
	about
	field field.Field
	at    int
	name  string
}

// space is packets of one class with a number of tags, and what is asked of them.
type space struct {
	class ir.Class
	tags  int
	sides []side
	index map[sideKey]int
	lists map[place][][]want // prefixes that several rules share
	// impossible lists the packets that do not exist: a payload has no byte behind one that it
	// lacks, and a first fragment of a protocol with a class of its own is of that class.
	impossible []*rule
	exact      []run // bytes that rules ask for one after the other
	// unsaid are packets of which a test cannot say that they are so, such as one above a limit:
	// what it cannot say is the first want of each.
	unsaid []*rule
	leaves bool           // the packets leave
	whom   policy.Senders // of all policies whose rules ask
	of     []*policy.Policy
	// Of impossible, those that are about what leaves alone: that what is forwarded has no sender,
	// and what answers by its form.
	senderless, byForm []*rule
	asks               *policy.Senders
	begun              map[ir.Class][][]*opening // of classes for which it was asked
}

// newSpace is for packets about which policies are asked, all of the same side.
func newSpace(c ir.Class, tags int, of ...*policy.Policy) *space {
	s := &space{class: c, tags: tags, index: map[sideKey]int{}, lists: map[place][][]want{}}
	s.leaves, s.whom, s.of = of[0].Leaves(), named(of), of
	return s
}

// side returns the number of a side, which is new if nobody has asked for it.
func (s *space) side(n side) int {
	key := sideKey{n.about, n.field, n.at, n.name}
	if i, ok := s.index[key]; ok {
		return i
	}
	switch n.about {
	case ofSource, ofDestination:
		n.domain = []field.Range{{Hi: 1<<32 - 1}}
		if s.class.Family == ir.IPv6 {
			n.domain[0].Hi = 1<<64 - 1
		}
	case ofSourceLow, ofDestinationLow:
		n.domain = []field.Range{{Hi: 1<<64 - 1}}
	case ofByte:
		n.domain = []field.Range{{Hi: noByte}}
	case ofLater:
		n.domain = []field.Range{{Hi: 1}}
	case ofMessage:
		n.domain = messageDomain(n.field)
	case ofUnknown:
		n.domain = []field.Range{{Hi: 1}}
		if n.cond != nil && n.cond.Inner != nil {
			n.domain[0].Hi = nothingWithin
		}
	case ofNumber:
		n.domain = s.class.Domain(n.field)
		if isSender(n.field) {
			n.domain = append(slices.Clip(n.domain), single(n.field.Info().Absent)...)
		}
		if n.field == field.TCPFlags {
			n.domain = []field.Range{{Hi: 255}}
		}
		if n.field == field.Len {
			n.domain = field.Intersect(n.domain, []field.Range{{Lo: s.minLen(), Hi: 1<<32 - 1}})
		}
	}
	s.sides = append(s.sides, n)
	s.index[key] = len(s.sides) - 1
	return len(s.sides) - 1
}

// close notes what no packet is, once all that is asked is known.
func (s *space) close() {
	var bytes []int
	for i := range s.sides {
		if s.sides[i].about == ofByte {
			bytes = append(bytes, i)
		}
	}
	slices.SortFunc(bytes, func(i, k int) int { return s.sides[i].at - s.sides[k].at })
	for i := 1; i < len(bytes); i++ {
		s.impossible = append(s.impossible, &rule{wants: []want{
			{bytes[i-1], single(noByte)}, {bytes[i], []field.Range{{Hi: noByte - 1}}}}})
	}
	if length, ok := s.index[sideKey{about: ofNumber, field: field.Len}]; ok {
		for _, i := range bytes {
			s.impossible = append(s.impossible, &rule{wants: []want{
				{length, []field.Range{{Hi: s.minLen() + uint64(s.sides[i].at)}}},
				{i, []field.Range{{Hi: noByte - 1}}}}})
		}
	}
	s.forwarded()
	s.together()
	if known, ok := s.index[sideKey{about: ofNumber, field: field.Flow}]; ok && s.leaves {
		s.answering(known)
	} else if ok {
		f, answers := field.ICMPType, answers4
		if s.class.Family == ir.IPv6 {
			f, answers = field.ICMP6Type, answers6
		}
		if s.class.Transport == ir.ICMP {
			others := field.Subtract(s.class.Domain(f), answers)
			s.impossible = append(s.impossible, &rule{wants: []want{{known, single(1)},
				{s.number(f), others}}})
		}
	}
	s.impossible = slices.Concat(s.impossible, s.senderless, s.byForm)
	strict, asks := s.index[sideKey{about: ofNumber, field: field.StrictPath}]
	if loose, ok := s.index[sideKey{about: ofNumber, field: field.LoosePath}]; ok && asks {
		s.impossible = append(s.impossible, &rule{wants: []want{{strict, single(1)},
			{loose, single(0)}}})
	}
	// A test has connections begin. Of other memories it cannot say that they hold a packet.
	for f := range field.NumFields {
		info := f.Info()
		if !info.Remembered || info.Kernel != field.NoSide || f == field.Flow {
			continue
		}
		if i, ok := s.index[sideKey{about: ofNumber, field: f}]; ok {
			s.unsaid = append(s.unsaid, &rule{wants: []want{{i, single(1)}}})
		}
	}
	s.messages()
	s.contents()
	if later, ok := s.index[sideKey{about: ofLater}]; ok {
		protocols := field.Subtract(s.class.Domain(field.Proto),
			ir.Class{Family: s.class.Family}.Domain(field.Proto))
		s.impossible = append(s.impossible, &rule{wants: []want{{later, single(0)},
			{s.number(field.Proto), protocols}}})
	}
}

// answers4 and answers6 are what may belong to a known connection, type<<8|code: answers to an
// echo, and errors that quote a packet (RFC 792, RFC 4443).
var (
	answers4 = []field.Range{
		{Hi: 0xff}, {Lo: 3 << 8, Hi: 4<<8 - 1}, {Lo: 11 << 8, Hi: 13<<8 - 1},
	}
	answers6 = []field.Range{{Lo: 1 << 8, Hi: 5<<8 - 1}, {Lo: 129 << 8, Hi: 130<<8 - 1}}
)

// minLen returns how long a well-formed packet of the class is at least, with a header of IP that
// has no options. Later fragments and what is not IP have no header behind that.
func (s *space) minLen() uint64 {
	least := map[ir.Family]uint64{ir.IPv4: 20, ir.IPv6: 40}[s.class.Family]
	if s.class.Fragment && s.class.Family == ir.IPv6 {
		least += 8
	}
	return least + map[ir.Transport]uint64{ir.TCP: 20, ir.UDP: 8, ir.UDPLite: 8, ir.SCTP: 12,
		ir.DCCP: 12, ir.ICMP: 8}[s.class.Transport]
}

// number returns the side of a numeric field. The lower halves of addresses are fields, too.
func (s *space) number(f field.Field) int {
	switch f {
	case field.SrcSuffix:
		return s.side(side{about: ofSourceLow})
	case field.DstSuffix:
		return s.side(side{about: ofDestinationLow})
	}
	return s.side(side{about: ofNumber, field: f})
}

// want is the values of a side for which something holds.
type want struct {
	side   int
	values []field.Range
}

// union is the condition that a packet lies in any of some boxes, or in none of them.
type union struct {
	not   bool
	parts [][]want
}

// rule is one that decides packets. All of its wants and unions have to hold.
type rule struct {
	slot    int
	outcome Outcome
	wants   []want
	unions  []union
	key     string // the same for rules of both policies that ask and do the same
	limit   *policy.Limit
	above   int // the side that is 1 above the limit
	// answered is the side that is 1 of what a cookie answers.
	answered int
}

// Outcome is a packet's fate, in words. That of an action which leads connections elsewhere is its
// word: the packet passes.
type Outcome string

const (
	Drop    Outcome = "drop"
	Pass    Outcome = "pass"
	Answer  Outcome = "answer"                // or dropped, as nobody may answer it
	asFirst Outcome = "as its first fragment" // passes if that has
)

// lower makes rules of those that can decide packets of the space.
func (s *space) lower(p *policy.Policy, rules []ir.Rule) (out []*rule) {
	slots := p.Slots()
	s.asks = &p.Senders
	for i := range rules {
		r := &rules[i]
		text := ""
		if known := slots[r.Slot].Rule; known != nil {
			text = known.Text
		}
		if n, ok := s.outcome(r, &slots[r.Slot]); ok && s.ask(n, text, r.Conds) {
			s.hide(n, slots[r.Slot].Rule)
			slices.SortStableFunc(n.wants, func(a, b want) int { // what is not known last
				return cmp.Compare(s.sides[a.side].about, s.sides[b.side].about)
			})
			n.key = n.text()
			out = append(out, n)
		}
	}
	return out
}

// hide notes which packets at a rule no test of a policy can show: those above a limit, those that
// a cookie without `above` leaves alone, and those that a cookie with `above` answers. Packets of
// clients that a greylist knows are as the second.
func (s *space) hide(n *rule, of *policy.Rule) {
	switch {
	case n.limit != nil:
		s.unsaid = append(s.unsaid, &rule{wants: []want{{n.above, single(1)}}})
	case of != nil && (of.Cookie != nil && of.Cookie.Above > 0 ||
		of.Greylist != nil && of.Greylist.Above > 0):
		s.unsaid = append(s.unsaid, &rule{wants: []want{{n.answered, single(1)}}})
	case of != nil && (of.Cookie != nil || of.Greylist != nil):
		left := &rule{wants: []want{{n.answered, single(0)}}, unions: n.unions}
		for _, w := range n.wants {
			if w.side != n.answered {
				left.wants = append(left.wants, w)
			}
		}
		s.unsaid = append(s.unsaid, left)
	}
}

// outcome returns what a rule does to packets for which its conditions hold, as a rule without
// them; false if it decides none of the space.
func (s *space) outcome(r *ir.Rule, slot *policy.Slot) (*rule, bool) {
	n := &rule{slot: r.Slot, outcome: Drop}
	for _, e := range r.Action.Effects {
		switch {
		case e.Limit != nil:
			s.unknown(n, "above \""+unlabelled(slot.Rule)+"\"", nil)
			n.limit, n.above = e.Limit, n.wants[len(n.wants)-1].side
			return n, true
		case e.Action == action.Cookie:
			over := ir.TCP
			if slot.Rule.Cookie.Answers != action.SYNs {
				over = ir.UDP
			}
			if s.class.Transport != over || s.class.Fragment {
				return nil, false
			}
			s.unknown(n, "answered by \""+unlabelled(slot.Rule)+"\"", nil)
			n.outcome, n.answered = Answer, n.wants[len(n.wants)-1].side
			if over == ir.UDP {
				return n, true
			}
			n.wants = append(n.wants, want{s.number(field.TCPFlags),
				masked(packet.SYN|packet.ACK, packet.SYN, false)})
			return n, true
		case e.Action == action.Greylist:
			s.unknown(n, "come for the first time to \""+unlabelled(slot.Rule)+"\"", nil)
			n.answered = n.wants[len(n.wants)-1].side
			return n, true
		case e.Action == action.Track:
			n.outcome = asFirst
			n.wants = append(n.wants, want{s.side(side{about: ofLater}), single(1)})
			return n, s.class.Transport == ir.Other && s.class.Fragment
		case e.Ring != "":
			n.outcome = redirected(slot.Rule.Ring)
			return n, true
		case e.Action.Info().Next != "":
			n.outcome = Outcome(e.Action.String())
			return n, true
		}
	}
	if r.Action.Verdict == ir.Pass {
		n.outcome = Pass
	}
	return n, r.Action.Decides()
}

// redirected returns the outcome of a rule that hands packets to a ring.
func redirected(to *policy.Ring) Outcome {
	return Outcome(fmt.Sprintf("%s to ring %q else %s", action.Redirect, to.Name, to.Else))
}

// unlabelled returns the text of a rule without its label.
func unlabelled(r *policy.Rule) string {
	return strings.TrimSuffix(r.Text, fmt.Sprintf(" as %q", r.Label))
}

// unknown has a rule ask for something that only run time knows to be so.
func (s *space) unknown(n *rule, name string, c *ir.Cond) {
	u := side{about: ofUnknown, name: name, cond: c}
	value := uint64(1)
	if c != nil {
		if u.set = c.Set; c.Names != nil && c.Names.Dynamic() {
			u.set = c.Names.Set
		}
		if c.Not {
			value = 0
		}
	}
	n.wants = append(n.wants, want{s.side(u), single(value)})
}

func single(v uint64) []field.Range { return []field.Range{{Lo: v, Hi: v}} }

// masked returns the flags of which some have values, or others than those.
func masked(mask, value uint8, not bool) (out []field.Range) {
	for v := range uint64(256) {
		if (uint8(v)&mask == value) != not {
			out = append(out, field.Range{Lo: v, Hi: v})
		}
	}
	return field.Join(out)
}

// text returns what tells rules apart, but for their slots.
func (r *rule) text() string {
	wants := slices.Clone(r.wants)
	slices.SortStableFunc(wants, func(a, b want) int { return a.side - b.side })
	b := append([]byte(r.outcome), 0)
	b = appendWants(b, wants)
	for _, u := range r.unions {
		b = append(b, 'u')
		if u.not {
			b = append(b, '!')
		}
		for _, p := range u.parts {
			b = appendWants(append(b, 'p'), p)
		}
	}
	return string(b)
}

// appendWants appends what tells lists of wants apart.
func appendWants(b []byte, wants []want) []byte {
	for _, w := range wants {
		b = binary.AppendUvarint(b, uint64(w.side))
		b = binary.AppendUvarint(b, uint64(len(w.values)))
		for _, v := range w.values {
			b = binary.AppendUvarint(binary.AppendUvarint(b, v.Lo), v.Hi)
		}
	}
	return b
}
