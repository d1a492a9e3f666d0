package region

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/filter/ir"
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// long is the length of packets before, where rules ask for one.
const long = " len 1400"

// answered are the words for a SYN-ACK that leaves. Its answer acknowledges 0, as packets do whose
// words say nothing of it.
const answered = " flags syn,ack seq 4294967295"

// known are packets that make the connection of the packet known, in the ways in which that may be.
// Rules have to pass those packets, too. So they are also made like the packet itself, longer, and
// sent by each whom rules name.
func (p *point) known() (ways [][]Step) {
	s := p.words()
	src, _ := p.addr(true)
	dst, _ := p.addr(false)
	from, _ := p.number(field.SrcPort, usualPort[field.SrcPort])
	to, _ := p.number(field.DstPort, usualPort[field.DstPort])
	family := strings.Join(p.family(), " ")
	ports := func(from, to uint64) string {
		if p.class.Transport == ir.ICMP {
			return ""
		}
		return fmt.Sprintf(" from port %d port %d", from, to)
	}
	by := "" // who sends the packet
	for _, word := range s.sender {
		by += " " + word
	}
	same := func(more string) Step {
		if p.leaves {
			more += by
		}
		return Step{fmt.Sprintf("%s from %s to %s", family, src, dst) + ports(from, to) + more,
			p.leaves}
	}
	// back returns the ways in which the other side answers; where it is this machine, by whomever
	// rules name.
	back := func(more ...string) (all []Step) {
		senders := []string{""}
		if !p.leaves {
			senders = append(senders, p.senders()...)
		}
		for _, words := range more {
			for _, sender := range senders {
				all = append(all, Step{fmt.Sprintf("%s from %s to %s", family, dst, src) +
					ports(to, from) + words + sender, !p.leaves})
			}
		}
		return all
	}
	after := func(first ...Step) func(Step) []Step {
		return func(s Step) []Step { return append(slices.Clone(first), s) }
	}
	each := func(steps []Step, way func(Step) []Step) {
		for _, s := range steps {
			ways = append(ways, way(s))
		}
	}
	first, before := "", "" // of packets of the other side, and of this one
	switch {
	case p.by == nil:
	case p.by.group:
		words := fmt.Sprintf("%s from %s from port %d", family, dst, to)
		return [][]Step{{{words + p.by.words, true}}}
	case p.by.same:
		before = p.by.words
	default:
		first = p.by.words
	}
	if before != "" {
		by = ""
	}
	// Drawn packets are many, and have one such form each.
	forms := func(all ...string) []string {
		if p.rnd != nil {
			return all[:1]
		}
		return all
	}
	switch {
	case p.class.Transport == ir.TCP && p.leaves:
		ways = append(ways, nil)
		answers := back(forms(" flags syn,ack", " flags syn,ack"+long, " flags syn,ack"+first)...)
		each(answers, after(same(" syn"+before)))
		if p.rnd == nil {
			each(answers, after(same(" syn"+long)))
		}
	case p.class.Transport == ir.TCP:
		each(back(" syn", answered, " flags ack"), after())
		if p.rnd == nil {
			each(back(" syn"+long, " flags ack"+long), after())
			each(back(" syn"+first, answered+first, " flags ack"+first), after())
		}
	case p.class.Transport == ir.UDP && p.leaves:
		answers := back(forms("", long, first, s.size())...)
		each(answers, after())
		each(answers, after(same(before)))
		each(answers, after(Step{s.String(), true}))
		if p.rnd == nil {
			each(answers, after(same(long)))
		}
	case p.class.Transport == ir.UDP, p.class.Transport == ir.ICMP && !p.leaves:
		each(back(forms("", long, first)...), after())
	default:
		ways = append(ways, nil)
	}
	return ways
}

// quotes says whether the packet is an error that belongs to a connection of another protocol.
func (p *point) quotes() bool {
	return p.by != nil && p.by.class.Transport != p.class.Transport
}

// quoting has the packet quote one that has left before, and returns that; none if it is no packet.
func (p *point) quoting() [][]Step {
	src, _ := p.addr(true)
	dst, _ := p.addr(false)
	of := point{space: p.space, class: p.by.class}
	words := fmt.Sprintf("%s from %s to %s", strings.Join(of.family(), " "), dst, src)
	for f, word := range [...]string{field.SrcPort: " port", field.DstPort: " from port"} {
		values := p.by.asked[sideKey{about: ofNumber, field: field.Field(f)}]
		if values != nil {
			words += fmt.Sprint(word, " ", values[0].Lo)
		}
	}
	if of.class.Transport == ir.TCP {
		words += " syn"
	}
	left := Step{words + p.by.words, true}
	frame, _, ok := frameOf(left.Packet)
	if !ok {
		return nil
	}
	var is packet.Packet
	packet.Decode(frame, &is)
	least := is.NetworkOffset + int((&space{class: of.class}).minLen())
	p.quote = frame[is.NetworkOffset:least]
	return [][]Step{{left}}
}

// mostSenders bounds the senders that examples try for earlier packets.
const mostSenders = 16

// senders are the words for each whom rules name as sender.
func (p *point) senders() (all []string) {
	for _, f := range senderFields {
		list := p.whom.Of(f)
		if list == nil {
			continue
		}
		for _, name := range *list {
			all = append(all, fmt.Sprintf(" %s %q", f.Word(), name))
		}
	}
	return all[:min(len(all), mostSenders)]
}
