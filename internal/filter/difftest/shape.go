package difftest

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"levee/internal/packet"
)

// shape is a packet before it is bytes. It can be any: what does not fit together is laid out as
// it is asked for.
type shape struct {
	src, dst  endpoint
	tags      []tag
	etherType uint16
	proto     uint8
	ttl, dscp uint8
	options   int     // IPv4: words of options, 0 to 10
	ext       []uint8 // IPv6: kinds of extension headers
	frag      fragment
	offset    uint16 // of a later fragment, units of 8 bytes
	flags     uint8
	icmp      uint16 // type<<8 | code
	length    int    // of the IP packet; 0 as it comes
	payload   int    // bytes, unless length says otherwise
}

type endpoint struct {
	mac  uint64
	v4   [4]byte
	v6   [16]byte
	port uint16
}

func (e *endpoint) setAddr(a netip.Addr) {
	if a.Is4() {
		e.v4 = a.As4()
	} else {
		e.v6 = a.As16()
	}
}

type tag struct{ tpid, tci uint16 }

type fragment uint8

const (
	notFragment fragment = iota
	firstFragment
	laterFragment
	atomicFragment // IPv6; in IPv4 none
)

// maxLength bounds the IP packet: BPF_PROG_RUN gives a program that does not know fragmented
// buffers the first 3,520 bytes of a frame (a page without headroom and trailer), and a mutation
// adds up to 60.
const maxLength = 3400

// newShape is a random packet of the kinds that networks carry.
func newShape(r *rand.Rand) *shape {
	s := &shape{
		src:       endpoint{mac: 0x020000000001, port: uint16(r.Uint32())},
		dst:       endpoint{mac: 0x020000000002, port: uint16(r.Uint32())},
		etherType: packet.EtherIPv4,
		ttl:       []uint8{64, 64, 128, 255, 1, uint8(r.Uint32())}[r.IntN(6)],
		flags:     []uint8{packet.SYN, packet.ACK, packet.SYN | packet.ACK, uint8(r.Uint32())}[r.IntN(4)],
		icmp:      []uint16{8 << 8, 3<<8 | 4, 3 << 8, 128 << 8, 2 << 8, 135 << 8, uint16(r.Uint32())}[r.IntN(7)],
		payload:   []int{0, 0, 1, 8, 100, r.IntN(1500)}[r.IntN(6)],
		proto:     []uint8{6, 6, 6, 17, 17, 17, 136, 132, 33, 1, 58, 2, 47, 50, 51, 89, 4, 59, uint8(r.Uint32())}[r.IntN(19)],
	}
	binary.BigEndian.PutUint32(s.src.v4[:], r.Uint32())
	binary.BigEndian.PutUint32(s.dst.v4[:], r.Uint32())
	for _, v6 := range []*[16]byte{&s.src.v6, &s.dst.v6} {
		binary.BigEndian.PutUint64(v6[:8], 0x20010db8<<32|uint64(r.Uint32()))
		binary.BigEndian.PutUint64(v6[8:], r.Uint64())
	}
	if r.IntN(5) < 2 {
		s.etherType = packet.EtherIPv6
	}
	if r.IntN(4) == 0 {
		s.dscp = uint8(r.IntN(64))
	}
	s.decorate(r)
	return s
}

// decorate adds tags, options, extension headers and fragmentation to some packets.
func (s *shape) decorate(r *rand.Rand) {
	if n := []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3}[r.IntN(20)]; n > 0 {
		for range n {
			tpid := []uint16{packet.EtherCTag, packet.EtherSTag}[r.IntN(2)]
			s.tags = append(s.tags, tag{tpid, uint16(r.Uint32())})
		}
	}
	if r.IntN(6) == 0 {
		s.options = 1 + r.IntN(10)
	}
	if r.IntN(4) == 0 {
		for range r.IntN(11) {
			s.ext = append(s.ext, []uint8{0, 43, 44, 51, 60, 135}[r.IntN(6)])
		}
	}
	if r.IntN(6) == 0 {
		s.frag = firstFragment + fragment(r.IntN(3))
		s.offset = []uint16{1, 2, 185, 8000, 8184, 8188, 8190, 8191, 1 + uint16(r.IntN(8191))}[r.IntN(9)]
	}
	if r.IntN(20) == 0 {
		s.etherType = []uint16{packet.EtherARP, 0x88cc, 0x0026, 0x05ff, 0x0600, 0x8863, uint16(r.Uint32())}[r.IntN(7)]
	}
	if r.IntN(10) == 0 {
		s.essential(r)
	}
}

// essential makes what the built-in rules look for, or nearly.
func (s *shape) essential(r *rand.Rand) {
	switch r.IntN(5) {
	case 0:
		s.etherType = packet.EtherARP
	case 1:
		s.etherType, s.proto = packet.EtherIPv6, packet.ProtoICMP6
		s.icmp = uint16(132+r.IntN(7))<<8 | uint16(r.IntN(8)/7)
		s.ttl = 255 - uint8(r.IntN(5)/4)
	case 2:
		s.etherType, s.proto = packet.EtherIPv4, packet.ProtoICMP
		s.icmp = 3<<8 | uint16(3+r.IntN(3))
	case 3:
		s.etherType, s.proto = packet.EtherIPv6, packet.ProtoICMP6
		s.icmp = uint16(1+r.IntN(3))<<8 | uint16(r.IntN(2))
	case 4:
		s.proto = packet.ProtoUDP
		s.src.port, s.dst.port = 67, 68
		if r.IntN(2) == 0 {
			s.src.port, s.dst.port = 547, 546
		}
		if r.IntN(4) == 0 {
			s.src.port, s.dst.port = s.dst.port, s.src.port
		}
	}
}

