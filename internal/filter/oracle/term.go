package oracle

import (
	"encoding/binary"
	"net/netip"
	"regexp"
	"slices"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// number is a value of any field, or an address, as 128 bits.
type number struct{ hi, lo uint64 }

func (n number) less(m number) bool { return n.hi < m.hi || n.hi == m.hi && n.lo < m.lo }

// value is a packet's value in a field. The zero value says that it has no such field.
type value struct {
	present bool
	family  packet.Family // of an address; AnyFamily for all else
	number
}

// values are all fields of a packet, read once, so that rules have only to compare.
type values [field.NumFields]value

// span is the values from first to last, both included. An IPv4 address is never in a span of IPv6
// addresses, nor the other way round, mapped or not.
type span struct {
	family      packet.Family
	first, last number
}

func (s *span) holds(v *value) bool {
	return s.family == v.family && !v.less(s.first) && !s.last.less(v.number)
}

// term is one condition of a rule with its values as spans.
type term struct {
	field field.Field
	not   bool
	plain bool   // the spans alone say whether it holds
	spans []span // one of them holds the value
	*asked
}

// asked is what few terms ask for, besides spans or in their place. It lies apart, since it is more
// memory than all else of a term.
type asked struct {
	mask, want uint8            // TCP flags: flags & mask == want
	set        *addressSet      // it has the value ...
	ends       *endpointSet     // ... or this does
	inner      []term           // of a match on the packet within a tunnel
	find       []*regexp.Regexp // of texts and expressions that the payload is searched for
	of         *policy.Term
}

// rule is a rule whose terms must all hold.
type rule struct {
	terms     []term
	malformed bool
}

// prepare turns rules into rows of comparisons. They lie behind each other in memory, in the order
// of their use: for ten thousand rules most of the time goes into fetching them.
func (e *Evaluator) prepare(list []*policy.Rule) []rule {
	terms, spans := 0, 0
	for _, r := range list {
		for i := range r.Match {
			terms++
			spans += len(r.Match[i].Ranges) + len(r.Match[i].Prefixes) + len(r.Match[i].Services())
		}
	}
	allTerms, allSpans := make([]term, 0, terms), make([]span, 0, spans)
	allAsked := make([]asked, 0, terms)
	out := make([]rule, len(list))
	for i, r := range list {
		first := len(allTerms)
		for j := range r.Match {
			from := len(allSpans)
			allSpans = e.appendSpans(allSpans, &r.Match[j])
			allAsked = append(allAsked, asked{mask: r.Match[j].Mask, want: r.Match[j].Value,
				set: e.sets[r.Match[j].Set], ends: e.endpoints(&r.Match[j]),
				find: finders(r.Match[j].Pattern), of: &r.Match[j]})
			t := term{field: r.Match[j].Field, not: r.Match[j].Not,
				spans: allSpans[from:len(allSpans):len(allSpans)],
				asked: &allAsked[len(allAsked)-1]}
			t.plain = t.set == nil && t.ends == nil && bySpans(t.field)
			if in := r.Match[j].Inner; in != nil {
				t.inner = e.prepare([]*policy.Rule{{Match: in.Match}})[0].terms
			}
			allTerms = append(allTerms, t)
		}
		slices.SortStableFunc(allTerms[first:], func(a, b term) int { return a.late() - b.late() })
		out[i] = rule{terms: allTerms[first:len(allTerms):len(allTerms)], malformed: r.Malformed}
	}
	return out
}

// late returns 1 for terms that are tried last: a term on streams may be tried only if all others
// hold, since its answers depend on the segments on which it was tried.
func (t *term) late() int {
	if t.field == field.Stream {
		return 1
	}
	return 0
}

// appendSpans adds what t names, in the rule or in a set of ports or services, to spans. A set of
// addresses is asked as it is, since its entries come and go.
func (e *Evaluator) appendSpans(spans []span, t *policy.Term) []span {
	ranges := t.Ranges
	if t.Set != nil {
		ranges = t.Set.Ports
	}
	for _, r := range ranges {
		spans = append(spans, span{first: number{lo: r.Lo}, last: number{lo: r.Hi}})
	}
	for _, s := range t.Services() {
		spans = append(spans, span{first: service(s.Proto, s.Lo), last: service(s.Proto, s.Hi)})
	}
	for _, p := range t.Prefixes {
		spans = append(spans, prefixSpan(p))
	}
	return spans
}

// endpoints returns the endpoints of a term, nil for a term on another field.
func (e *Evaluator) endpoints(t *policy.Term) *endpointSet {
	if all := t.Endpoints(); t.Set == nil && all != nil {
		return newEndpointSet(all)
	}
	return e.ends[t.Set]
}

// service returns a protocol with a port in one number.
func service(proto uint8, port uint16) number {
	return number{lo: uint64(proto)<<16 | uint64(port)}
}

// addressValue returns an address as a number, and its family.
func addressValue(a netip.Addr) value {
	if a.Is4() {
		b := a.As4()
		return value{true, packet.IPv4, number{lo: uint64(binary.BigEndian.Uint32(b[:]))}}
	}
	b := a.As16()
	return value{true, packet.IPv6,
		number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}}
}

