package probe

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"

	"levee/internal/packet"
)

// stamp gives a packet what its number and try are known by: sequence numbers, the identification
// of IPv4 or the flow label of IPv6, and, where nothing else is asked of them, source port and
// payload.
func (c *cookies) stamp(s *packet.Spec, number, try int) {
	seal := c.seal(number, try)
	if s.Resolved() == packet.IPv6 {
		s.Fields = append(s.Fields, packet.FieldValue{Word: "flow-label",
			Value: uint64(seal>>8)%(1<<20-1) + 1})
	} else {
		// Not zero: the kernel would put another one in its place.
		s.Fields = append(s.Fields, packet.FieldValue{Word: "id",
			Value: uint64(seal>>8)%(1<<16-1) + 1})
	}
	port := c.port(number, try)
	switch proto := s.Protocol(); {
	case proto == packet.ProtoTCP:
		s.Fields = append(s.Fields, packet.FieldValue{Word: "seq", Value: uint64(seal)})
		if s.Flags != nil && *s.Flags&packet.ACK != 0 { // a reset of it has this number
			s.Fields = append(s.Fields, packet.FieldValue{Word: "ack-number", Value: uint64(seal)})
		}
	case isICMP(proto, s.Resolved() == packet.IPv6):
		s.Fields = append(s.Fields, packet.FieldValue{Word: "icmp-id", Value: uint64(port)},
			packet.FieldValue{Word: "icmp-seq", Value: uint64(try)})
	}
	if packet.HasPorts(s.Protocol()) && s.FromPort == nil {
		s.FromPort = &port
	}
}

// isICMP says whether a protocol is the ICMP of a family.
func isICMP(proto uint8, six bool) bool {
	return six && proto == packet.ProtoICMP6 || !six && proto == packet.ProtoICMP
}

// synOptions are the maximum segment size that Ethernet has: what answers SYNs may look for it.
var synOptions = []byte{2, 4, 1460 >> 8, 1460 & 0xff}

// request returns a probe of a service: a SYN, or a datagram.
func (c *cookies) request(from, to netip.Addr, s Service, number, try int) packet.Spec {
	spec := packet.Spec{From: from, To: to, Proto: &s.Proto, ToPort: &s.Port}
	if s.Proto == packet.ProtoTCP {
		spec.Flags, spec.TCPOptions = new(uint8(packet.SYN)), synOptions
	} else {
		spec.Payload = datagram(s.Port, c.tag(number, try))
	}
	c.stamp(&spec, number, try)
	return spec
}

// challenge returns a packet that the witness has to see, in another form for each try: what is in
// front of the target may drop some.
func (c *cookies) challenge(from, to netip.Addr, number, try int) packet.Spec {
	spec := packet.Spec{From: from, To: to}
	nonce := binary.BigEndian.AppendUint64(nil, c.tag(number, try))
	nonce = binary.BigEndian.AppendUint64(nonce, c.tag(number, try+mostTries))
	switch try {
	case 0:
		spec.ToPort, spec.Payload = new(uint16(traceroute)), nonce
	case 1:
		spec.Type, spec.Payload = new(uint8(8)), nonce
		if to.Is6() {
			spec.Type = new(uint8(128))
		}
	default:
		spec.Flags, spec.TCPOptions = new(uint8(packet.SYN)), synOptions
		spec.ToPort = new(uint16(traceroute))
	}
	c.stamp(&spec, number, try)
	return spec
}

// traceroute is a port on which nothing is expected to listen (traceroute(8)).
const traceroute = 33434

// datagram returns what is sent to a UDP port: what its service answers, as far as that is not
// longer than the question, with the tag where the answer repeats it. Else it is the tag.
func datagram(port uint16, tag uint64) []byte {
	t := binary.BigEndian.AppendUint64(nil, tag)
	switch port {
	case 53: // a query of the A record of TAG.invalid (RFC 2606)
		b := append(t[:2:2], 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0, 16)
		b = hex.AppendEncode(b, t)
		return append(append(append(b, 7), "invalid"...), 0, 0, 1, 0, 1)
	case 123: // a client's request of NTPv4, whose transmit timestamp comes back (RFC 5905)
		b := make([]byte, 48)
		b[0] = 4<<3 | 3
		copy(b[40:], t)
		return b
	case 3478: // a binding request of STUN (RFC 8489)
		return append(append([]byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, t...), 0, 0, 0, 0)
	}
	return t
}

// repeats says whether what a UDP port answers repeats the tag of its question, where the protocol
// of the port has each answer do so. Who does not see the question has no more than the twelve bits
// of a source port to guess else.
func repeats(port uint16, tag uint64, said []byte) bool {
	t := binary.BigEndian.AppendUint64(nil, tag)
	switch port {
	case 53: // in the question; who refuses may leave that out, and has the identification
		refuses := len(said) == 12 && bytes.HasPrefix(said, t[:2]) && said[2]&0x80 != 0
		return refuses || bytes.Contains(said, hex.AppendEncode(nil, t))
	case 123, 3478: // as the origin timestamp, and in the transaction
		return bytes.Contains(said, t)
	}
	return true
}

// build makes the IP packet of a spec, and the frame that carries it.
func build(s packet.Spec) (frame, ip []byte, err error) {
	s.Fields = slices.Clone(s.Fields)
	frame, err = packet.Build(s)
	if err != nil {
		return nil, nil, err
	}
	return frame, frame[packet.Ethernet.Header():], nil
}

