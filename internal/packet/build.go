package packet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// Build makes the Ethernet frame that s describes, with right lengths and checksums and without
// padding or FCS. It fails for what docs/reference/language.md does not allow in a test: a field
// that the packet does not have, a number out of range, a `len` below the headers or above what the
// length field can say.
//
// A later fragment (Frag above 0) has no transport header: its ports, flags and type only say
// which protocol it belongs to. The checksum of a first fragment covers what the fragment holds.
func Build(s Spec) ([]byte, error) {
	frame, _, err := BuildLayout(s)
	return frame, err
}

// BuildLayout is Build that also says where the parts of the frame are.
func BuildLayout(s Spec) ([]byte, Layout, error) {
	if s.Inner != nil {
		if err := s.encapsulate(); err != nil {
			return nil, Layout{}, err
		}
	}
	if err := s.check(); err != nil {
		return nil, Layout{}, err
	}
	frame, l := s.ethernet()
	var err error
	switch s.family() {
	case IPv4:
		frame, err = s.appendIPv4(frame, &l)
	case IPv6:
		frame, err = s.appendIPv6(frame, &l)
	case ARP:
		l.ARP = len(frame)
		l.Payload = l.ARP + 28
		frame, err = s.pad(frame, s.arp(), 0xffff)
	default:
		l.Payload = len(frame)
		frame, err = s.pad(frame, s.carrier(), 0xffff)
	}
	if err != nil {
		return nil, l, err
	}
	return frame, l, s.finish(frame, &l)
}

func (s Spec) ethernet() (b []byte, l Layout) {
	src, dst := defaultSrcMAC, defaultDstMAC
	if s.EtherFrom != nil {
		src = *s.EtherFrom
	}
	if s.EtherTo != nil {
		dst = *s.EtherTo
	}
	b = append(append(make([]byte, 0, 64), dst[:]...), src[:]...)
	if s.VLAN != nil {
		tpid := uint16(EtherCTag)
		if s.InnerVLAN != nil {
			tpid = EtherSTag
		}
		l.Tag = len(b)
		b = be16(be16(b, tpid), *s.VLAN)
	}
	if s.InnerVLAN != nil {
		l.Inner = len(b)
		b = be16(be16(b, EtherCTag), *s.InnerVLAN)
	}
	switch s.family() {
	case IPv4:
		return be16(b, EtherIPv4), l
	case IPv6:
		return be16(b, EtherIPv6), l
	case ARP:
		return be16(b, EtherARP), l
	}
	return be16(b, s.EtherType), l
}

// carrier returns the header of what carries IP, in front of something else: a session of PPPoE
// with the protocol that sets it up (LCP, RFC 1661), or a label of MPLS that is the last one. A
// packet too short for this header has none.
func (s Spec) carrier() []byte {
	var header []byte
	switch s.EtherType {
	case EtherPPPoE:
		header = []byte{0x11, 0, 0, 0, 0, 2, 0xc0, 0x21}
	case EtherMPLS, EtherMPLSMulticast:
		header = []byte{0, 0, 1, 0}
	}
	if s.Len != nil && *s.Len < len(header)+len(s.Payload) {
		return nil
	}
	return header
}

// arp returns a request (RFC 826) from From for To.
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

func (s Spec) appendIPv4(frame []byte, l *Layout) ([]byte, error) {
	h := make([]byte, 20, 60)
	h = append(h, s.IPOptions...)
	if s.Options && len(s.IPOptions) == 0 {
		h = append(h, 1, 1, 1, 0) // three no-operations, end of list (RFC 791 section 3.1)
	}
	h = h[:(len(h)+3)&^3]
	l4, err := s.payload(frame, l, len(h), 0xffff)
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
	return append(append(frame, h...), l4...), nil
}

func (s Spec) appendIPv6(frame []byte, l *Layout) ([]byte, error) {
	next := s.Protocol()
	var ext []byte
	if s.Frag != nil {
		off := *s.Frag << 3
		if *s.Frag == 0 {
			off = 1 // more fragments
		}
		ext = append(be16([]byte{next, 0}, off), 0, 0, 0, 1)
		next = ProtoFragment
	}
	headers := s.Extensions
	if s.Options {
		// In front of a Fragment header, so that a later fragment has it too.
		headers = append(headers[:len(headers):len(headers)], Extension{Proto: ProtoDestOpts})
	}
	for _, e := range slices.Backward(headers) {
		h, err := e.header(next)
		if err != nil {
			return nil, err
		}
		ext = append(h, ext...)
		next = e.Proto
	}
	l4, err := s.payload(frame, l, 40+len(ext), 40+0xffff)
	if err != nil {
		return nil, err
	}
	if s.Frag != nil {
		l.Frag = l.IP + 40 + len(ext) - 8
	}
	l.Six = true
	from, to := s.addresses()
	h := make([]byte, 40)
	binary.BigEndian.PutUint32(h, 6<<28|uint32(s.DSCP)<<22)
	binary.BigEndian.PutUint16(h[4:], uint16(len(ext)+len(l4)))
	h[6], h[7] = next, s.ttl()
	copy(h[8:], from.AsSlice())
	copy(h[24:], to.AsSlice())
	return append(append(append(frame, h...), ext...), l4...), nil
}

