package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Ports of UDP of tunnels that are looked into.
const (
	PortGTPU     = 2152 // 3GPP TS 29.281
	PortVXLAN    = 4789 // RFC 7348
	PortGeneve   = 6081 // RFC 8926
	PortVXLANOld = 8472 // Linux's own, from before the RFC
)

// What tunnels say that they carry besides IP and MPLS.
const (
	etherBridging = 0x6558 // Ethernet (RFC 7637)
	etherWCCP     = 0x883e // IPv4, behind a header of its own in version 2
)

// maxGTPExtensions is the number of extension headers of GTP-U that are walked.
const maxGTPExtensions = 8

// payload of a tunnel: where it begins in what the tunnel has, and what it is; a type of 0 is
// nothing that is looked into.
type payload struct {
	at        int
	etherType uint16
}

// Inner decodes the packet within a tunnel into in. p is the well-formed packet of frame that may
// be one. It is false if there is no tunnel, or nothing in it that is looked into: then in means
// nothing. Offsets in in are those of the whole frame.
func (p *Packet) Inner(frame []byte, in *Packet) bool {
	*in = Packet{}
	if !p.IsIP() || p.LaterFragment {
		return false
	}
	b := frame[p.TransportOffset:p.end(len(frame))]
	cut := p.Fragment
	var what payload
	bad := WellFormed
	switch {
	case p.Proto == ProtoIPIP:
		what.etherType = EtherIPv4
	case p.Proto == ProtoIPv6:
		what.etherType = EtherIPv6
	case p.Proto == ProtoGRE:
		what, bad = gre(b, cut)
	case p.Transport == PortTransport && p.Proto == ProtoUDP:
		if length := int(binary.BigEndian.Uint16(b[4:])); length < len(b) {
			b = b[:length]
		}
		what, bad = udpTunnel(p.DstPort, b, cut)
	}
	in.Malformed = bad
	if bad != WellFormed {
		return true
	}
	switch what.etherType {
	case etherBridging, EtherIPv4, EtherIPv6, EtherMPLS, EtherMPLSMulticast:
	default:
		return false
	}
	if what.at > len(b) {
		in.Malformed = TruncatedL4
		return cut
	}
	return in.within(b[what.at:], what.etherType, p.TransportOffset+what.at, cut)
}

// end returns where the IP packet ends in a frame of n bytes.
func (p *Packet) end(n int) int { return min(n, p.ipAt()+p.Len) }

// ipAt returns where the IP header begins.
func (p *Packet) ipAt() int { return p.NetworkOffset }

// within decodes b, which begins at an offset of the frame.
func (p *Packet) within(b []byte, etherType uint16, at int, cut bool) bool {
	*p = Packet{cut: cut, EtherType: etherType}
	if etherType == etherBridging {
		p.Malformed = p.ethernet(b)
	} else {
		p.Link = L3
		rest, bad := p.lookThrough(b)
		switch {
		case bad != WellFormed:
			p.Malformed = bad
		case p.EtherType == EtherIPv4:
			p.Malformed = p.ipv4(rest[p.NetworkOffset:])
		case p.EtherType == EtherIPv6:
			p.Malformed = p.ipv6(rest[p.NetworkOffset:])
		default:
			return false
		}
	}
	p.NetworkOffset += at
	p.TransportOffset += at
	return true
}

// tooShort returns what a tunnel's header is that does not end in the packet: nothing that anybody
// can unpack, or, if fragments follow, malformed.
func tooShort(cut bool) (payload, Malformed) {
	if cut {
		return payload{}, TruncatedL4
	}
	return payload{}, WellFormed
}

// gre reads RFC 2784 and RFC 2890.
func gre(b []byte, cut bool) (payload, Malformed) {
	if len(b) < 4 {
		return tooShort(cut)
	}
	checksum, routing := b[0]&0x80 != 0, b[0]&0x40 != 0
	key, sequence := b[0]&0x20 != 0, b[0]&0x10 != 0
	if version := b[1] & 7; routing || version != 0 {
		return payload{}, WellFormed
	}
	out := payload{4, binary.BigEndian.Uint16(b[2:])}
	for _, present := range []bool{checksum, key, sequence} {
		if present {
			out.at += 4
		}
	}
	if out.etherType == etherWCCP && b[0] == 0 && b[1] == 0 {
		if len(b) == 4 {
			return tooShort(cut)
		}
		out.etherType = EtherIPv4
		if b[4]>>4 != 4 {
			out.at = 8
		}
	}
	return out, WellFormed
}

