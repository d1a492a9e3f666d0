package packet

import (
	"encoding/binary"
	"net/netip"
)

// Malformed says why a frame has no meaning; 0 is a well-formed frame. A reason's value is one
// more than its index in policy.Malformed, and the same as in bpf/parse.h.
type Malformed uint8

// Reasons, in the order of docs/reference/decoding.md "Decoding".
const (
	WellFormed Malformed = iota
	TruncatedEthernet
	VLANDepth
	TruncatedIP
	IPVersion
	IPHeaderLength
	IPLength
	ExtHeaders
	TruncatedExt
	TruncatedL4
	L4Length
	FragmentOverlap // this and those behind are found beside other fragments, not by Decode
	FragmentTiny
	FragmentOrphan
)

// Slot returns the slot of a reason: its counter among those of a policy.
func (m Malformed) Slot() int { return int(m) - 1 }

// BesideOthers reports whether a fragment is found malformed beside others of its datagram only.
func (m Malformed) BesideOthers() bool { return m >= FragmentOverlap }

// etherHeader is the length of an Ethernet header.
const etherHeader = 14

// Limits of the decoder: what is deeper is malformed.
const (
	maxTags       = 2
	maxExtensions = 8
)

// Transport says which fields of a transport header a packet has.
type Transport uint8

const (
	NoTransport    Transport = iota // another protocol, or a later fragment
	PortTransport                   // UDP, UDP-Lite, SCTP, DCCP: ports
	TCPTransport                    // TCP: ports and flags
	ICMPTransport                   // ICMP in IPv4: type and code
	ICMP6Transport                  // ICMPv6 in IPv6: type and code
)

// Packet is a decoded frame. A field that the packet does not have is zero; the fields that say
// which it has are named at each. If Malformed is not 0, the others are what was read before the
// fault, and mean nothing to a policy.
type Packet struct {
	Malformed Malformed
	Link      Link // of the device; L3 has no MAC addresses and no tags

	SrcMAC, DstMAC uint64 // 48 bits, first octet highest
	AllTags        int    // 0 to 2
	Tags           int    // of these, how many are no priority tags
	VLAN           uint16 // id of the outermost of them, if Tags > 0
	InnerVLAN      uint16 // id of the second, if Tags == 2
	EtherType      uint16 // after the tags
	Len            int    // bytes of the IP packet, or all that follows Ethernet and tags

	Family        Family     // IPv4, IPv6, or AnyFamily for a frame that is neither
	Carried       bool       // IP within PPPoE or MPLS, whose EtherType then shows as that of IP
	Src, Dst      netip.Addr // and the rest of this block: if Family is IPv4 or IPv6
	Proto         uint8      // protocol, or last next header
	TTL           uint8
	DSCP          uint8 // 0 to 63
	Fragment      bool  // a fragment, first or later
	LaterFragment bool  // with an offset: no transport header

	Datagram      uint32 // of fragments: the identification
	FragmentAt    int    // and where their data begins in that of the datagram, in bytes
	FragmentLen   int    // bytes of their data
	MoreFragments bool

	Transport        Transport
	SrcPort, DstPort uint16 // PortTransport, TCPTransport
	Flags            uint8  // TCPTransport
	Window           uint16 // TCPTransport
	Type, Code       uint8  // ICMPTransport, ICMP6Transport
	UDPPayload       int    // bytes behind the header of UDP, of those that it says, that are there
	TCPPayload       int    // likewise of TCP

	NetworkOffset    int // in the frame: what follows Ethernet and tags
	TransportOffset  int // in the frame: what follows the IP headers; 0 if not reached
	ExtensionHeaders int // IPv6 extension headers walked

	cut bool // it is within a tunnel, and the rest of it in other fragments
}

// HasPorts says whether the packet has a source and a destination port.
func (p *Packet) HasPorts() bool {
	return p.Transport == PortTransport || p.Transport == TCPTransport
}

// IsIP says whether the packet is IPv4 or IPv6.
func (p *Packet) IsIP() bool { return p.Family != AnyFamily }

// Decode reads frame, which starts with its Ethernet header and has no FCS, into p, as
// docs/reference/decoding.md "Decoding" says. It allocates nothing and keeps no part of frame.
func Decode(frame []byte, p *Packet) { Ethernet.Decode(frame, p) }

