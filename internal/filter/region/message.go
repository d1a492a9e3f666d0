package region

import (
	"slices"

	"levee/internal/filter/ir"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet/dns"
)

// Values of the header of a DNS message, for which the side of field.DNSQuery stands.
const (
	isQuery = iota
	isResponse
	noHeader // the payload is too short
)

// messageField returns the field of whose side a condition on DNS messages asks for values.
func messageField(f field.Field) field.Field {
	if f == field.DNSResponse {
		return field.DNSQuery
	}
	return f
}

// messageDomain returns the values that a field of a DNS message has, and one for messages that
// lack it.
func messageDomain(f field.Field) []field.Range {
	switch f {
	case field.DNSQuery:
		return []field.Range{{Hi: noHeader}}
	case field.DNSMalformed:
		return []field.Range{{Hi: 1}}
	}
	return []field.Range{{Hi: lacking(f)}}
}

// lacking returns the value of a field of messages that lack it.
func lacking(f field.Field) uint64 {
	if f == field.DNSQuery {
		return noHeader
	}
	return f.Info().Max + 1
}

func (s *space) message(f field.Field) int {
	return s.side(side{about: ofMessage, field: messageField(f)})
}

// has asks for messages that have a field.
func (s *space) has(f field.Field) want {
	return want{s.message(f), []field.Range{{Hi: lacking(f) - 1}}}
}

// askMessage asks for what a DNS message says. Of one that does not say it, nothing holds, nor its
// opposite.
func (s *space) askMessage(n *rule, c *ir.Cond) {
	w := s.has(c.Field)
	switch values := c.Ranges; {
	case c.Field == field.DNSQuery:
		w.values = single(isQuery)
	case c.Field == field.DNSResponse:
		w.values = single(isResponse)
	case c.Field == field.DNSMalformed:
		w.values = single(1)
	default:
		w.values = values
	}
	if c.Not {
		all := messageDomain(messageField(c.Field))
		if c.Field != field.DNSMalformed {
			all = s.has(c.Field).values
		}
		w.values = field.Subtract(all, w.values)
	}
	n.wants = append(n.wants, w)
}

// askName asks for a question whose name is one of a list, or is none of it.
func (s *space) askName(n *rule, c *ir.Cond) {
	n.wants = append(n.wants, s.has(field.DNSType))
	s.unknown(n, positive(c), c)
}

// messages notes which messages there are not, once all that is asked of them is known.
func (s *space) messages() {
	asked := func(f field.Field) (int, bool) {
		i, ok := s.index[sideKey{about: ofMessage, field: f}]
		return i, ok
	}
	header, ok := asked(field.DNSQuery)
	for _, f := range []field.Field{field.DNSOpcode, field.DNSType, field.DNSSize,
		field.DNSMalformed} {
		if _, more := asked(f); more && !ok {
			header, ok = s.message(field.DNSQuery), true
		}
	}
	none := func(wants ...want) { s.impossible = append(s.impossible, &rule{wants: wants}) }
	there := []field.Range{{Hi: isResponse}}
	for _, f := range []field.Field{field.DNSOpcode, field.DNSType, field.DNSSize} {
		if i, ok := asked(f); ok {
			none(want{header, single(noHeader)}, s.has(f))
			if f == field.DNSOpcode {
				none(want{header, there}, want{i, single(lacking(f))})
			}
		}
	}
	if i, ok := asked(field.DNSMalformed); ok {
		none(want{header, single(noHeader)}, want{i, single(0)})
		if s.class.Fragment { // the rest of a query is elsewhere
			none(want{header, single(isQuery)}, want{i, single(0)})
		}
	}
	if _, ok := asked(field.DNSSize); ok {
		none(want{header, single(isResponse)}, s.has(field.DNSSize))
		if i, ok := asked(field.DNSOpcode); ok {
			none(want{i, []field.Range{{Lo: 1, Hi: lacking(field.DNSOpcode)}}},
				s.has(field.DNSSize))
		}
	}
	if ok {
		s.least(want{header, there}, len(dns.Query(dns.Message{})))
		s.headers(header)
	}
	if _, ok := asked(field.DNSType); ok {
		high, askedHigh := s.index[sideKey{about: ofByte, at: 4}]
		low, askedLow := s.index[sideKey{about: ofByte, at: 5}]
		if askedHigh && askedLow { // as many questions as that
			none(s.has(field.DNSType), want{high, single(0)}, want{low, single(0)})
		}
		s.least(s.has(field.DNSType), len(dns.Query(dns.Message{Question: true})))
	}
	if _, ok := asked(field.DNSSize); ok {
		s.least(s.has(field.DNSSize), len(dns.Query(dns.Message{EDNS: true})))
	}
	s.names()
}