// mark returns what a packet is known by where it arrives, whatever NAT has done to its addresses
// and ports; 0 if it has nothing of that.
func (k Key) mark(ip []byte, p *packet.Packet) uint64 {
	if !p.IsIP() || p.TransportOffset == 0 || p.TransportOffset > len(ip) || p.LaterFragment {
		return 0
	}
	var id uint64
	if p.Family == packet.IPv4 {
		id = uint64(binary.BigEndian.Uint16(ip[4:]))
	} else {
		id = uint64(binary.BigEndian.Uint32(ip) & (1<<20 - 1))
	}
	l4 := ip[p.TransportOffset:]
	words := []uint64{4 << 40, id, uint64(p.Proto)}
	switch p.Proto {
	case packet.ProtoTCP:
		if len(l4) >= 8 {
			words = append(words, uint64(binary.BigEndian.Uint32(l4[4:])))
		}
	case packet.ProtoUDP, packet.ProtoUDPLite, packet.ProtoICMP, packet.ProtoICMP6:
		var begin [16]byte
		if len(l4) > 8 {
			copy(begin[:], l4[8:])
		}
		words = append(words, binary.BigEndian.Uint64(begin[:]),
			binary.BigEndian.Uint64(begin[8:]))
	}
	return k.hash(words...)
}

// answer is a packet that came back for a probe.
type answer struct {
	kind answerKind
	// of an error of ICMP: its type, code, and who sent it
	icmpType, icmpCode uint8
	from               netip.Addr
	ttl                uint8
	known              flow // which probe it is for
}

type answerKind uint8

const (
	silent   answerKind = iota
	accepts             // SYN and ACK
	resets              // RST
	replies             // a datagram, or an answer of ICMP
	icmpSays            // an error of ICMP
)

// flow is the probe that an answer is for, seen from here.
type flow struct {
	proto      uint8
	to         netip.Addr
	port, from uint16   // of the target, and of the probe; of ICMP the sequence number and id
	seqs       []uint32 // of TCP: one of these is the sequence number of the probe
	said       []byte   // of UDP: what a datagram says; nil of what an error quotes
}

// read reads what came in; false if it is no answer to a probe from an address and a port.
func read(ip []byte, from func(netip.Addr) bool, left func(uint16) bool) (a answer, ok bool) {
	var p packet.Packet
	packet.L3.Decode(ip, &p)
	if p.Malformed != packet.WellFormed || p.Fragment || !p.IsIP() || !from(p.Dst) {
		return a, false
	}
	l4 := ip[p.TransportOffset:]
	a = answer{from: p.Src, ttl: p.TTL, known: flow{proto: p.Proto, to: p.Src}}
	switch {
	case p.Transport == packet.TCPTransport && left(p.DstPort):
		seq, ack := binary.BigEndian.Uint32(l4[4:]), binary.BigEndian.Uint32(l4[8:])
		a.known.port, a.known.from = p.SrcPort, p.DstPort
		switch p.Flags & (packet.SYN | packet.ACK | packet.RST) {
		case packet.SYN | packet.ACK:
			a.kind, a.known.seqs = accepts, []uint32{ack - 1}
		case packet.RST, packet.RST | packet.ACK:
			a.kind, a.known.seqs = resets, []uint32{ack - 1, ack, seq}
		default:
			return a, false
		}
		return a, true
	case p.Proto == packet.ProtoUDP && p.HasPorts() && left(p.DstPort):
		a.kind, a.known.port, a.known.from = replies, p.SrcPort, p.DstPort
		a.known.said = append([]byte{}, l4[8:]...)
		return a, true
	case p.Transport == packet.ICMPTransport && p.Type == 0,
		p.Transport == packet.ICMP6Transport && p.Type == 129:
		if len(l4) < 8 {
			return a, false
		}
		a.kind = replies
		a.known.from = binary.BigEndian.Uint16(l4[4:])
		a.known.port = binary.BigEndian.Uint16(l4[6:])
		return a, true
	case p.Transport == packet.ICMPTransport || p.Transport == packet.ICMP6Transport:
		a.kind, a.icmpType, a.icmpCode = icmpSays, p.Type, p.Code
		if len(l4) < 8 || !isError(&p) {
			return a, false
		}
		return a, a.known.quoted(l4[8:], from)
	}
	return a, false
}

// isError: destination unreachable, time exceeded, parameter problem, and IPv6's packet too big.
func isError(p *packet.Packet) bool {
	if p.Transport == packet.ICMP6Transport {
		return p.Type >= 1 && p.Type <= 4
	}
	return p.Type == 3 || p.Type == 11 || p.Type == 12
}

// quoted reads the probe that an error of ICMP quotes, at least eight bytes behind its IP header
// (RFC 792).
func (f *flow) quoted(ip []byte, from func(netip.Addr) bool) bool {
	var src netip.Addr
	var l4 []byte
	switch {
	case len(ip) >= 20 && ip[0]>>4 == 4 && ip[0]&15 >= 5 && int(ip[0]&15)*4 <= len(ip):
		src, f.to = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
		f.proto, l4 = ip[9], ip[int(ip[0]&15)*4:]
	case len(ip) >= 40 && ip[0]>>4 == 6:
		src, f.to = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
		f.proto, l4 = ip[6], ip[40:]
	default:
		return false
	}
	if !from(src) {
		return false
	}
	echo := isICMP(f.proto, src.Is6())
	switch {
	case !echo && !packet.HasPorts(f.proto):
		return true
	case len(l4) < 8:
		return false
	case echo:
		l4 = l4[4:]
	case f.proto == packet.ProtoTCP:
		f.seqs = []uint32{binary.BigEndian.Uint32(l4[4:])}
	}
	f.from, f.port = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	return true
}
