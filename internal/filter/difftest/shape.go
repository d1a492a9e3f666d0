package difftest

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"levee/internal/packet"
)

// shape is a packet before it is bytes. It can be any: what does not fit together is laid out as
// the rule says.
type shape struct {
	in *shape // what it carries as a tunnel
	// Spec is the values in terms. Numbers are set from the beginning, addresses, tags and Frag
	// where a packet has them, Len where the length is not that of the parts.
	packet.Spec
	v4, v6  [2]netip.Addr // source and destination of a packet whose Spec has none of its family
	outside [3]uint16     // of each tag, what stands beside its id
	tpid    [3]uint16
	third   bool    // a third tag, with the id of the second
	options int     // IPv4: words of options, 0 to 10
	ext     []uint8 // IPv6: kinds of extension headers
	atomic  bool    // IPv6: a Fragment header around a whole packet
	payload int     // bytes, unless Len says otherwise
}

type fragment uint8

const (
	firstFragment fragment = iota
	laterFragment
	atomicFragment // IPv6; in IPv4 none
)

// fragment makes s a fragment of a kind.
func (s *shape) fragment(r *rand.Rand, kind fragment) {
	s.Frag, s.atomic = nil, kind == atomicFragment
	switch kind {
	case firstFragment:
		s.Frag = new(uint16(0))
	case laterFragment:
		s.Frag = new([]uint16{1, 2, 185, 8000, 8184, 8188, 8190, 8191, 1 +
			uint16(r.IntN(8191))}[r.IntN(9)])
	}
}

// maxLength bounds the IP packet: BPF_PROG_RUN gives a program that does not know fragmented
// buffers the first 3,520 bytes of a frame (a page without headroom and trailer), and a mutation
// adds up to 60.
const maxLength = 3400

// newShape returns a random packet of the kinds that networks carry.
func newShape(r *rand.Rand) *shape {
	icmp := []uint16{8 << 8, 3<<8 | 4, 3 << 8, 128 << 8, 2 << 8, 135 << 8,
		uint16(r.Uint32())}[r.IntN(7)]
	s := &shape{
		Spec: packet.Spec{
			Family:   packet.IPv4,
			FromPort: new(uint16(r.Uint32())),
			ToPort:   new(uint16(r.Uint32())),
			TTL:      new([]uint8{64, 64, 128, 255, 1, uint8(r.Uint32())}[r.IntN(6)]),
			Flags: new([]uint8{packet.SYN, packet.ACK, packet.SYN | packet.ACK,
				uint8(r.Uint32())}[r.IntN(4)]),
			Type: new(uint8(icmp >> 8)),
			Code: uint8(icmp),
			Proto: new([]uint8{6, 6, 6, 17, 17, 17, 136, 132, 33, 1, 58, 2, 47, 50, 51, 89, 4,
				59, uint8(r.Uint32())}[r.IntN(19)]),
			EtherFrom: packet.MAC(0x020000000001),
			EtherTo:   packet.MAC(0x020000000002),
		},
		payload: []int{0, 0, 1, 8, 100, r.IntN(1500)}[r.IntN(6)],
	}
	for side := range 2 {
		var b [16]byte
		binary.BigEndian.PutUint32(b[:], r.Uint32())
		s.v4[side] = netip.AddrFrom4([4]byte(b[:4]))
		binary.BigEndian.PutUint64(b[:], 0x20010db8<<32|uint64(r.Uint32()))
		binary.BigEndian.PutUint64(b[8:], r.Uint64())
		s.v6[side] = netip.AddrFrom16(b)
	}
	if r.IntN(5) < 2 {
		s.Family = packet.IPv6
	}
	if r.IntN(4) == 0 {
		s.DSCP = uint8(r.IntN(64))
	}
	s.decorate(r)
	return s
}

// decorate adds tags, options, extension headers and fragmentation to some packets.
func (s *shape) decorate(r *rand.Rand) {
	n := []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3}[r.IntN(20)]
	for i := range s.tpid {
		s.tpid[i] = []uint16{packet.EtherCTag, packet.EtherSTag}[r.IntN(2)]
		s.outside[i] = uint16(r.Uint32()) & 0xf000
	}
	if n > 0 {
		s.VLAN = vlan(r)
	}
	if n > 1 {
		s.InnerVLAN = vlan(r)
	}
	s.third = n > 2
	if r.IntN(6) == 0 {
		s.options = 1 + r.IntN(10)
	}
	if r.IntN(4) == 0 {
		for range r.IntN(11) {
			s.ext = append(s.ext, []uint8{0, 43, 44, 51, 60, 135}[r.IntN(6)])
		}
	}
	if r.IntN(6) == 0 {
		s.fragment(r, firstFragment+fragment(r.IntN(3)))
	}
	if r.IntN(20) == 0 {
		s.SetEtherType([]uint16{packet.EtherARP, 0x88cc, 0x0026, 0x05ff, 0x0600, 0x8863,
			uint16(r.Uint32())}[r.IntN(7)])
	}
	if r.IntN(10) == 0 {
		s.essential(r)
	}
}

