package craft

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/packet/dns"
)

// A Chooser decides which of the values that a term names a packet gets. It may also choose a value
// beside them, for a packet that only just misses the term.
type Chooser interface {
	// Index is one of n alternatives, from 0; n is at least 1.
	Index(n int) int
	// Number is a value for a field of which a term asks that it lie in one of the ranges, of which
	// there is at least one.
	Number(ranges []field.Range) uint64
	// Prefix is one of the prefixes, of which there is at least one, for a packet of a family;
	// false leaves the address as it is.
	Prefix(all []netip.Prefix, f packet.Family) (netip.Prefix, bool)
	// Address is an address for a term that names a prefix.
	Address(p netip.Prefix) netip.Addr
	// Flags are TCP flags for a term that asks for value in the bits of mask.
	Flags(value, mask uint8) uint8
	// Entries returns the elements of a dynamic set at the time of the packet.
	Entries(s *policy.Set) []policy.Element
}

// Rule changes s so that each term of a rule holds, as far as one value can make it; terms with
// "not" are left alone.
func Rule(s *packet.Spec, r *policy.Rule, c Chooser) {
	for i := range r.Match {
		if t := &r.Match[i]; !t.Not {
			Term(s, t, c)
		}
	}
}

// Term changes s so that one term holds without its "not". A term that names no value changes
// nothing.
func Term(s *packet.Spec, t *policy.Term, c Chooser) {
	info := t.Field.Info()
	switch info.Compare {
	case field.ByPrefix:
		Address(s, t.Field == field.SrcAddr, prefixes(t, c), c)
	case field.ByPair:
		if source := info.Port == field.SrcPort; info.Address != field.None {
			Endpoint(s, source, endpoints(t, c), c)
		} else {
			Service(s, source, services(t, c), c)
		}
	case field.ByMask:
		s.Flags = new(c.Flags(t.Value, t.Mask))
		if s.Proto != nil {
			s.Proto = new(uint8(packet.ProtoTCP))
		}
	case field.ByBytes:
		setPayload(s, t.Bytes)
	case field.ByPattern:
		setContents(s, t.Pattern)
	case field.ByName, field.ByMessage:
		setMessage(s, t, c)
	case field.ByInner:
		setInner(s, t.Inner, c)
	case field.ByRange:
		ranges := t.Ranges
		if t.Set != nil {
			ranges = t.Set.Ports
		}
		if len(ranges) > 0 {
			Number(s, t.Field, c.Number(ranges), c)
		}
	}
}

// setPayload makes s a datagram with bytes in its payload, and what it has there else unchanged.
func setPayload(s *packet.Spec, b *policy.Bytes) {
	s.Proto = new(uint8(packet.ProtoUDP))
	if end := b.At + len(b.Value); len(s.Payload) < end {
		s.Payload = append(slices.Clone(s.Payload), make([]byte, end-len(s.Payload))...)
	} else {
		s.Payload = slices.Clone(s.Payload)
	}
	for i, v := range b.Value {
		s.Payload[b.At+i] = s.Payload[b.At+i]&^b.Mask[i] | v
	}
}

// setContents makes s a datagram whose payload contains something: behind what it has there, if
// that may stand in front.
func setContents(s *packet.Spec, p *policy.Pattern) {
	s.Proto = new(uint8(packet.ProtoUDP))
	found := p.Machine.Example()
	if all := slices.Concat(s.Payload, found); p.Machine.Match(all) {
		found = all
	}
	s.Payload = found
}

