package main

import (
	"net/netip"
	"slices"

	"levee/internal/filter/oracle"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// reacher makes packets that reach each rule of a policy: the oracle says whether they do.
type reacher struct {
	p      *policy.Policy
	oracle *oracle.Evaluator
	frames [][]byte // by slot; nil: none was found
}

// variants is how many packets are made of one rule's terms before giving up: another rule may stand in the way of
// some of them.
const variants = 64

// reach finds a frame for each slot of the policy, as far as it can: of rules for number 0, every, 2 every, ... only. The
// frames of the policy's own tests serve for what is left after frames were made from the rules. next is called before each packet is
// judged, which takes milliseconds where there are very many rules, with the number of the rule; its error ends the search.
func reach(p *policy.Policy, ev *oracle.Evaluator, every int, next func(rule, of int) error) ([][]byte, error) {
	r := &reacher{p: p, oracle: ev, frames: make([][]byte, p.DefaultSlot()+1)}
	rules := slices.Concat(p.Protect, p.Rules)
	for i := 0; i < len(rules); i += every {
		slot := p.ProtectSlot(i)
		for v := 0; v < variants && r.frames[slot] == nil; v++ {
			if err := next(i, len(rules)); err != nil {
				return nil, err
			}
			r.try(slot, aim(rules[i], v))
		}
	}
	for _, s := range builtInSpecs() {
		r.try(-1, s)
	}
	r.judge(-1, malformedFrame)
	for _, t := range p.Tests {
		for _, step := range t.Steps {
			if err := next(len(rules), len(rules)); err != nil {
				return nil, err
			}
			r.judge(-1, step.Frame)
		}
	}
	return r.frames, nil
}

// malformedFrame is an Ethernet header that announces IPv4, and nothing behind it.
var malformedFrame = []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0}

// try builds a packet and keeps it if it reaches slot; -1 for whatever it reaches.
func (r *reacher) try(slot int, s packet.Spec) {
	if frame, err := packet.Build(s); err == nil {
		r.judge(slot, frame)
	}
}

// minRun is the shortest frame that the kernel runs a program on.
const minRun = 14

func (r *reacher) judge(slot int, frame []byte) {
	if len(frame) < minRun {
		return
	}
	res := r.oracle.Eval(frame)
	for _, reached := range append(res.Counted, res.Slot) {
		if (slot == -1 || slot == reached) && r.frames[reached] == nil {
			r.frames[reached] = frame
		}
	}
}

// builtInSpecs are packets for the essential rules and, with luck, the default.
func builtInSpecs() []packet.Spec {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	return []packet.Spec{
		{Family: packet.ARP},
		{From: v6, Type: ptr[uint8](135), TTL: ptr[uint8](255)},
		{From: v4, Type: ptr[uint8](3), Code: 4},
		{From: v4, FromPort: ptr[uint16](67), ToPort: ptr[uint16](68)},
		{From: v4, ToPort: ptr[uint16](9)},
		{From: v4, Proto: ptr[uint8](packet.ProtoTCP), ToPort: ptr[uint16](9)},
		{From: v6, ToPort: ptr[uint16](9)},
		{From: v4},
		{From: v6},
		{Family: packet.OtherFamily, EtherType: 0x88cc, Len: ptr(46)},
	}
}

func ptr[T any](v T) *T { return &v }

// aim makes a packet of which the terms of a rule hold, if it is put together in the straightforward way; variant
// chooses the family and among the values that hold.
func aim(rule *policy.Rule, variant int) packet.Spec {
	s := packet.Spec{Family: packet.IPv4 + packet.Family(variant%2)}
	for i := range rule.Match {
		if t := &rule.Match[i]; !t.Not {
			aimTerm(&s, t, variant/2)
		}
	}
	return s
}

func aimTerm(s *packet.Spec, t *policy.Term, variant int) {
	switch t.Field {
	case policy.SrcAddr:
		s.From = pickAddr(t, s.Family, variant)
	case policy.DstAddr:
		s.To = pickAddr(t, s.Family, variant)
	case policy.SrcService, policy.DstService:
		aimService(s, t, variant)
	case policy.SrcEndpoint, policy.DstEndpoint:
		aimEndpoint(s, t, variant)
	case policy.TCPFlags:
		s.Flags = ptr(t.Value)
	default:
		ranges := t.Ranges
		if t.Set != nil {
			ranges = t.Set.Ports
		}
		if len(ranges) > 0 {
			aimNumber(s, t.Field, pickNumber(ranges, variant))
		}
	}
}

// pickNumber walks the ends of the ranges.
func pickNumber(ranges []policy.Range, variant int) uint64 {
	r := ranges[variant%len(ranges)]
	if variant/len(ranges)%2 == 1 {
		return r.Hi
	}
	return r.Lo
}