func (p *Packet) ethernet(frame []byte) Malformed {
	if len(frame) < etherHeader {
		return TruncatedEthernet
	}
	p.DstMAC = mac(frame[0:6])
	p.SrcMAC = mac(frame[6:12])
	p.EtherType = binary.BigEndian.Uint16(frame[12:])
	off := etherHeader
	for p.EtherType == EtherCTag || p.EtherType == EtherSTag {
		// The tag's TPID has been read. A third is refused for that alone.
		if p.AllTags == maxTags {
			return VLANDepth
		}
		if len(frame) < off+4 {
			return TruncatedEthernet
		}
		id := binary.BigEndian.Uint16(frame[off:]) & 0x0fff
		p.AllTags++
		switch {
		case id == 0: // a priority tag: IEEE 802.1Q section 9.6, "the null VLAN ID"
		case p.Tags == 0:
			p.VLAN = id
			p.Tags++
		default:
			p.InnerVLAN = id
			p.Tags++
		}
		p.EtherType = binary.BigEndian.Uint16(frame[off+2:])
		off += 4
	}
	p.NetworkOffset = off
	p.Len = len(frame) - off
	frame, bad := p.lookThrough(frame)
	if bad != WellFormed {
		return bad
	}
	off = p.NetworkOffset
	switch p.EtherType {
	case EtherIPv4:
		return p.ipv4(frame[off:])
	case EtherIPv6:
		return p.ipv6(frame[off:])
	}
	return WellFormed
}

// EtherTypes of what carries IP and is looked through.
const (
	EtherPPPoE         = 0x8864 // session stage, RFC 2516
	EtherMPLS          = 0x8847 // RFC 3032
	EtherMPLSMulticast = 0x8848
)

// EtherTypes of what PPP calls by its own numbers (RFC 1332, RFC 5072), and of versions of IP.
var (
	pppTypes     = map[uint16]uint16{0x0021: EtherIPv4, 0x0057: EtherIPv6}
	versionTypes = map[byte]uint16{4: EtherIPv4, 6: EtherIPv6}
)

// maxLabels is the number of labels of MPLS that are looked through.
const maxLabels = 8

// lookThrough finds IP that PPPoE or MPLS carries, and gives the frame up to where it ends.
func (p *Packet) lookThrough(frame []byte) ([]byte, Malformed) {
	b := frame[p.NetworkOffset:]
	switch p.EtherType {
	case EtherPPPoE:
		if len(b) < 8 {
			return nil, TruncatedEthernet
		}
		protocol, bytes := binary.BigEndian.Uint16(b[6:]), 2
		if b[6]&1 != 0 { // compressed to one byte (RFC 1661 section 6.5)
			protocol, bytes = uint16(b[6]), 1
		}
		inner := pppTypes[protocol]
		if inner == 0 { // Linux looks at neither version nor code
			return frame, WellFormed
		}
		length := int(binary.BigEndian.Uint16(b[4:]))
		if length < bytes || !p.cut && 6+length > len(b) {
			return nil, TruncatedEthernet
		}
		frame = frame[:min(len(frame), p.NetworkOffset+6+length)]
		p.EtherType, p.Carried = inner, true
		p.NetworkOffset += 6 + bytes
	case EtherMPLS, EtherMPLSMulticast:
		for i := range maxLabels {
			if len(b) < 4*i+4 {
				return nil, TruncatedEthernet
			}
			if b[4*i+2]&1 == 0 { // the last one has the bit
				continue
			}
			inner := b[4*i+4:]
			if p.cut && len(inner) == 0 {
				return nil, TruncatedEthernet
			}
			if len(inner) > 0 {
				version := versionTypes[inner[0]>>4]
				if version != 0 {
					p.EtherType, p.Carried = version, true
					p.NetworkOffset += 4*i + 4
				}
			}
			break
		}
	}
	return frame, WellFormed
}

func mac(b []byte) uint64 {
	return uint64(binary.BigEndian.Uint16(b))<<32 | uint64(binary.BigEndian.Uint32(b[2:]))
}

// ipv4 reads RFC 791; b is all that follows Ethernet and tags.
func (p *Packet) ipv4(b []byte) Malformed {
	if len(b) < 20 {
		return TruncatedIP
	}
	if b[0]>>4 != 4 {
		return IPVersion
	}
	header := int(b[0]&15) * 4
	if header < 20 {
		return IPHeaderLength
	}
	total := int(binary.BigEndian.Uint16(b[2:]))
	if p.cut && header > len(b) {
		return TruncatedIP
	}
	if total < header || total > len(b) && !p.cut {
		return IPLength
	}
	here := min(total, len(b))
	frag := binary.BigEndian.Uint16(b[6:])
	offset := int(frag&0x1fff) * 8
	if offset+total > 0xffff {
		return IPLength
	}
	p.Family = IPv4
	p.Len = total
	p.DSCP = b[1] >> 2
	p.TTL = b[8]
	p.Proto = b[9]
	p.Src = netip.AddrFrom4([4]byte(b[12:16]))
	p.Dst = netip.AddrFrom4([4]byte(b[16:20]))
	p.LaterFragment = offset > 0
	p.Fragment = offset > 0 || frag&0x2000 != 0
	p.MoreFragments = frag&0x2000 != 0
	p.Datagram = uint32(binary.BigEndian.Uint16(b[4:]))
	p.FragmentAt, p.FragmentLen = offset, here-header
	p.TransportOffset = p.NetworkOffset + header
	return p.transport(b[header:here])
}