// udpTunnel reads what a datagram to a port of a tunnel begins with, the header of UDP included.
func udpTunnel(port uint16, b []byte, cut bool) (payload, Malformed) {
	switch port {
	case PortVXLAN, PortVXLANOld, PortGeneve, PortGTPU:
	default:
		return payload{}, WellFormed
	}
	if len(b) < 16 {
		return tooShort(cut)
	}
	h := b[8:]
	switch port {
	case PortGTPU:
		return gtpu(b, cut)
	case PortGeneve:
		if version := h[0] >> 6; version != 0 {
			return payload{}, WellFormed
		}
		return payload{16 + 4*int(h[0]&0x3f), binary.BigEndian.Uint16(h[2:])}, WellFormed
	}
	if identified := h[0]&0x08 != 0; !identified {
		return payload{}, WellFormed
	}
	return payload{16, etherBridging}, WellFormed
}

// gtpu reads section 5 of 3GPP TS 29.281. What the message is of is told by its first byte.
func gtpu(b []byte, cut bool) (payload, Malformed) {
	const userPacket = 255
	flags, message := b[8], b[9]
	if flags>>5 != 1 || message != userPacket {
		return payload{}, WellFormed
	}
	at := 16
	if flags&7 != 0 { // a sequence number, a number of N-PDU or an extension header
		if len(b) < at+4 {
			return tooShort(cut)
		}
		next := b[at+3]
		at += 4
		for n := 0; flags&4 != 0 && next != 0; n++ {
			if n == maxGTPExtensions {
				return payload{}, ExtHeaders
			}
			if len(b) <= at {
				return tooShort(cut)
			}
			size := 4 * int(b[at])
			if size == 0 {
				return payload{}, WellFormed
			}
			at += size
			if len(b) < at {
				return tooShort(cut)
			}
			next = b[at-1]
		}
	}
	if len(b) <= at {
		return tooShort(cut)
	}
	return payload{at, versionTypes[b[at]>>4]}, WellFormed
}

// encapsulate makes Inner the payload, behind the header of the tunnel that protocol and
// destination port stand for: VXLAN with Ethernet, the others without.
func (s *Spec) encapsulate() error {
	if len(s.Payload) > 0 {
		return errors.New("a packet that carries another has no payload besides")
	}
	if s.Frag != nil && *s.Frag > 0 {
		return errors.New("a later fragment has no header of a tunnel")
	}
	frame, l, err := BuildLayout(*s.Inner)
	if err != nil {
		return fmt.Errorf("the packet within: %w", err)
	}
	etherType := binary.BigEndian.Uint16(frame[max(l.IP, etherHeader)-2:])
	bare := frame[max(l.IP, etherHeader):]
	port := -1
	if s.ToPort != nil && s.Protocol() == ProtoUDP {
		port = int(*s.ToPort)
	}
	switch {
	case port == PortVXLAN || port == PortVXLANOld:
		s.Payload = append([]byte{0x08, 0, 0, 0, 0, 0, 1, 0}, frame...)
		return nil
	case port == PortGeneve:
		s.Payload = append([]byte{0, 0, byte(etherType >> 8), byte(etherType), 0, 0, 1, 0}, bare...)
	case port == PortGTPU:
		s.Payload = append([]byte{0x30, 255, byte(len(bare) >> 8), byte(len(bare)), 0, 0, 0, 1},
			bare...)
	case s.Protocol() == ProtoGRE:
		s.Payload = append([]byte{0, 0, byte(etherType >> 8), byte(etherType)}, bare...)
	case s.Protocol() == ProtoIPIP && etherType == EtherIPv4,
		s.Protocol() == ProtoIPv6 && etherType == EtherIPv6:
		s.Payload = bare
	default:
		return errors.New("it carries no packet of that family: tunnels are udp port 4789, 8472, " +
			"6081 and 2152, gre, ipip with ipv4 and proto 41 with ipv6")
	}
	if s.Inner.VLAN != nil || etherType != EtherIPv4 && etherType != EtherIPv6 {
		return errors.New("only udp port 4789 and 8472 are given Ethernet with tags, and other " +
			"frames than IP")
	}
	return nil
}
