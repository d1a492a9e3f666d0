package packet

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
)

// Build makes the Ethernet frame that s describes, with right lengths and checksums and without
// padding or FCS. It fails for what docs/language.md does not allow in a test: a field that the
// packet does not have, a number out of range, a `len` below the headers or above what the length
// field can say.
//
// A later fragment (Frag above 0) has no transport header: its ports, flags and type only say
// which protocol it belongs to. The checksum of a first fragment covers what the fragment holds.
func Build(s Spec) ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	frame := s.ethernet()
	switch s.family() {
	case IPv4:
		return s.appendIPv4(frame)
	case IPv6:
		return s.appendIPv6(frame)
	case ARP:
		return s.pad(frame, s.arp(), 0xffff)
	}
	return s.pad(frame, nil, 0xffff)
}

func (s Spec) ethernet() []byte {
	src, dst := defaultSrcMAC, defaultDstMAC
	if s.EtherFrom != nil {
		src = *s.EtherFrom
	}
	if s.EtherTo != nil {
		dst = *s.EtherTo
	}
	b := append(append(make([]byte, 0, 64), dst[:]...), src[:]...)
	if s.VLAN != nil {
		tpid := uint16(EtherCTag)
		if s.InnerVLAN != nil {
			tpid = EtherSTag
		}
		b = be16(be16(b, tpid), *s.VLAN)
	}
	if s.InnerVLAN != nil {
		b = be16(be16(b, EtherCTag), *s.InnerVLAN)
	}
	switch s.family() {
	case IPv4:
		return be16(b, EtherIPv4)
	case IPv6:
		return be16(b, EtherIPv6)
	case ARP:
		return be16(b, EtherARP)
	}
	return be16(b, s.EtherType)
}

// arp is a request (RFC 826) from From for To.
func (s Spec) arp() []byte {
	src := defaultSrcMAC
	if s.EtherFrom != nil {
		src = *s.EtherFrom
	}
	from, to := s.addresses()
	b := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	b = append(append(b, src[:]...), from.AsSlice()...)
	return append(append(b, 0, 0, 0, 0, 0, 0), to.AsSlice()...)
}

func (s Spec) addresses() (from, to netip.Addr) {
	from, to = defaultFrom4, defaultTo4
	if s.family() == IPv6 {
		from, to = defaultFrom6, defaultTo6
	}
	if s.From.IsValid() {
		from = s.From
	}
	if s.To.IsValid() {
		to = s.To
	}
	return from, to
}

func (s Spec) appendIPv4(frame []byte) ([]byte, error) {
	h := make([]byte, 20, 24)
	if s.Options {
		h = append(h, 1, 1, 1, 0) // three no-operations, end of list (RFC 791 section 3.1)
	}
	l4, err := s.payload(len(h), 0xffff)
	if err != nil {
		return nil, err
	}
	from, to := s.addresses()
	h[0] = 0x40 | byte(len(h)/4)
	h[1] = s.DSCP << 2
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(l4)))
	if s.Frag != nil {
		f := *s.Frag
		if f == 0 {
			f = 0x2000 // more fragments
		}
		binary.BigEndian.PutUint16(h[6:], f)
	}
	h[8] = s.ttl()
	h[9] = s.Protocol()
	copy(h[12:], from.AsSlice())
	copy(h[16:], to.AsSlice())
	binary.BigEndian.PutUint16(h[10:], ^sum(h, 0))
	return append(append(frame, h...), l4...), nil
}

func (s Spec) appendIPv6(frame []byte) ([]byte, error) {
	proto := s.Protocol()
	var ext []byte
	next := proto
	if s.Frag != nil {
		off := *s.Frag << 3
		if *s.Frag == 0 {
			off = 1 // more fragments
		}
		ext = append(be16([]byte{next, 0}, off), 0, 0, 0, 1)
		next = ProtoFragment
	}
	if s.Options {
		// Eight bytes whose only option is PadN (RFC 8200 section 4.2); before a Fragment header,
		// so that a later fragment has it too.
		ext = append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, ext...)
		next = ProtoDestOpts
	}
	l4, err := s.payload(40+len(ext), 40+0xffff)
	if err != nil {
		return nil, err
	}
	from, to := s.addresses()
	h := make([]byte, 40)
	binary.BigEndian.PutUint32(h, 6<<28|uint32(s.DSCP)<<22)
	binary.BigEndian.PutUint16(h[4:], uint16(len(ext)+len(l4)))
	h[6], h[7] = next, s.ttl()
	copy(h[8:], from.AsSlice())
	copy(h[24:], to.AsSlice())
	return append(append(append(frame, h...), ext...), l4...), nil
}

func (s Spec) ttl() uint8 {
	if s.TTL != nil {
		return *s.TTL
	}
	return defaultTTL
}