// prefixSpan returns the first to the last address of a prefix.
func prefixSpan(p netip.Prefix) span {
	v := addressValue(p.Masked().Addr())
	s := span{v.family, v.number, v.number}
	for bit := range p.Addr().BitLen() - p.Bits() {
		if bit < 64 {
			s.last.lo |= 1 << bit
		} else {
			s.last.hi |= 1 << (bit - 64)
		}
	}
	return s
}

// bySpans reports whether the spans of a term are all that is asked of a field.
func bySpans(f field.Field) bool {
	switch f {
	case field.Inner, field.Payload, field.Contents, field.Stream, field.TCPFlags:
		return false
	}
	return !f.OfMessage()
}

// holds is three-valued logic cut to two: a term whose field the packet does not have does not
// hold, negated or not.
func (e *Evaluator) holds(t *term, pkt *packet.Packet, frame []byte, vs *values) bool {
	if t.plain {
		v := &vs[t.field]
		return v.present && t.among(v) != t.not
	}
	if t.field == field.Inner {
		return e.within(t, pkt, frame)
	}
	if t.field == field.Payload {
		return payload(t.of.Bytes, t.not, pkt, frame)
	}
	if t.field == field.Contents {
		return isUDP(pkt) && t.finds(frame[pkt.TransportOffset+8:][:pkt.UDPPayload]) != t.not
	}
	if t.field == field.Stream {
		return e.streams.holds(t, pkt, frame, e.now())
	}
	if t.field.OfMessage() {
		return e.message(t, pkt, frame)
	}
	v := &vs[t.field]
	return v.present && e.inside(t, pkt, v) != t.not
}

// within asks a match of the packet within a tunnel. A packet that is none has no such packet.
func (e *Evaluator) within(t *term, pkt *packet.Packet, frame []byte) bool {
	var in packet.Packet
	if !pkt.Inner(frame, &in) {
		return false
	}
	var vs values
	vs.read(&in)
	// It has all the tags that it can have, whether there is an Ethernet header around it or not.
	vs[field.Tags].present = true
	all := true
	for i := range t.inner {
		all = all && e.holds(&t.inner[i], &in, frame, &vs)
	}
	return all != t.not
}

// payload says whether the bytes behind the UDP header are those of the term or, with not, others.
func payload(want *policy.Bytes, not bool, pkt *packet.Packet, frame []byte) bool {
	if !isUDP(pkt) || pkt.UDPPayload < want.At+len(want.Value) {
		return false
	}
	same := true
	for i, b := range frame[pkt.TransportOffset+8+want.At:][:len(want.Value)] {
		same = same && b&want.Mask[i] == want.Value[i]
	}
	return same != not
}

func isUDP(pkt *packet.Packet) bool {
	return pkt.Transport == packet.PortTransport && pkt.Proto == packet.ProtoUDP
}

// inside says whether the value is among those of t.
func (e *Evaluator) inside(t *term, pkt *packet.Packet, v *value) bool {
	if t.field == field.TCPFlags {
		return uint8(v.lo)&t.mask == t.want
	}
	if t.set != nil {
		return t.set.contains(address(t.field, pkt), e.now())
	}
	if t.ends != nil && (t.field == field.SrcService || t.field == field.DstService) {
		// the number of a service ends in its port
		return t.ends.offers(pkt.Proto, uint16(v.lo), e.now())
	}
	if t.ends != nil {
		return t.ends.contains(address(t.field, pkt), pkt.Proto, uint16(v.lo), e.now())
	}
	return t.among(v)
}