// header returns the extension header with what follows it. Without a body it has eight bytes: a
// PadN (RFC 8200 section 4.2), or a routing header of the experimental type 253 (RFC 4727) with no
// segments left.
func (e Extension) header(next uint8) ([]byte, error) {
	body := e.Body
	if len(body) == 0 {
		body = []byte{1, 4, 0, 0, 0, 0}
		if e.Proto == ProtoRouting {
			body = []byte{253, 0, 0, 0, 0, 0}
		}
	}
	n := (2 + len(body) + 7) &^ 7
	if n > 256*8 {
		return nil, fmt.Errorf("an extension header of %d bytes: at most %d", n, 256*8)
	}
	h := make([]byte, n)
	h[0], h[1] = next, byte(n/8-1)
	copy(h[2:], body)
	return h, nil
}

func (s Spec) ttl() uint8 {
	if s.TTL != nil {
		return *s.TTL
	}
	return defaultTTL
}

// pad appends body and Payload to frame, brought to Len bytes.
func (s Spec) pad(frame, body []byte, most int) ([]byte, error) {
	n := len(body) + len(s.Payload)
	want := n
	if s.Len != nil {
		want = *s.Len
	}
	if want < n || want > most {
		return nil, fmt.Errorf("len %d: this packet has %d to %d bytes", want, n, most)
	}
	return s.fill(append(append(frame, body...), s.Payload...), want-n), nil
}

// fill appends n bytes, zero or counting.
func (s Spec) fill(b []byte, n int) []byte {
	for i := range n {
		c := byte(0)
		if s.Counting {
			c = byte(i)
		}
		b = append(b, c)
	}
	return b
}

// payload returns the transport header and what follows, which bring the packet to Len; headers is
// the number of bytes of IP in front of it, most the longest packet. It notes in l where they will
// be behind frame.
func (s Spec) payload(frame []byte, l *Layout, headers, most int) ([]byte, error) {
	l.IP, l.Proto = len(frame), s.Protocol()
	var h []byte
	if s.Frag == nil || *s.Frag == 0 {
		h = s.transport()
	}
	if l.Payload = l.IP + headers + len(h); len(h) > 0 {
		l.L4 = l.IP + headers
	}
	least := headers + len(h) + len(s.Payload)
	n := least
	if s.Len != nil {
		n = *s.Len
	}
	if n < least || n > most {
		return nil, fmt.Errorf("len %d: this packet has %d to %d bytes", n, least, most)
	}
	b := s.fill(append(h, s.Payload...), n-least)
	if proto := s.Protocol(); proto == ProtoUDP && len(h) > 0 {
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	}
	return b, nil
}

// transport returns the header without lengths and checksums.
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
		n := (len(s.TCPOptions) + 3) &^ 3
		h := append(ports, 0, 0, 0, 1, 0, 0, 0, 0, byte(5+n/4)<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
		return append(append(h, s.TCPOptions...), make([]byte, n-len(s.TCPOptions))...)
	case ProtoUDP, ProtoUDPLite: // a coverage of 0 is the whole datagram (RFC 3828 section 3.1)
		return append(ports, 0, 0, 0, 0)
	case ProtoSCTP:
		return append(ports, 0, 0, 0, 0, 0, 0, 0, 0)
	// data offset 3, checksum over all, type DCCP-Data, short numbers (RFC 4340 section 5.1)
	case ProtoDCCP:
		return append(ports, 3, 0, 0, 0, 2<<1, 0, 0, 1)
	case ProtoICMP, ProtoICMP6:
		return s.icmp()
	}
	return nil
}

// icmp returns an ICMP header in IPv4, an ICMPv6 header in IPv6, and nothing in the other family,
// where the number is a protocol like any other.
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

// finish sets the fields that were given, then the checksums that were not.
func (s Spec) finish(frame []byte, l *Layout) error {
	var keepIP, keepL4 bool
	for _, f := range s.Fields {
		bit, bits, ok := l.Locate(frame, f.Word)
		switch {
		case !ok:
			return fmt.Errorf("%s: %w", f.Word, errNoSuchField)
		case bits < 64 && f.Value>>bits != 0:
			return fmt.Errorf("%s %d: at most %d", f.Word, f.Value, uint64(1)<<bits-1)
		case f.Wrong && !IsChecksum(f.Word):
			return fmt.Errorf("%s wrong: only checksums can be wrong by themselves", f.Word)
		case f.Wrong:
			continue
		}
		keepIP = keepIP || f.Word == WordIPChecksum
		keepL4 = keepL4 || f.Word == WordChecksum
		Put(frame, bit, bits, f.Value)
	}
	l.Seal(frame, keepIP, keepL4)
	for _, f := range s.Fields {
		if f.Wrong {
			l.Spoil(frame, f.Word)
		}
	}
	return nil
}

// The words of checksums: of the IPv4 header, and of the transport.
const (
	WordIPChecksum = "ip-checksum"
	WordChecksum   = "checksum"
)

// IsChecksum tells whether a field is a checksum.
func IsChecksum(word string) bool { return word == WordIPChecksum || word == WordChecksum }

// Spoil turns bits of a computed checksum over, so that it is wrong, and not the zero that means
// none. The two forms of zero (RFC 1071) differ in all bits, so that no single bit makes one the
// other.
func (l *Layout) Spoil(frame []byte, word string) {
	bit, bits, ok := l.Locate(frame, word)
	if !ok {
		return
	}
	low := &frame[(bit+bits)/8-1]
	if *low ^= 1; *low == 0 && frame[(bit+bits)/8-2] == 0 {
		*low = 3
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

// sum returns the folded Internet checksum of b on top of acc, not complemented. acc may not exceed
// what 65,575 bytes add up to, which 32 bits hold.
func sum(b []byte, acc uint32) uint16 {
	acc = partial(b, acc)
	for acc > 0xffff {
		acc = acc>>16 + acc&0xffff
	}
	return uint16(acc)
}

func be16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }
