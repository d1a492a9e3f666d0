package difftest

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"levee/internal/packet"
)

// tunnel makes s a tunnel, of any kind unless it is one, and gives its header with what it carries.
func (s *shape) tunnel(r *rand.Rand) []byte {
	protocols := []uint8{packet.ProtoIPIP, packet.ProtoIPv6, packet.ProtoGRE, packet.ProtoUDP}
	ports := []uint16{packet.PortVXLAN, packet.PortVXLANOld, packet.PortGeneve, packet.PortGTPU}
	if !slices.Contains(protocols, *s.Proto) || r.IntN(3) > 0 {
		s.Proto = new(protocols[r.IntN(4)])
		if r.IntN(3) > 0 {
			s.Proto = new(uint8(packet.ProtoUDP))
		}
	}
	if *s.Proto == packet.ProtoUDP && (s.ToPort == nil || !slices.Contains(ports, *s.ToPort)) {
		s.ToPort = new(ports[r.IntN(4)])
	}
	if *s.Proto == packet.ProtoIPIP && r.IntN(8) > 0 {
		s.in.Family = packet.IPv4
	}
	if *s.Proto == packet.ProtoIPv6 && r.IntN(8) > 0 {
		s.in.Family = packet.IPv6
	}
	l := s.in.layOut(r)
	if r.IntN(12) == 0 {
		l.carry(r)
	}
	if r.IntN(6) == 0 {
		l.mutate(r)
	}
	whole, bare, etherType := l.b, l.b, uint16(0)
	if len(whole) >= max(l.ip, 14) {
		at := max(l.ip, 14)
		bare, etherType = whole[at:], binary.BigEndian.Uint16(whole[at-2:])
	}
	if r.IntN(3) == 0 { // Ethernet, where that may be
		bare, etherType = whole, 0x6558
	}
	var out []byte
	switch {
	case *s.Proto == packet.ProtoGRE:
		out = greHeader(r, etherType)
	case *s.Proto != packet.ProtoUDP:
	case *s.ToPort == packet.PortGeneve:
		options := []int{0, 0, 1, 5, 63}[r.IntN(5)]
		out = append([]byte{byte(options), byte(r.Uint32()) & 0xc0, byte(etherType >> 8),
			byte(etherType)}, random(r, 4+4*options)...)
		if r.IntN(20) == 0 {
			out[0] |= 0x40
		}
	case *s.ToPort == packet.PortGTPU:
		out = gtpuHeader(r)
	default:
		bare = whole
		out = append([]byte{0x08 | byte(r.IntN(8)), 0, 0, 0}, random(r, 4)...)
		if r.IntN(20) == 0 {
			out[0] = 0
		}
	}
	out = append(out, bare...)
	if r.IntN(12) == 0 {
		out = out[:r.IntN(len(out)+1)]
	}
	out = out[:min(len(out), 1700)]
	s.payload, s.Len = len(out), nil
	return out
}

// greHeader has any of the three fields that may be there, and seldom what nobody unpacks.
func greHeader(r *rand.Rand, etherType uint16) []byte {
	flags := []uint16{0, 0x8000, 0x2000, 0x1000, 0xb000, 0x4000, 1}[r.IntN(7)]
	n := 0
	for _, bit := range []uint16{0x8000, 0x2000, 0x1000} {
		if flags&bit != 0 {
			n += 4
		}
	}
	switch r.IntN(16) {
	case 0:
		etherType = 0x883e
		n += 4 * r.IntN(2)
	case 1:
		etherType = uint16(r.Uint32())
	case 2:
		etherType = 0x8847
	}
	h := binary.BigEndian.AppendUint16(nil, flags)
	return append(binary.BigEndian.AppendUint16(h, etherType), random(r, n)...)
}

// gtpuHeader has any of the fields that may be there, and up to ten extension headers.
func gtpuHeader(r *rand.Rand) []byte {
	h := append([]byte{0x30, 255}, random(r, 6)...)
	if r.IntN(20) == 0 {
		h[0], h[1] = byte(r.Uint32()), byte(r.Uint32())
	}
	if r.IntN(2) == 0 {
		return h
	}
	h[0] |= []byte{1, 2, 3, 4, 6, 7}[r.IntN(6)]
	h = append(h, random(r, 3)...)
	for range []int{0, 1, 2, 8, 9, 10}[r.IntN(6)] {
		size := 1 + r.IntN(3)
		if r.IntN(30) == 0 {
			size = 0
		}
		h = append(h, 0x85, byte(size))
		h = append(h, random(r, max(0, 4*size-2))...)
	}
	return append(h, 0)
}
