package region

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/filter/ir"
	"levee/internal/lang/field"
)

// ask adds conditions to a rule whose text is given; false if no packet of the space meets them.
func (s *space) ask(n *rule, text string, conds []ir.Cond) bool {
	inners := 0
	for i := range conds {
		c := &conds[i]
		compare := c.Field.Info().Compare
		switch {
		case c.Dynamic():
			s.unknown(n, positive(c), c)
		case compare == field.ByRange && tagged(c.Field):
			if !s.askTags(n, c) {
				return false
			}
		case compare == field.ByRange:
			n.wants = append(n.wants, want{s.number(c.Field), s.renamed(c.Field, c.Ranges)})
		case compare == field.ByMask:
			n.wants = append(n.wants,
				want{s.number(c.Field), masked(c.Mask, c.Value, c.Not)})
		case compare == field.ByPrefix:
			s.askAddress(n, c)
		case compare == field.ByPair:
			s.askPairs(n, c)
		case compare == field.ByBytes:
			s.askBytes(n, c)
		case compare == field.ByMessage:
			s.askMessage(n, c)
		case compare == field.ByName:
			s.askName(n, c)
		case c.Field == field.Stream: // of one that is unknown neither it nor its negation holds
			s.unknown(n, c.String(), nil)
		case c.Inner != nil:
			s.unknown(n, innerText(text, inners), c)
			s.unsaid = append(s.unsaid, &rule{wants: []want{
				{n.wants[len(n.wants)-1].side, []field.Range{{Hi: nothingWithin - 1}}}}})
			inners++
		default:
			s.unknown(n, positive(c), c)
		}
	}
	return true
}

// tagged says whether a field is of VLAN tags, whose number the space knows.
func tagged(f field.Field) bool {
	return f == field.Tags || f == field.VLAN || f == field.InnerVLAN
}

// askTags asks for tags; false if packets of the space have not got them.
func (s *space) askTags(n *rule, c *ir.Cond) bool {
	switch {
	case c.Field == field.Tags:
		return len(field.Intersect(c.Ranges, single(uint64(s.tags)))) > 0
	case c.Field == field.VLAN && s.tags < 1, c.Field == field.InnerVLAN && s.tags < 2:
		return false
	}
	n.wants = append(n.wants, want{s.number(c.Field), c.Ranges})
	return true
}

// askAddress asks for addresses in prefixes.
func (s *space) askAddress(n *rule, c *ir.Cond) {
	sourceSide := c.Field == field.SrcAddr
	parts := s.prefixParts(sourceSide, c.Prefixes)
	switch {
	case len(parts) == 1 && len(parts[0]) == 1:
		w := parts[0][0]
		if c.Not {
			w.values = field.Subtract(s.sides[w.side].domain, w.values)
		}
		n.wants = append(n.wants, w)
	case len(parts) == 1 && !c.Not:
		n.wants = append(n.wants, parts[0]...)
	default:
		n.unions = append(n.unions, union{c.Not, parts})
	}
}

// addressSides returns the sides of one address.
func (s *space) addressSides(source bool) (high, low int) {
	if source {
		high = s.side(side{about: ofSource})
	} else {
		high = s.side(side{about: ofDestination})
	}
	if s.class.Family != ir.IPv6 {
		return high, -1
	}
	if source {
		return high, s.side(side{about: ofSourceLow})
	}
	return high, s.side(side{about: ofDestinationLow})
}

// place is the memory of a list of prefixes, with the side of the packet that it is about.
type place struct {
	first  *netip.Prefix
	n      int
	source bool
}