// setMessage makes s a datagram with a DNS message that has what a term asks for, and what it has
// there else unchanged.
func setMessage(s *packet.Spec, t *policy.Term, c Chooser) {
	m := dns.Read(s.Payload, false)
	m.Malformed = m.Malformed && m.Header
	v := uint64(0)
	if len(t.Ranges) > 0 {
		v = c.Number(t.Ranges)
	}
	switch t.Field {
	case field.DNSName:
		all := patterns(t.Names, c)
		if len(all) == 0 {
			break
		}
		p := all[c.Index(len(all))]
		m.Question, m.Name = true, p.Name
		if p.Below && len(p.Name)+3 <= dnsname.MaxName {
			m.Name = "\x01a" + p.Name
		}
	case field.DNSType:
		m.Question, m.Type = true, uint16(v)
	case field.DNSOpcode:
		m.Opcode = uint8(v) & 15
	case field.DNSQuery:
		m.Response = false
	case field.DNSResponse:
		m.Response = true
	case field.DNSMalformed:
		m.Malformed = v == 1
	case field.DNSSize:
		m.EDNS, m.Size = true, uint16(v)
	}
	s.Proto, s.Payload = new(uint8(packet.ProtoUDP)), dns.Query(m)
}

// setInner puts a packet into s for which a match holds. If s is no tunnel it becomes VXLAN.
func setInner(s *packet.Spec, in *policy.Inner, c Chooser) {
	inner := new(packet.Spec)
	for i := range in.Match {
		if t := &in.Match[i]; !t.Not {
			Term(inner, t, c)
		}
	}
	s.Inner, s.Payload = inner, nil
	if _, err := packet.Build(*s); err != nil {
		s.Proto, s.ToPort = new(uint8(packet.ProtoUDP)), new(uint16(packet.PortVXLAN))
	}
}