// vlan returns the id of a tag, of one in four that of a priority tag.
func vlan(r *rand.Rand) *uint16 {
	if r.IntN(4) == 0 {
		return new(uint16(0))
	}
	return new(uint16(r.IntN(1 << 12)))
}

// essential makes what the built-in rules look for, or nearly.
func (s *shape) essential(r *rand.Rand) {
	icmp := func(f packet.Family, proto uint8, typ, code int) {
		s.Family, s.Proto, s.Type, s.Code = f, new(proto), new(uint8(typ)), uint8(code)
	}
	switch r.IntN(7) {
	case 0:
		s.Family = packet.ARP
	case 1:
		icmp(packet.IPv6, packet.ProtoICMP6, 132+r.IntN(7), r.IntN(8)/7)
		s.TTL = new(255 - uint8(r.IntN(5)/4))
	case 2:
		icmp(packet.IPv4, packet.ProtoICMP, 3, 3+r.IntN(3))
	case 3:
		icmp(packet.IPv6, packet.ProtoICMP6, 1+r.IntN(3), r.IntN(2))
	case 4:
		s.Proto = new(uint8(packet.ProtoUDP))
		from, to := uint16(67), uint16(68)
		if r.IntN(2) == 0 {
			from, to = 547, 546
		}
		if r.IntN(4) == 0 {
			from, to = to, from
		}
		s.FromPort, s.ToPort = new(from), new(to)
		if from == 547 && r.IntN(2) == 0 {
			s.FromPort = new(uint16(1024 + r.IntN(60000)))
			near := [16]byte{0xfe, 0x80 + byte(r.IntN(5)<<4), 15: 1}
			s.From, s.To = netip.AddrFrom16(near), netip.AddrFrom16(near)
		}
	case 5:
		icmp(packet.IPv6, packet.ProtoICMP6, 129+r.IntN(3), r.IntN(2))
		s.TTL = new(1 + uint8(r.IntN(4)/3))
		if r.IntN(4) > 0 {
			s.From = netip.AddrFrom16([16]byte{0xfe, 0x80 + byte(r.IntN(5)<<4), 15: 1})
		}
	case 6:
		s.SetEtherType([]uint16{0x8808, 0x8809, 0x880a, 0x888d, 0x888e, 0x888f}[r.IntN(6)])
	}
}

// addresses returns the source and the destination in the family of the packet.
func (s *shape) addresses() (from, to netip.Addr) {
	all, six := s.v4, s.Family == packet.IPv6
	if six {
		all = s.v6
	}
	from, to = all[0], all[1]
	if s.From.IsValid() && s.From.Is6() == six {
		from = s.From
	}
	if s.To.IsValid() && s.To.Is6() == six {
		to = s.To
	}
	return from, to
}

// laidOut is a frame with the places that mutations change; 0: there is none.
type laidOut struct {
	b      []byte
	ip, l4 int   // offsets
	ext    []int // offsets of the extension headers
}

func (s *shape) layOut(r *rand.Rand) laidOut {
	b := make([]byte, 0, 128)
	b = append(append(b, s.EtherTo[:]...), s.EtherFrom[:]...)
	tags := []*uint16{s.VLAN, s.InnerVLAN, nil}
	if s.third {
		tags[2] = s.InnerVLAN
	}
	for i, id := range tags {
		if id != nil {
			b = binary.BigEndian.AppendUint16(b, s.tpid[i])
			b = binary.BigEndian.AppendUint16(b, s.outside[i]|*id)
		}
	}
	l := laidOut{}
	switch s.Family {
	case packet.IPv4:
		l.b = binary.BigEndian.AppendUint16(b, packet.EtherIPv4)
		s.ipv4(r, &l)
		s.setFields(&l)
		return l
	case packet.IPv6:
		l.b = binary.BigEndian.AppendUint16(b, packet.EtherIPv6)
		s.ipv6(r, &l)
		s.setFields(&l)
		return l
	case packet.ARP:
		b = binary.BigEndian.AppendUint16(b, packet.EtherARP)
	default:
		b = binary.BigEndian.AppendUint16(b, s.EtherType)
	}
	n := s.payload
	if s.Len != nil {
		n = *s.Len
	}
	l.b = append(b, random(r, min(n, maxLength))...)
	return l
}

// setFields sets header fields by their words, where the packet has them.
func (s *shape) setFields(l *laidOut) {
	where := packet.Layout{IP: l.ip, L4: l.l4, Six: s.Family == packet.IPv6, Proto: *s.Proto,
		Payload: len(l.b)}
	for _, f := range s.Fields {
		if bit, bits, ok := where.Locate(l.b, f.Word); ok {
			packet.Put(l.b, bit, bits, f.Value)
		}
	}
}