// pad brings body to Len bytes and appends it to frame.
func (s Spec) pad(frame, body []byte, most int) ([]byte, error) {
	if s.Len == nil {
		return append(frame, body...), nil
	}
	if *s.Len < len(body) || *s.Len > most {
		return nil, fmt.Errorf("len %d: this packet has %d to %d bytes", *s.Len, len(body), most)
	}
	return append(append(frame, body...), make([]byte, *s.Len-len(body))...), nil
}

// payload is the transport header and the zero bytes that bring the packet to Len; headers is the
// number of bytes in front of it, most the longest packet.
func (s Spec) payload(headers, most int) ([]byte, error) {
	var h []byte
	if s.Frag == nil || *s.Frag == 0 {
		h = s.transport()
	}
	n := headers + len(h)
	if s.Len != nil {
		n = *s.Len
	}
	if n < headers+len(h) || n > most {
		return nil, fmt.Errorf("len %d: this packet has %d to %d bytes", n, headers+len(h), most)
	}
	b := append(h, make([]byte, n-headers-len(h))...)
	if len(h) > 0 {
		s.finish(b)
	}
	return b, nil
}

// transport is the header without lengths and checksums.
func (s Spec) transport() []byte {
	src, dst := uint16(defaultSrcPort), uint16(defaultDstPort)
	if s.FromPort != nil {
		src = *s.FromPort
	}
	if s.ToPort != nil {
		dst = *s.ToPort
	}
	ports := be16(be16(nil, src), dst)
	switch s.Protocol() {
	case ProtoTCP:
		flags := uint8(ACK)
		if s.Flags != nil {
			flags = *s.Flags
		}
		return append(ports, 0, 0, 0, 1, 0, 0, 0, 0, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	case ProtoUDP, ProtoUDPLite: // a coverage of 0 is the whole datagram (RFC 3828 section 3.1)
		return append(ports, 0, 0, 0, 0)
	case ProtoSCTP:
		return append(ports, 0, 0, 0, 0, 0, 0, 0, 0)
	case ProtoDCCP: // data offset 3, checksum over all, type DCCP-Data, short numbers (RFC 4340 section 5.1)
		return append(ports, 3, 0, 0, 0, 2<<1, 0, 0, 1)
	case ProtoICMP, ProtoICMP6:
		return s.icmp()
	}
	return nil
}

// icmp is an ICMP header in IPv4, an ICMPv6 header in IPv6, and nothing in the other family, where
// the number is a protocol like any other.
func (s Spec) icmp() []byte {
	typ := uint8(8) // echo request
	if s.family() == IPv6 {
		typ = 128
	}
	if (s.Protocol() == ProtoICMP6) != (s.family() == IPv6) {
		return nil
	}
	if s.Type != nil {
		typ = *s.Type
	}
	return []byte{typ, s.Code, 0, 0, 0, 1, 0, 1}
}

// finish fills in the lengths and checksums of b, transport header and data.
func (s Spec) finish(b []byte) {
	proto := s.Protocol()
	var pseudo uint32
	if proto != ProtoICMP { // RFC 792: ICMP has no pseudo header
		from, to := s.addresses()
		pseudo = partial(from.AsSlice(), 0)
		pseudo = partial(to.AsSlice(), pseudo)
		pseudo += uint32(proto) + uint32(len(b))
	}
	switch proto {
	case ProtoTCP:
		binary.BigEndian.PutUint16(b[16:], ^sum(b, pseudo))
	case ProtoUDP:
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
		binary.BigEndian.PutUint16(b[6:], nonzero(^sum(b, pseudo)))
	case ProtoUDPLite:
		binary.BigEndian.PutUint16(b[6:], nonzero(^sum(b, pseudo)))
	case ProtoDCCP:
		binary.BigEndian.PutUint16(b[6:], ^sum(b, pseudo))
	case ProtoICMP, ProtoICMP6:
		binary.BigEndian.PutUint16(b[2:], ^sum(b, pseudo))
	case ProtoSCTP: // CRC32c in the order of RFC 9260 appendix A
		binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	}
}

// nonzero keeps a computed checksum from meaning "no checksum" (RFC 768).
func nonzero(c uint16) uint16 {
	if c == 0 {
		return 0xffff
	}
	return c
}

// partial adds b to an Internet checksum (RFC 1071) that is not folded yet.
func partial(b []byte, acc uint32) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		acc += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		acc += uint32(b[0]) << 8
	}
	return acc
}

// sum is the folded Internet checksum of b on top of acc, not complemented. acc may not exceed
// what 65,575 bytes add up to, which 32 bits hold.
func sum(b []byte, acc uint32) uint16 {
	acc = partial(b, acc)
	for acc > 0xffff {
		acc = acc>>16 + acc&0xffff
	}
	return uint16(acc)
}

func be16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }
