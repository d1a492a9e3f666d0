package difftest

import (
	"math/rand/v2"
	"net/netip"

	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// aim changes a shape so that a term, as far as one value can, holds for it, or only just does
// not: the values are the ends of what the term names, and their neighbours outside.
func (s *shape) aim(r *rand.Rand, t *policy.Term) {
	switch t.Field {
	case policy.SrcAddr, policy.DstAddr:
		s.aimAddress(r, t)
	case policy.SrcService, policy.DstService:
		s.aimService(r, t)
	case policy.SrcEndpoint, policy.DstEndpoint:
		s.aimEndpoint(r, t)
	case policy.TCPFlags:
		s.proto = packet.ProtoTCP
		s.flags = t.Value | uint8(r.Uint32())&^t.Mask
		if r.IntN(4) == 0 {
			s.flags ^= 1 << r.IntN(8)
		}
	default:
		ranges := t.Ranges
		if t.Set != nil {
			ranges = t.Set.Ports
		}
		if len(ranges) > 0 {
			s.setNumber(r, t.Field, edge(r, ranges[r.IntN(len(ranges))]))
		}
	}
}

// edge is an end of a range, its neighbour outside, or something inside.
func edge(r *rand.Rand, in policy.Range) uint64 {
	switch r.IntN(6) {
	case 0:
		return in.Lo - 1 // wraps at 0: the field cuts it off
	case 1:
		return in.Hi + 1
	case 2, 3:
		return in.Lo
	case 4:
		return in.Hi
	}
	if n := in.Hi - in.Lo; n < 1<<62 {
		return in.Lo + r.Uint64N(n+1)
	}
	return in.Hi
}

func (s *shape) setNumber(r *rand.Rand, f policy.Field, v uint64) {
	switch f {
	case policy.SrcPort, policy.DstPort:
		if !packet.HasPorts(s.proto) {
			s.proto = portProtos[r.IntN(len(portProtos))]
		}
		if f == policy.SrcPort {
			s.src.port = uint16(v)
		} else {
			s.dst.port = uint16(v)
		}
	case policy.Proto:
		s.proto = uint8(v)
	case policy.EtherType:
		s.setEtherType(uint16(v))
	case policy.ICMPType:
		s.setEtherType(packet.EtherIPv4)
		s.proto, s.icmp = packet.ProtoICMP, uint16(v)
	case policy.ICMP6Type:
		s.setEtherType(packet.EtherIPv6)
		s.proto, s.icmp = packet.ProtoICMP6, uint16(v)
	case policy.Len:
		s.length = int(uint16(v))
	case policy.TTL:
		s.ttl = uint8(v)
	case policy.DSCP:
		s.dscp = uint8(v)
	case policy.VLAN:
		if len(s.tags) == 0 {
			s.tags = append(s.tags, tag{tpid: packet.EtherCTag})
		}
		s.tags[0].tci = s.tags[0].tci&0xf000 | uint16(v)&0xfff
	case policy.InnerVLAN:
		for len(s.tags) < 2 {
			s.tags = append(s.tags, tag{tpid: packet.EtherCTag})
		}
		s.tags[1].tci = s.tags[1].tci&0xf000 | uint16(v)&0xfff
	case policy.Tags:
		for len(s.tags) < int(v&3) {
			s.tags = append(s.tags, tag{tpid: packet.EtherSTag, tci: uint16(r.Uint32())})
		}
		s.tags = s.tags[:min(len(s.tags), int(v&3))]
	case policy.SrcMAC:
		s.src.mac = v
	case policy.DstMAC:
		s.dst.mac = v
	case policy.Fragment:
		s.frag = notFragment
		if v&1 == 1 {
			s.frag = firstFragment + fragment(r.IntN(2))
		}
	}
}

func (s *shape) aimAddress(r *rand.Rand, t *policy.Term) {
	prefixes := t.Prefixes
	if t.Set != nil {
		prefixes = t.Set.Prefixes
	}
	if len(prefixes) == 0 {
		return
	}
	p := prefixes[r.IntN(len(prefixes))]
	s.aimPrefix(r, t.Field, p)
}

// aimPrefix makes an address the first or last of p, one beside them, or one inside.
func (s *shape) aimPrefix(r *rand.Rand, f policy.Field, p netip.Prefix) {
	a := nearPrefix(r, p)
	if a.Is4() != (s.etherType == packet.EtherIPv4) {
		s.setEtherType(map[bool]uint16{true: packet.EtherIPv4, false: packet.EtherIPv6}[a.Is4()])
	}
	if f == policy.SrcAddr {
		s.src.setAddr(a)
	} else {
		s.dst.setAddr(a)
	}
}

// ends are the first and the last address of a prefix.
func ends(p netip.Prefix) (first, last netip.Addr) {
	first = p.Masked().Addr()
	b := first.AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ = netip.AddrFromSlice(b)
	return first, last
}

func nearPrefix(r *rand.Rand, p netip.Prefix) netip.Addr {
	first, last := ends(p)
	a := first
	switch r.IntN(6) {
	case 0:
		a = first.Prev()
	case 1:
		a = last.Next()
	case 2:
		a = last
	case 3, 4:
		c := first.AsSlice()
		for i := p.Bits(); i < len(c)*8; i++ {
			c[i/8] |= uint8(r.IntN(2)) * (0x80 >> (i % 8))
		}
		a, _ = netip.AddrFromSlice(c)
	}
	if !a.IsValid() { // beside the first or last address there is
		return first
	}
	return a
}

func (s *shape) aimService(r *rand.Rand, t *policy.Term) {
	services := t.Services()
	if len(services) == 0 {
		return
	}
	v := services[r.IntN(len(services))]
	s.proto = v.Proto
	if r.IntN(8) == 0 {
		s.proto = portProtos[r.IntN(len(portProtos))]
	}
	port := uint16(edge(r, policy.Range{Lo: uint64(v.Lo), Hi: uint64(v.Hi)}))
	if t.Field == policy.SrcService {
		s.src.port = port
	} else {
		s.dst.port = port
	}
}

// aimEndpoint takes one entry, and often misses it by a little in one of its three parts.
func (s *shape) aimEndpoint(r *rand.Rand, t *policy.Term) {
	all := t.Endpoints()
	if len(all) > 0 {
		s.aimElement(r, t.Field, all[r.IntN(len(all))])
	}
}

func (s *shape) aimElement(r *rand.Rand, f policy.Field, e policy.Element) {
	addr, end := policy.DstAddr, &s.dst
	if f == policy.SrcEndpoint {
		addr, end = policy.SrcAddr, &s.src
	}
	s.aimPrefix(r, addr, e.Prefix)
	s.proto = e.Service.Proto
	end.port = uint16(edge(r, policy.Range{Lo: uint64(e.Service.Lo), Hi: uint64(e.Service.Hi)}))
	switch r.IntN(16) {
	case 0:
		s.proto = portProtos[r.IntN(len(portProtos))]
	case 1:
		s.proto = []uint8{1, 2, 47, 50, 58, 89, uint8(r.Uint32())}[r.IntN(7)]
	case 2:
		s.frag = firstFragment + fragment(r.IntN(2))
		s.offset = 1 + uint16(r.IntN(200))
	}
}

var portProtos = []uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoUDPLite, packet.ProtoSCTP, packet.ProtoDCCP}