// setEtherType changes the family of the packet.
func (s *shape) setEtherType(v uint16) { s.etherType = v }

// laidOut is a frame with the places that mutations aim at; 0: there is none.
type laidOut struct {
	b      []byte
	ip, l4 int   // offsets
	ext    []int // offsets of the extension headers
}

func (s *shape) layOut(r *rand.Rand) laidOut {
	b := make([]byte, 0, 128)
	b = append(appendMAC(b, s.dst.mac), appendMAC(nil, s.src.mac)...)
	for _, t := range s.tags {
		b = binary.BigEndian.AppendUint16(b, t.tpid)
		b = binary.BigEndian.AppendUint16(b, t.tci)
	}
	b = binary.BigEndian.AppendUint16(b, s.etherType)
	l := laidOut{b: b}
	switch s.etherType {
	case packet.EtherIPv4:
		s.ipv4(r, &l)
	case packet.EtherIPv6:
		s.ipv6(r, &l)
	default:
		l.b = append(l.b, random(r, min(max(s.length, s.payload), maxLength))...)
	}
	return l
}

func appendMAC(b []byte, v uint64) []byte {
	return append(b, byte(v>>40), byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

func (s *shape) ipv4(r *rand.Rand, l *laidOut) {
	l.ip = len(l.b)
	h := make([]byte, 20+4*s.options)
	for i := 20; i < len(h); i++ {
		h[i] = uint8(r.Uint32())
	}
	body := s.body(r, len(h))
	h[0] = 0x40 | byte(len(h)/4)
	h[1] = s.dscp<<2 | uint8(r.IntN(4))
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(body)))
	field := uint16(r.IntN(4)) << 14 & 0xc000 // reserved and don't-fragment mean nothing here
	switch s.frag {
	case firstFragment:
		field |= 0x2000
	case laterFragment:
		field |= s.offset&0x1fff | uint16(r.IntN(2))<<13
	}
	binary.BigEndian.PutUint16(h[6:], field)
	h[8], h[9] = s.ttl, s.proto
	copy(h[12:], s.src.v4[:])
	copy(h[16:], s.dst.v4[:])
	l.l4 = l.ip + len(h)
	l.b = append(append(l.b, h...), body...)
}

func (s *shape) ipv6(r *rand.Rand, l *laidOut) {
	l.ip = len(l.b)
	kinds := append([]uint8(nil), s.ext...)
	at := -1 // of the Fragment header that frag asks for
	if s.frag != notFragment {
		at = r.IntN(len(kinds) + 1)
		kinds = append(kinds[:at], append([]uint8{packet.ProtoFragment}, kinds[at:]...)...)
	}
	chain := s.chain(r, kinds, at, l)
	h := make([]byte, 40)
	body := s.body(r, len(h)+len(chain))
	binary.BigEndian.PutUint32(h, 6<<28|uint32(s.dscp)<<22|r.Uint32()&0x3fffff)
	binary.BigEndian.PutUint16(h[4:], uint16(len(chain)+len(body)))
	h[6], h[7] = s.proto, s.ttl
	if len(kinds) > 0 {
		h[6] = kinds[0]
	}
	copy(h[8:], s.src.v6[:])
	copy(h[24:], s.dst.v6[:])
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
		h[0], h[1] = s.proto, uint8(units)
		if i+1 < len(kinds) {
			h[0] = kinds[i+1]
		}
		if k == packet.ProtoFragment {
			h[1] = uint8(r.Uint32()) // reserved
			field := uint16(r.IntN(4)) << 1
			if i == at && s.frag == firstFragment {
				field |= 1
			}
			if i == at && s.frag == laterFragment {
				field |= s.offset<<3 | uint16(r.IntN(2))
			}
			binary.BigEndian.PutUint16(h[2:], field)
		}
		l.ext = append(l.ext, l.ip+40+len(b))
		b = append(b, h...)
	}
	return b
}

// body is the transport header and payload behind headers bytes.
func (s *shape) body(r *rand.Rand, headers int) []byte {
	var h []byte
	switch s.proto {
	case packet.ProtoTCP:
		words := 5 + []int{0, 0, 1, 10}[r.IntN(4)]
		h = s.withPorts(random(r, words*4))
		h[12] = byte(words<<4) | h[12]&15
		h[13] = s.flags
	case packet.ProtoUDP, packet.ProtoUDPLite:
		h = s.withPorts(random(r, 8))
	case packet.ProtoSCTP, packet.ProtoDCCP:
		h = s.withPorts(random(r, 12))
	case packet.ProtoICMP, packet.ProtoICMP6:
		h = random(r, 8)
		binary.BigEndian.PutUint16(h, s.icmp)
	}
	n := len(h) + s.payload
	if s.length > 0 {
		n = s.length - headers
	}
	n = max(min(n, maxLength-headers), len(h))
	b := append(h, random(r, n-len(h))...)
	if s.proto == packet.ProtoUDP {
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	}
	return b
}

func (s *shape) withPorts(h []byte) []byte {
	binary.BigEndian.PutUint16(h, s.src.port)
	binary.BigEndian.PutUint16(h[2:], s.dst.port)
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