// headers notes which bytes a message does not have where it says something of itself: the third
// has the flag of responses and the opcode, the thirteenth is 0 for the root (RFC 1035 section
// 4.1).
func (s *space) headers(header int) {
	if flags, ok := s.index[sideKey{about: ofByte, at: 2}]; ok {
		for kind, bit := range []uint8{isQuery: 0, isResponse: 0x80} {
			s.impossible = append(s.impossible, &rule{wants: []want{
				{header, single(uint64(kind))}, {flags, masked(0x80, bit, true)}}})
		}
		if opcode, ok := s.index[sideKey{about: ofMessage, field: field.DNSOpcode}]; ok {
			for v := range lacking(field.DNSOpcode) {
				s.impossible = append(s.impossible, &rule{wants: []want{
					{opcode, single(v)}, {flags, masked(0x78, uint8(v)<<3, true)}}})
			}
		}
	}
	first, ok := s.index[sideKey{about: ofByte, at: 12}]
	for i := range s.sides {
		if c := s.sides[i].cond; ok && c != nil && c.Names != nil && !c.Names.Dynamic() &&
			!holds(c.Names, "") {
			s.impossible = append(s.impossible,
				&rule{wants: []want{{i, single(1)}, {first, single(0)}}})
		}
	}
}

// maxNames bounds the names of two lists that are compared with each other.
const maxNames = 1 << 8

// names notes of pairs of lists of names that no name is in both, or in one without the other.
func (s *space) names() {
	var all []int
	for i := range s.sides {
		if c := s.sides[i].cond; c != nil && c.Names != nil && !c.Names.Dynamic() &&
			len(c.Names.Patterns) <= maxNames {
			all = append(all, i)
		}
	}
	for _, a := range all {
		shortest := dnsname.MaxName
		for _, n := range namesOf(s.sides[a].cond.Names) {
			shortest = min(shortest, len(n))
		}
		s.least(want{a, single(1)}, len(dns.Query(dns.Message{Question: true}))+shortest)
		if l := s.sides[a].cond.Names; holds(l, "") && holds(l, below) { // all there are
			s.impossible = append(s.impossible,
				&rule{wants: []want{{a, single(0)}, s.has(field.DNSType)}})
		}
		for _, b := range all {
			if a == b {
				continue
			}
			listA, listB := s.sides[a].cond.Names, s.sides[b].cond.Names
			both, alone := false, false
			for _, n := range namesOf(listA) {
				in := holds(listB, n)
				both, alone = both || in, alone || !in
			}
			if !both {
				both = slices.ContainsFunc(namesOf(listB),
					func(n dnsname.Name) bool { return holds(listA, n) })
			}
			for value, is := range []bool{alone, both} {
				if !is {
					s.impossible = append(s.impossible, &rule{wants: []want{
						{a, single(1)}, {b, single(uint64(value))}}})
				}
			}
		}
	}
}

// below is a label that no list has.
const below = "\x0alevee-diff"

// namesOf returns names of a list: each that stands there for itself, and one below each.
func namesOf(l *policy.NameList) (out []dnsname.Name) {
	for _, p := range l.Patterns {
		if !p.Below {
			out = append(out, p.Name)
		}
		if len(below)+len(p.Name)+1 <= dnsname.MaxName {
			out = append(out, below+p.Name)
		}
	}
	return out
}

// holds says whether a list has a name.
func holds(l *policy.NameList, n dnsname.Name) bool {
	return slices.ContainsFunc(l.Patterns, func(p dnsname.Pattern) bool {
		if n == p.Name {
			return !p.Below
		}
		return len(n) > len(p.Name) && n.Last(p.Name.Labels()) == p.Name
	})
}

// query returns the payload with the DNS message that the box asks for, if it asks for one, as far
// as it does not ask for other bytes.
func (p *point) query(b []byte) (out []byte, is bool) {
	asked := false
	get := func(f field.Field, usual uint64) uint64 {
		v, ok := p.value(sideKey{about: ofMessage, field: f}, usual)
		asked = asked || ok
		return v
	}
	header := get(field.DNSQuery, noHeader)
	malformed := get(field.DNSMalformed, 1)
	opcode := get(field.DNSOpcode, lacking(field.DNSOpcode))
	kind := get(field.DNSType, lacking(field.DNSType))
	size := get(field.DNSSize, lacking(field.DNSSize))
	if !asked || header == noHeader {
		return b, false
	}
	m := dns.Message{Response: header == isResponse, Malformed: malformed == 1}
	if i, ok := p.index[sideKey{about: ofMessage, field: field.DNSMalformed}]; !ok ||
		i >= len(p.box) || p.box[i] == nil {
		m.Malformed = false
	}
	if opcode != lacking(field.DNSOpcode) {
		m.Opcode = uint8(opcode)
	}
	if kind != lacking(field.DNSType) {
		m.Question, m.Type, m.Name = true, uint16(kind), p.name()
	}
	if size != lacking(field.DNSSize) {
		m.EDNS, m.Size = true, uint16(size)
	}
	out = dns.Query(m)
	if p.rnd != nil { // the ID
		out[0], out[1] = byte(p.rnd.Uint32()), byte(p.rnd.Uint32())
	}
	for i, v := range b {
		values := p.byteValues(i)
		switch {
		case i < len(out) && relate(values, single(uint64(out[i]))) == none:
			out[i] = v
		case i >= len(out) && relate(values, single(noByte)) == none:
			out = append(out, v)
		}
	}
	if m.Question && out[4] == 0 && out[5] == 0 { // another number of questions is malformed
		if v, asked := p.value(sideKey{about: ofByte, at: 4}, 1); !asked || v == 1 {
			out[4] = 1
		}
	}
	return out, true
}