func aimNumber(s *packet.Spec, f policy.Field, v uint64) {
	switch f {
	case policy.SrcPort:
		s.FromPort = ptr(uint16(v))
	case policy.DstPort:
		s.ToPort = ptr(uint16(v))
	case policy.Proto:
		s.Proto = ptr(uint8(v))
	case policy.EtherType:
		aimEtherType(s, uint16(v))
	case policy.ICMPType:
		s.Family, s.Proto, s.Type, s.Code = packet.IPv4, ptr[uint8](packet.ProtoICMP), ptr(uint8(v>>8)), uint8(v)
	case policy.ICMP6Type:
		s.Family, s.Proto, s.Type, s.Code = packet.IPv6, ptr[uint8](packet.ProtoICMP6), ptr(uint8(v>>8)), uint8(v)
	case policy.Len:
		s.Len = ptr(int(max(v, 60))) // room for any header that is built
	case policy.TTL:
		s.TTL = ptr(uint8(v))
	case policy.DSCP:
		s.DSCP = uint8(v)
	case policy.SrcMAC:
		s.EtherFrom = mac(v)
	case policy.DstMAC:
		s.EtherTo = mac(v)
	case policy.Fragment:
		if v == 1 {
			s.Frag = ptr[uint16](185) // the second fragment of a packet cut at 1,500 bytes
			if s.FromPort != nil || s.ToPort != nil || s.Flags != nil || s.Type != nil {
				s.Frag = ptr[uint16](0)
			}
		}
	default:
		aimTag(s, f, uint16(v))
	}
}

// aimTag sets the fields of VLAN tags.
func aimTag(s *packet.Spec, f policy.Field, v uint16) {
	switch {
	case f == policy.VLAN:
		s.VLAN = ptr(v)
	case f == policy.InnerVLAN:
		s.InnerVLAN = ptr(v)
		if s.VLAN == nil {
			s.VLAN = ptr[uint16](1)
		}
	case f == policy.Tags && v > 0:
		s.VLAN = ptr[uint16](1)
		if v > 1 {
			s.InnerVLAN = ptr[uint16](1)
		}
	}
}

func aimEtherType(s *packet.Spec, v uint16) {
	switch v {
	case packet.EtherIPv4:
		s.Family = packet.IPv4
	case packet.EtherIPv6:
		s.Family = packet.IPv6
	case packet.EtherARP:
		s.Family = packet.ARP
	default:
		s.Family, s.EtherType = packet.OtherFamily, v
	}
}

func aimService(s *packet.Spec, t *policy.Term, variant int) {
	services := t.Services()
	if t.Set != nil && t.Set.Kind == policy.Dynamic {
		services = []policy.Service{reachService}
	}
	if len(services) == 0 {
		return
	}
	aimPort(s, services[variant%len(services)], t.Field == policy.SrcService)
}

func aimPort(s *packet.Spec, v policy.Service, from bool) {
	s.Proto = ptr(v.Proto)
	switch {
	case !policy.HasPorts(v.Proto):
	case from:
		s.FromPort = ptr(v.Lo)
	default:
		s.ToPort = ptr(v.Lo)
	}
}

func aimEndpoint(s *packet.Spec, t *policy.Term, variant int) {
	all := t.Endpoints()
	if t.Set != nil && t.Set.Kind == policy.Dynamic {
		all = []policy.Element{reachElement(t.Set, reachEntry4), reachElement(t.Set, reachEntry6)}
	}
	if len(all) == 0 {
		return
	}
	e := all[variant%len(all)]
	s.Family = packet.IPv6
	if e.Prefix.Addr().Is4() {
		s.Family = packet.IPv4
	}
	from := t.Field == policy.SrcEndpoint
	if from {
		s.From = addressIn(e.Prefix)
	} else {
		s.To = addressIn(e.Prefix)
	}
	aimPort(s, e.Service, from)
}

// addressIn is an address of a prefix, not the first where there is another.
func addressIn(p netip.Prefix) netip.Addr {
	if p.IsSingleIP() {
		return p.Addr()
	}
	return p.Addr().Next()
}

// Entries that cost puts into each dynamic set.
var (
	reachEntry4 = netip.MustParseAddr("203.0.113.77")
	reachEntry6 = netip.MustParseAddr("2001:db8:77::77")
)

// The service that cost puts beside them, into sets of services and endpoints.
var reachService = policy.Service{Proto: packet.ProtoTCP, Lo: 7777, Hi: 7777}

// reachElement is the entry that cost puts into a dynamic set.
func reachElement(s *policy.Set, a netip.Addr) policy.Element {
	e := policy.Element{Prefix: netip.PrefixFrom(a, a.BitLen()), Service: reachService}
	switch s.Type {
	case policy.Addresses:
		e.Service = policy.Service{}
	case policy.Services:
		e.Prefix = netip.Prefix{}
	}
	return e
}

// pickAddr is an address of the family out of what a term asks for; the zero address where it has none.
func pickAddr(t *policy.Term, f packet.Family, variant int) netip.Addr {
	prefixes := t.Prefixes
	if t.Set != nil {
		prefixes = t.Set.Prefixes
		if t.Set.Kind == policy.Dynamic {
			return map[packet.Family]netip.Addr{packet.IPv4: reachEntry4, packet.IPv6: reachEntry6}[f]
		}
	}
	// Large sets are not copied: start somewhere and take the first of the family.
	for i := range prefixes {
		p := prefixes[(i+variant)%len(prefixes)]
		if p.Addr().Is4() == (f == packet.IPv4) {
			return addressIn(p)
		}
	}
	return netip.Addr{}
}

func mac(v uint64) *[6]byte {
	return &[6]byte{byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
}