func (s *shape) ipv4(r *rand.Rand, l *laidOut) {
	l.ip = len(l.b)
	h := make([]byte, 20+4*s.options)
	for i := 20; i < len(h); i++ {
		h[i] = uint8(r.Uint32())
	}
	body := s.body(r, len(h))
	h[0] = 0x40 | byte(len(h)/4)
	h[1] = s.DSCP<<2 | uint8(r.IntN(4))
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(body)))
	field := uint16(r.IntN(4)) << 14 & 0xc000 // reserved and don't-fragment mean nothing here
	switch {
	case s.Frag == nil:
	case *s.Frag == 0:
		field |= 0x2000
	default:
		field |= *s.Frag | uint16(r.IntN(2))<<13
	}
	binary.BigEndian.PutUint16(h[6:], field)
	h[8], h[9] = *s.TTL, *s.Proto
	from, to := s.addresses()
	copy(h[12:], from.AsSlice())
	copy(h[16:], to.AsSlice())
	l.l4 = l.ip + len(h)
	l.b = append(append(l.b, h...), body...)
}

func (s *shape) ipv6(r *rand.Rand, l *laidOut) {
	l.ip = len(l.b)
	kinds := append([]uint8(nil), s.ext...)
	at := -1 // of the Fragment header that Frag asks for
	if s.Frag != nil || s.atomic {
		at = r.IntN(len(kinds) + 1)
		kinds = append(kinds[:at], append([]uint8{packet.ProtoFragment}, kinds[at:]...)...)
	}
	chain := s.chain(r, kinds, at, l)
	h := make([]byte, 40)
	body := s.body(r, len(h)+len(chain))
	binary.BigEndian.PutUint32(h, 6<<28|uint32(s.DSCP)<<22|r.Uint32()&0x3fffff)
	binary.BigEndian.PutUint16(h[4:], uint16(len(chain)+len(body)))
	h[6], h[7] = *s.Proto, *s.TTL
	if len(kinds) > 0 {
		h[6] = kinds[0]
	}
	from, to := s.addresses()
	copy(h[8:], from.AsSlice())
	copy(h[24:], to.AsSlice())
	l.l4 = l.ip + len(h) + len(chain)
	l.b = append(append(append(l.b, h...), chain...), body...)
}

// chain lays out extension headers; at is the one that is not an atomic fragment.
func (s *shape) chain(r *rand.Rand, kinds []uint8, at int, l *laidOut) []byte {
	var b []byte
	for i, k := range kinds {
		units := []int{0, 0, 0, 1, 2, 5}[r.IntN(6)]
		size := 8 + 8*units
		switch k {
		case packet.ProtoAH:
			size = 8 + 4*units
		case packet.ProtoFragment:
			size = 8
		}
		h := random(r, size)
		h[0], h[1] = *s.Proto, uint8(units)
		if i+1 < len(kinds) {
			h[0] = kinds[i+1]
		}
		if k == packet.ProtoFragment {
			h[1] = uint8(r.Uint32()) // reserved
			field := uint16(r.IntN(4)) << 1
			switch {
			case i != at || s.Frag == nil:
			case *s.Frag == 0:
				field |= 1
			default:
				field |= *s.Frag<<3 | uint16(r.IntN(2))
			}
			binary.BigEndian.PutUint16(h[2:], field)
		}
		l.ext = append(l.ext, l.ip+40+len(b))
		b = append(b, h...)
	}
	return b
}

// body returns the transport header and payload behind headers bytes.
func (s *shape) body(r *rand.Rand, headers int) []byte {
	var h []byte
	switch *s.Proto {
	case packet.ProtoTCP:
		words := 5 + []int{0, 0, 1, 10}[r.IntN(4)]
		h = s.withPorts(random(r, words*4))
		h[12] = byte(words<<4) | h[12]&15
		h[13] = *s.Flags
	case packet.ProtoUDP, packet.ProtoUDPLite:
		h = s.withPorts(random(r, 8))
	case packet.ProtoSCTP, packet.ProtoDCCP:
		h = s.withPorts(random(r, 12))
	case packet.ProtoICMP, packet.ProtoICMP6:
		h = random(r, 8)
		h[0], h[1] = *s.Type, s.Code
	}
	n := len(h) + s.payload
	if s.Len != nil {
		n = *s.Len - headers
	}
	n = max(min(n, maxLength-headers), len(h))
	b := append(h, random(r, n-len(h))...)
	if *s.Proto == packet.ProtoUDP {
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
		copy(b[8:], s.Payload)
	}
	return b
}

func (s *shape) withPorts(h []byte) []byte {
	binary.BigEndian.PutUint16(h, *s.FromPort)
	binary.BigEndian.PutUint16(h[2:], *s.ToPort)
	return h
}

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		if i%8 == 0 && n-i >= 8 {
			binary.LittleEndian.PutUint64(b[i:], r.Uint64())
		} else if i >= n&^7 {
			b[i] = uint8(r.Uint32())
		}
	}
	return b
}