// among says whether one of the spans holds the value.
func (t *term) among(v *value) bool {
	for i := range t.spans {
		if t.spans[i].holds(v) {
			return true
		}
	}
	return false
}

func address(f field.Field, pkt *packet.Packet) netip.Addr {
	if f == field.SrcAddr || f == field.SrcEndpoint {
		return pkt.Src
	}
	return pkt.Dst
}

// read takes all fields out of a well-formed packet.
func (vs *values) read(pkt *packet.Packet) {
	has := func(f field.Field, present bool, v uint64) {
		vs[f] = value{present: present, number: number{lo: v}}
	}
	ip, ports := pkt.IsIP(), pkt.HasPorts()
	*vs = values{}
	if ip {
		vs[field.SrcAddr], vs[field.DstAddr] = addressValue(pkt.Src), addressValue(pkt.Dst)
	}
	has(field.SrcPort, ports, uint64(pkt.SrcPort))
	has(field.DstPort, ports, uint64(pkt.DstPort))
	has(field.SrcService, ports, service(pkt.Proto, pkt.SrcPort).lo)
	has(field.DstService, ports, service(pkt.Proto, pkt.DstPort).lo)
	// A protocol that has ports has them here, but in a non-first fragment. The number of an
	// endpoint is its port.
	endpoint := ip && (ports || !policy.HasPorts(pkt.Proto))
	srcPort, dstPort := uint64(0), uint64(0)
	if ports {
		srcPort, dstPort = uint64(pkt.SrcPort), uint64(pkt.DstPort)
	}
	has(field.SrcEndpoint, endpoint, srcPort)
	has(field.DstEndpoint, endpoint, dstPort)
	has(field.Proto, ip, uint64(pkt.Proto))
	ethernet := pkt.Link == packet.Ethernet
	has(field.EtherType, true, uint64(pkt.EtherType))
	has(field.ICMPType, pkt.Transport == packet.ICMPTransport, uint64(pkt.Type)<<8|uint64(pkt.Code))
	has(field.ICMP6Type, pkt.Transport == packet.ICMP6Transport,
		uint64(pkt.Type)<<8|uint64(pkt.Code))
	has(field.TCPFlags, pkt.Transport == packet.TCPTransport, uint64(pkt.Flags))
	has(field.TCPWindow, pkt.Transport == packet.TCPTransport, uint64(pkt.Window))
	has(field.Len, true, uint64(pkt.Len))
	has(field.TTL, ip, uint64(pkt.TTL))
	has(field.DSCP, ip, uint64(pkt.DSCP))
	has(field.VLAN, pkt.Tags > 0, uint64(pkt.VLAN))
	has(field.InnerVLAN, pkt.Tags == 2, uint64(pkt.InnerVLAN))
	has(field.Tags, ethernet, uint64(pkt.Tags))
	has(field.SrcMAC, ethernet, pkt.SrcMAC)
	has(field.DstMAC, ethernet, pkt.DstMAC)
	if pkt.Family == packet.IPv6 {
		src, dst := pkt.Src.As16(), pkt.Dst.As16()
		has(field.SrcSuffix, true, binary.BigEndian.Uint64(src[8:]))
		has(field.DstSuffix, true, binary.BigEndian.Uint64(dst[8:]))
	}
	fragment := uint64(0)
	if pkt.Fragment {
		fragment = 1
	}
	has(field.Fragment, ip, fragment)
	for _, f := range field.Remembered() { // see decide
		in := f.Info().Header
		has(f, ip && (in == field.InIP || in == field.InUDP && isUDP(pkt) ||
			in == field.InTCP && isTCP(pkt) || in == field.InFlow && tracked(pkt)), 0)
	}
	has(field.Payload, isUDP(pkt), 0)  // see payload
	has(field.Contents, isUDP(pkt), 0) // see finds
	for _, f := range messageFields {
		has(f, isUDP(pkt), 0) // see message
	}
	has(field.Inner, isUDP(pkt) || ip && !pkt.LaterFragment &&
		(pkt.Proto == packet.ProtoGRE || pkt.Proto == packet.ProtoIPIP ||
			pkt.Proto == packet.ProtoIPv6), 0) // see within
}