// ipv6 reads RFC 8200; b is all that follows Ethernet and tags.
func (p *Packet) ipv6(b []byte) Malformed {
	if len(b) < 40 {
		return TruncatedIP
	}
	if b[0]>>4 != 6 {
		return IPVersion
	}
	payload := int(binary.BigEndian.Uint16(b[4:]))
	if payload > len(b)-40 && !p.cut {
		return IPLength
	}
	here := min(40+payload, len(b))
	p.Family = IPv6
	p.Len = 40 + payload
	p.DSCP = uint8(binary.BigEndian.Uint16(b) >> 6 & 0x3f)
	p.TTL = b[7]
	p.Src = netip.AddrFrom16([16]byte(b[8:24]))
	p.Dst = netip.AddrFrom16([16]byte(b[24:40]))
	p.TransportOffset = p.NetworkOffset + 40
	rest, bad := p.extensions(b[6], b[40:here])
	if bad != WellFormed {
		return bad
	}
	return p.transport(rest)
}

// extensions walks the chain that begins with header number next, and sets Proto; it returns what
// follows the last extension header. b is the whole IPv6 payload.
func (p *Packet) extensions(next uint8, b []byte) ([]byte, Malformed) {
	for isExtension(next) {
		if p.ExtensionHeaders == maxExtensions {
			return nil, ExtHeaders
		}
		if len(b) < 8 { // no extension header is shorter
			return nil, TruncatedExt
		}
		size := 8 + int(b[1])*8 // RFC 8200 section 4.3; RFC 6275 section 6.1.1
		switch next {
		case ProtoFragment: // RFC 8200 section 4.5: byte 1 is reserved
			size = 8
		case ProtoAH: // RFC 4302 section 2.2
			size = 8 + int(b[1])*4
		}
		if len(b) < size {
			return nil, TruncatedExt
		}
		p.ExtensionHeaders++
		p.TransportOffset += size
		header := b[:size]
		b = b[size:]
		if next == ProtoFragment && p.fragment(header, len(b)) {
			return nil, IPLength
		}
		next = header[0]
		if p.LaterFragment {
			break
		}
	}
	p.Proto = next
	return b, WellFormed
}

// fragment notes what a Fragment header says, and whether the fragment would end beyond 65,535.
func (p *Packet) fragment(header []byte, behind int) (tooLong bool) {
	field := binary.BigEndian.Uint16(header[2:])
	offset := int(field &^ 7) // units of 8 bytes, above three flag bits
	if offset > 0 {
		p.LaterFragment = true
	}
	if offset > 0 || field&1 != 0 {
		p.Fragment = true
		p.MoreFragments = field&1 != 0
		p.Datagram = binary.BigEndian.Uint32(header[4:])
		p.FragmentAt, p.FragmentLen = offset, behind
	}
	return offset+behind > 0xffff
}

// transport reads the header of b, which is the payload of the IP packet without padding.
func (p *Packet) transport(b []byte) Malformed {
	if p.LaterFragment {
		return WellFormed
	}
	switch {
	case p.Proto == ProtoTCP:
		return p.tcp(b)
	case p.Proto == ProtoUDP || p.Proto == ProtoUDPLite:
		if len(b) < 8 {
			return TruncatedL4
		}
		p.ports(PortTransport, b)
		if p.Proto == ProtoUDP {
			return p.udp(b)
		}
	case p.Proto == ProtoSCTP || p.Proto == ProtoDCCP:
		if len(b) < 12 {
			return TruncatedL4
		}
		p.ports(PortTransport, b)
	case p.Proto == ProtoICMP && p.Family == IPv4:
		return p.icmp(ICMPTransport, b)
	case p.Proto == ProtoICMP6 && p.Family == IPv6:
		return p.icmp(ICMP6Transport, b)
	}
	return WellFormed
}

func (p *Packet) tcp(b []byte) Malformed {
	if len(b) < 20 {
		return TruncatedL4
	}
	header := int(b[12]>>4) * 4
	if header < 20 || header > len(b) {
		return L4Length
	}
	p.TCPPayload = len(b) - header
	p.ports(TCPTransport, b)
	p.Flags = b[13]
	p.Window = binary.BigEndian.Uint16(b[14:])
	return WellFormed
}

// udp reads the length field, which may be less than there is: nobody is given the bytes behind it.
// In a first fragment it is the length of the whole datagram, which is longer than what is there.
func (p *Packet) udp(b []byte) Malformed {
	n := int(binary.BigEndian.Uint16(b[4:]))
	if n < 8 || !p.Fragment && !p.cut && n > len(b) {
		return L4Length
	}
	p.UDPPayload = min(n, len(b)) - 8
	return WellFormed
}

func (p *Packet) icmp(t Transport, b []byte) Malformed {
	if len(b) < 8 {
		return TruncatedL4
	}
	p.Transport, p.Type, p.Code = t, b[0], b[1]
	return WellFormed
}

func (p *Packet) ports(t Transport, b []byte) {
	p.Transport = t
	p.SrcPort = binary.BigEndian.Uint16(b)
	p.DstPort = binary.BigEndian.Uint16(b[2:])
}
