package oracle

import (
	"net/netip"

	"levee/internal/packet"
	"levee/internal/policy"
)

// holds is three-valued logic cut to two: a term whose field the packet does not have does not
// hold, negated or not.
func (e *Evaluator) holds(t *policy.Term, pkt *packet.Packet) bool {
	present, inside := e.look(t, pkt)
	return present && inside != t.Not
}

// look says whether the packet has the field that t looks at, and if so, whether its value is
// among those of t.
func (e *Evaluator) look(t *policy.Term, pkt *packet.Packet) (present, inside bool) {
	switch t.Field {
	case policy.SrcAddr, policy.DstAddr:
		if !pkt.IsIP() {
			return false, false
		}
		return true, e.containsAddr(t, address(t.Field, pkt))
	case policy.SrcService, policy.DstService:
		if !pkt.HasPorts() {
			return false, false
		}
		port := pkt.DstPort
		if t.Field == policy.SrcService {
			port = pkt.SrcPort
		}
		return true, containsService(t, pkt.Proto, port)
	case policy.TCPFlags:
		if pkt.Transport != packet.TCPTransport {
			return false, false
		}
		return true, pkt.Flags&t.Mask == t.Value
	}
	v, present := number(t.Field, pkt)
	if !present {
		return false, false
	}
	ranges := t.Ranges
	if t.Set != nil {
		ranges = t.Set.Ports
	}
	return true, containsNumber(ranges, v)
}

func address(f policy.Field, pkt *packet.Packet) netip.Addr {
	if f == policy.SrcAddr {
		return pkt.Src
	}
	return pkt.Dst
}

// number is the value of a numeric field, and whether the packet has it.
func number(f policy.Field, pkt *packet.Packet) (v uint64, present bool) {
	switch f {
	case policy.SrcPort:
		return uint64(pkt.SrcPort), pkt.HasPorts()
	case policy.DstPort:
		return uint64(pkt.DstPort), pkt.HasPorts()
	case policy.Proto:
		return uint64(pkt.Proto), pkt.IsIP()
	case policy.EtherType:
		return uint64(pkt.EtherType), true
	case policy.ICMPType:
		return uint64(pkt.Type)<<8 | uint64(pkt.Code), pkt.Transport == packet.ICMPTransport
	case policy.ICMP6Type:
		return uint64(pkt.Type)<<8 | uint64(pkt.Code), pkt.Transport == packet.ICMP6Transport
	case policy.Len:
		return uint64(pkt.Len), true
	case policy.TTL:
		return uint64(pkt.TTL), pkt.IsIP()
	case policy.DSCP:
		return uint64(pkt.DSCP), pkt.IsIP()
	case policy.VLAN:
		return uint64(pkt.VLAN), pkt.Tags > 0
	case policy.InnerVLAN:
		return uint64(pkt.InnerVLAN), pkt.Tags == 2
	case policy.Tags:
		return uint64(pkt.Tags), true
	case policy.SrcMAC:
		return pkt.SrcMAC, true
	case policy.DstMAC:
		return pkt.DstMAC, true
	case policy.Fragment:
		if pkt.Fragment {
			return 1, pkt.IsIP()
		}
		return 0, pkt.IsIP()
	}
	return 0, false
}

func (e *Evaluator) containsAddr(t *policy.Term, a netip.Addr) bool {
	if t.Set != nil {
		return e.sets[t.Set] != nil && e.sets[t.Set].contains(a, e.now())
	}
	for _, p := range t.Prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func containsService(t *policy.Term, proto uint8, port uint16) bool {
	services := t.Services
	if t.Set != nil {
		services = t.Set.Services
	}
	for _, s := range services {
		if s.Proto == proto && s.Lo <= port && port <= s.Hi {
			return true
		}
	}
	return false
}

func containsNumber(ranges []policy.Range, v uint64) bool {
	for _, r := range ranges {
		if r.Lo <= v && v <= r.Hi {
			return true
		}
	}
	return false
}