// free says whether a byte of a message may be any without that rules see a difference: the ID,
// flags, and the numbers of records that no message of an example has.
func (p *point) free(at int) bool {
	size, _ := p.value(sideKey{about: ofMessage, field: field.DNSSize}, lacking(field.DNSSize))
	return relate([]field.Range{{Hi: noByte - 1}}, p.byteValues(at)) == all &&
		(at < 2 || at == 3 || at >= 6 && at < 12 && size == lacking(field.DNSSize))
}

// byteValues returns what the box lets a byte of the payload be.
func (p *point) byteValues(at int) []field.Range {
	if i, ok := p.index[sideKey{about: ofByte, at: at}]; ok {
		return p.values(p.box, i)
	}
	return []field.Range{{Hi: noByte}}
}

// name returns a name that is in the lists that the box asks for, and in no other as far as there
// is one.
func (p *point) name() dnsname.Name {
	var in, out []*policy.NameList
	for i := range p.sides {
		c := p.sides[i].cond
		if c == nil || c.Names == nil || c.Names.Dynamic() || i >= len(p.box) || p.box[i] == nil {
			continue
		}
		if p.box[i][0].Lo == 1 {
			in = append(in, c.Names)
		} else if p.box[i][len(p.box[i])-1].Hi == 0 {
			out = append(out, c.Names)
		}
	}
	some := []dnsname.Name{below, ""}
	if len(in) > 0 {
		some = nil
		for _, l := range in {
			some = append(some, namesOf(l)...)
		}
	}
	some = append(some, p.spelled()...)
	fit := slices.DeleteFunc(slices.Clone(some),
		func(n dnsname.Name) bool { return !p.standsIn(n) })
	some = append(fit, some...)
	for _, n := range some {
		has := func(l *policy.NameList) bool { return holds(l, n) }
		if !slices.ContainsFunc(in, func(l *policy.NameList) bool { return !has(l) }) &&
			!slices.ContainsFunc(out, has) {
			return n
		}
	}
	return ""
}

// nameAt is where the first question of a message begins, with its name (RFC 1035 section 4.1).
const nameAt = 12

// spelled returns names of one label, of the bytes that the box asks for where a name stands.
func (p *point) spelled() (all []dnsname.Name) {
	for length := 1; length <= dnsname.MaxLabel; length++ {
		label, asked := []byte{byte(length)}, false
		for i := range length {
			c := byte('a')
			values := p.byteValues(nameAt + 1 + i)
			if relate(values, single(uint64(c))) == none {
				c, asked = byte(values[0].Lo), true
			}
			label = append(label, c)
		}
		if asked {
			all = append(all, dnsname.Name(label))
		}
	}
	return all
}

// standsIn says whether the payload may have a name, and behind it a type that the box asks for.
func (p *point) standsIn(n dnsname.Name) bool {
	bytes := append([]byte(n), 0)
	for i, c := range bytes {
		if relate(p.byteValues(nameAt+i), single(uint64(c))) == none {
			return false
		}
	}
	at := nameAt + len(bytes)
	kinds := []field.Range{{Hi: lacking(field.DNSType) - 1}}
	if i, ok := p.index[sideKey{about: ofMessage, field: field.DNSType}]; ok {
		kinds = p.values(p.box, i)
	}
	for _, h := range p.byteValues(at) {
		for v := h.Lo; v <= min(h.Hi, noByte-1); v++ {
			for _, l := range p.byteValues(at + 1) {
				if len(field.Intersect(kinds, []field.Range{{Lo: v<<8 | min(l.Lo, noByte-1),
					Hi: v<<8 | min(l.Hi, noByte-1)}})) > 0 {
					return true
				}
			}
		}
	}
	return false
}