// prefixParts are prefixes as boxes. Those of up to 64 bits are one box.
func (s *space) prefixParts(source bool, prefixes []netip.Prefix) (parts [][]want) {
	high, low := s.addressSides(source)
	key := place{&prefixes[0], len(prefixes), source}
	if known, ok := s.lists[key]; ok {
		return known
	}
	var wide []field.Range
	type host struct {
		high uint64
		low  []field.Range
	}
	var hosts []host
	for _, p := range prefixes {
		if p.Addr().Is4() {
			b := p.Addr().As4()
			lo := uint64(binary.BigEndian.Uint32(b[:]))
			wide = append(wide, field.Range{Lo: lo, Hi: lo | lower(32-p.Bits())})
			continue
		}
		b := p.Addr().As16()
		hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
		if p.Bits() <= 64 {
			wide = append(wide, field.Range{Lo: hi, Hi: hi | lower(64-p.Bits())})
			continue
		}
		r := field.Range{Lo: lo, Hi: lo | lower(128-p.Bits())}
		if k := len(hosts) - 1; k >= 0 && hosts[k].high == hi {
			hosts[k].low = append(hosts[k].low, r)
		} else {
			hosts = append(hosts, host{hi, []field.Range{r}})
		}
	}
	if len(wide) > 0 {
		parts = append(parts, []want{{high, field.Join(wide)}})
	}
	for _, h := range hosts {
		parts = append(parts, []want{{high, single(h.high)}, {low, field.Join(h.low)}})
	}
	s.lists[key] = parts
	return parts
}

// lower are so many bits, all 1.
func lower(bits int) uint64 {
	if bits >= 64 {
		return 1<<64 - 1
	}
	return 1<<bits - 1
}

// askPairs asks for endpoints: addresses with the same numbers are one box.
func (s *space) askPairs(n *rule, c *ir.Cond) {
	number := s.number(c.Number)
	source := c.Field == field.SrcEndpoint || c.Field == field.SrcService
	numbers := map[netip.Prefix][]field.Range{}
	var order []netip.Prefix
	for _, p := range c.Pairs {
		if _, ok := numbers[p.Prefix]; !ok {
			order = append(order, p.Prefix)
		}
		numbers[p.Prefix] = append(numbers[p.Prefix], p.Range)
	}
	alike := map[string][]netip.Prefix{}
	ranges := map[string][]field.Range{}
	var keys []string
	for _, p := range order {
		joined := field.Join(numbers[p])
		key := string(appendWants(nil, []want{{0, joined}}))
		if alike[key] == nil {
			keys = append(keys, key)
		}
		alike[key], ranges[key] = append(alike[key], p), joined
	}
	u := union{not: c.Not}
	for _, key := range keys {
		for _, part := range s.prefixParts(source, alike[key]) {
			u.parts = append(u.parts, append(slices.Clip(part), want{number, ranges[key]}))
		}
	}
	if len(u.parts) == 1 && !u.not {
		n.wants = append(n.wants, u.parts[0]...)
		return
	}
	n.unions = append(n.unions, u)
}

// askBytes asks for bytes of the payload.
func (s *space) askBytes(n *rule, c *ir.Cond) {
	var all []want
	for i, mask := range c.Bytes.Mask {
		if mask == 0 {
			continue
		}
		w := want{side: s.side(side{about: ofByte, at: c.Bytes.At + i})}
		w.values = masked(mask, c.Bytes.Value[i]&mask, false)
		all = append(all, w)
	}
	last := s.side(side{about: ofByte, at: c.Bytes.At + len(c.Bytes.Mask) - 1})
	n.wants = append(n.wants, want{last, []field.Range{{Hi: noByte - 1}}}) // all are there
	s.exact = append(s.exact, runs(c.Bytes)...)
	if c.Not {
		n.unions = append(n.unions, union{true, [][]want{all}})
		return
	}
	n.wants = append(n.wants, all...)
}

// innerText returns a match of packets within a tunnel, number i in the text of a rule.
func innerText(text string, i int) string {
	const word = "inner("
	for ; i >= 0; i-- {
		_, text, _ = strings.Cut(text, word)
	}
	depth := 1
	for at, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			return word + text[:at+1]
		}
	}
	return word + text
}

// positive returns a condition in words, without its negation.
func positive(c *ir.Cond) string {
	p := *c
	p.Not = false
	return p.String()
}