// patterns returns what a list of names has.
func patterns(l *policy.NameList, c Chooser) []dnsname.Pattern {
	if !l.Dynamic() {
		return l.Patterns
	}
	var all []dnsname.Pattern
	for _, e := range c.Entries(l.Set) {
		if p, err := dnsname.Parse(e.Name); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// isDynamic reports whether a term asks a set that is filled at run time.
func isDynamic(t *policy.Term) bool { return t.Set != nil && t.Set.Kind == policy.Dynamic }

// valuesOf returns what a term asks for: given, or of a dynamic set a part of each entry.
func valuesOf[T any](t *policy.Term, c Chooser, given []T, part func(policy.Element) T) []T {
	if !isDynamic(t) {
		return given
	}
	var all []T
	for _, e := range c.Entries(t.Set) {
		all = append(all, part(e))
	}
	return all
}

func prefixes(t *policy.Term, c Chooser) []netip.Prefix {
	return valuesOf(t, c, t.Addresses(), func(e policy.Element) netip.Prefix { return e.Prefix })
}

func services(t *policy.Term, c Chooser) []policy.Service {
	return valuesOf(t, c, t.Services(), func(e policy.Element) policy.Service { return e.Service })
}

func endpoints(t *policy.Term, c Chooser) []policy.Element {
	return valuesOf(t, c, t.Endpoints(), func(e policy.Element) policy.Element { return e })
}

// Address gives s an address that one of the prefixes asks for, as source or as destination. The
// packet takes the family of the address.
func Address(s *packet.Spec, source bool, prefixes []netip.Prefix, c Chooser) {
	if len(prefixes) == 0 {
		return
	}
	if p, ok := c.Prefix(prefixes, s.Family); ok {
		setAddress(s, source, c.Address(p))
	}
}

// setSuffix gives s an IPv6 address that ends in 64 bits, behind the prefix that it has.
func setSuffix(s *packet.Spec, source bool, v uint64) {
	have := s.To
	if source {
		have = s.From
	}
	a := [16]byte{0x20, 0x01, 0x0d, 0xb8}
	if have.Is6() {
		a = have.As16()
	}
	binary.BigEndian.PutUint64(a[8:], v)
	setAddress(s, source, netip.AddrFrom16(a))
}

func setAddress(s *packet.Spec, source bool, a netip.Addr) {
	s.Family = packet.IPv6
	if a.Is4() {
		s.Family = packet.IPv4
	}
	if source {
		s.From = a
	} else {
		s.To = a
	}
}

// Service gives s the protocol of one of the services and, where it has ports, a port.
func Service(s *packet.Spec, source bool, services []policy.Service, c Chooser) {
	if len(services) > 0 {
		setService(s, source, services[c.Index(len(services))], c)
	}
}

func setService(s *packet.Spec, source bool, v policy.Service, c Chooser) {
	s.Proto = new(v.Proto)
	if !packet.HasPorts(v.Proto) {
		return
	}
	port := new(uint16(c.Number([]field.Range{{Lo: uint64(v.Lo), Hi: uint64(v.Hi)}})))
	if source {
		s.FromPort = port
	} else {
		s.ToPort = port
	}
}

// Endpoint gives s the address, the protocol and the port of one of the endpoints.
func Endpoint(s *packet.Spec, source bool, endpoints []policy.Element, c Chooser) {
	if len(endpoints) == 0 {
		return
	}
	e := endpoints[c.Index(len(endpoints))]
	setAddress(s, source, c.Address(e.Prefix))
	setService(s, source, e.Service, c)
}

// PortProtocols are the protocols that have ports.
var PortProtocols = field.InPorts.Presence().Protos

// Number sets a numeric field to the low bits of v. What the packet needs to have the field is
// changed too: its family, its protocol, a tag around the tag.
func Number(s *packet.Spec, f field.Field, v uint64, c Chooser) {
	info := f.Info()
	switch f {
	case field.ICMPType:
		setICMP(s, packet.IPv4, packet.ProtoICMP, uint16(v))
	case field.ICMP6Type:
		setICMP(s, packet.IPv6, packet.ProtoICMP6, uint16(v))
	case field.Len:
		if v > info.Max {
			v = uint64(uint16(v))
		}
		s.Set(info.Packet, v)
	case field.SrcSuffix, field.DstSuffix:
		setSuffix(s, f == field.SrcSuffix, v)
	case field.Tags:
		setTags(s, v&3)
	case field.Fragment:
		setFragment(s, v&1 == 1)
	default:
		setProtocol(s, info.Header, c)
		setTags(s, uint64(max(tagsOf(s), info.Header.Presence().Tags)))
		s.Set(info.Packet, v&info.Max)
	}
}

// setProtocol makes s a packet of a protocol that has a header. One without a protocol gets that of
// the rule: UDP for ports.
func setProtocol(s *packet.Spec, h field.Header, c Chooser) {
	all := h.Presence().Protos
	switch {
	case len(all) == 0:
	case s.Proto == nil && h == field.InPorts:
	case s.Proto == nil || !slices.Contains(all, *s.Proto):
		s.Proto = new(all[c.Index(len(all))])
	}
}

// tagsOf counts the tags.
func tagsOf(s *packet.Spec) int {
	switch {
	case s.InnerVLAN != nil:
		return 2
	case s.VLAN != nil:
		return 1
	}
	return 0
}

func setICMP(s *packet.Spec, f packet.Family, proto uint8, v uint16) {
	s.Family, s.Proto, s.Type, s.Code = f, new(proto), new(uint8(v>>8)), uint8(v)
}

// setTags gives s so many VLAN tags, at most two. Tags that it has keep their ids.
func setTags(s *packet.Spec, n uint64) {
	if n == 0 {
		s.VLAN = nil
	} else if s.VLAN == nil {
		s.VLAN = new(uint16(1))
	}
	if n < 2 {
		s.InnerVLAN = nil
	} else if s.InnerVLAN == nil {
		s.InnerVLAN = new(uint16(1))
	}
}

// laterFragment is the offset of the second fragment of a packet that was cut at 1,500 bytes, in
// units of 8 bytes.
const laterFragment = 185

// setFragment makes s a fragment: the first if it has something to say in a transport header, else
// a later one.
func setFragment(s *packet.Spec, is bool) {
	switch {
	case !is:
		s.Frag = nil
	case s.FromPort != nil || s.ToPort != nil || s.Flags != nil || s.Type != nil:
		s.Frag = new(uint16(0))
	default:
		s.Frag = new(uint16(laterFragment))
	}
}
