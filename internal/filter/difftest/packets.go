package difftest

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"slices"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Packets yields n frames that lie on the edges of p: the ends of its prefixes and ranges and their
// neighbours, and the flags and types that its rules name. Others have tags, options, chains of
// extension headers or fragments, or are of built-in rules. All of them also come truncated, with
// wrong lengths, or with flipped bits. Dynamic sets count as empty. The same arguments yield the
// same frames. A frame stays valid after the next one. No frame is longer than 3,500 bytes, which
// every kernel's BPF_PROG_RUN takes.
func Packets(p *policy.Policy, seed uint64, n int) iter.Seq[[]byte] {
	return packets(p, func(*policy.Set) []policy.Element { return nil }, seed, n)
}

// packets is Packets with entries in dynamic sets.
func packets(p *policy.Policy, entries func(*policy.Set) []policy.Element, seed uint64,
	n int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		c := &corners{newRand(seed, streamPackets), entries}
		rules := slices.Concat(p.Protect, p.Rules)
		for range n {
			if !yield(c.frame(p, rules)) {
				return
			}
		}
	}
}

func (c *corners) frame(p *policy.Policy, rules []*policy.Rule) []byte {
	r := c.r
	if r.IntN(40) == 0 {
		return random(r, r.IntN(120))
	}
	s := newShape(r)
	if len(rules) > 0 && r.IntN(5) > 0 {
		s.aimRule(c, rules[r.IntN(len(rules))])
		if r.IntN(5) == 0 { // between two rules
			s.aimRule(c, rules[r.IntN(len(rules))])
		}
	}
	if len(p.Sets) > 0 && r.IntN(3) == 0 {
		s.aimSet(c, p.Sets[r.IntN(len(p.Sets))])
	}
	if r.IntN(16) == 0 {
		s.in = newShape(r)
	}
	var carried []byte
	if s.in != nil {
		carried = s.tunnel(r)
	}
	l := s.layOut(r)
	if l.l4 > 0 && carried != nil {
		at := l.l4
		if *s.Proto == packet.ProtoUDP {
			at += 8
		}
		if at < len(l.b) {
			copy(l.b[at:], carried)
		}
	}
	if r.IntN(12) == 0 {
		l.carry(r)
	}
	if r.IntN(6) == 0 {
		l.mutate(r)
	}
	return l.b
}

// aimRule changes s towards every term of a rule, or all but one.
func (s *shape) aimRule(c *corners, rule *policy.Rule) {
	skip := -1
	if n := len(rule.Match); n > 1 && c.r.IntN(4) == 0 {
		skip = c.r.IntN(n)
	}
	for i := range rule.Match {
		if i != skip && (!rule.Match[i].Not || c.r.IntN(3) == 0) {
			s.aim(c, &rule.Match[i])
		}
	}
}

// aimSet takes an element of a set, also of one that no rule asks.
func (s *shape) aimSet(c *corners, set *policy.Set) {
	if set.Type == policy.Names {
		s.aimMessage(c, &policy.Term{Field: field.DNSName, Set: set,
			Names: &policy.NameList{Patterns: set.Patterns, Set: set}})
		return
	}
	sides := map[policy.SetType][2]field.Field{
		policy.Addresses: {field.SrcAddr, field.DstAddr},
		policy.Ports:     {field.SrcPort, field.DstPort},
		policy.Services:  {field.SrcService, field.DstService},
		policy.Endpoints: {field.SrcEndpoint, field.DstEndpoint},
	}[set.Type]
	s.aim(c, &policy.Term{Field: sides[c.r.IntN(2)], Set: set})
}

// carry puts PPPoE or MPLS between the Ethernet header, or tags, and IP.
func (l *laidOut) carry(r *rand.Rand) {
	if l.ip == 0 {
		return
	}
	var head []byte
	var outer uint16
	if r.IntN(2) == 0 {
		outer = packet.EtherPPPoE
		protocol := uint16(0x0021)
		if l.b[l.ip]>>4 == 6 {
			protocol = 0x0057
		}
		if r.IntN(12) == 0 {
			protocol = 0xc021
		}
		head = []byte{0x11, 0, 0, 7}
		if r.IntN(20) == 0 {
			head[r.IntN(2)]++
		}
		shown := binary.BigEndian.AppendUint16(nil, protocol)
		if shown[0] == 0 && r.IntN(4) == 0 {
			shown = shown[1:] // compressed (RFC 1661 section 6.5)
		}
		length := len(l.b) - l.ip + len(shown)
		if r.IntN(6) == 0 {
			length += r.IntN(9) - 4
		}
		head = binary.BigEndian.AppendUint16(head, uint16(length))
		head = append(head, shown...)
	} else {
		outer = packet.EtherMPLS + uint16(r.IntN(2))
		labels := 1 + r.IntN(3)
		if r.IntN(6) == 0 {
			labels = r.IntN(11)
		}
		for i := range labels {
			label := random(r, 4)
			if label[2] &^= 1; i == labels-1 {
				label[2] |= 1
			}
			head = append(head, label...)
		}
	}
	binary.BigEndian.PutUint16(l.b[l.ip-2:], outer)
	l.b = slices.Insert(l.b, l.ip, head...)
	l.ip += len(head)
	l.l4 += len(head)
	for i := range l.ext {
		l.ext[i] += len(head)
	}
}

// mutate breaks a frame: shorter, longer, or with a field that does not fit.
func (l *laidOut) mutate(r *rand.Rand) {
	switch r.IntN(8) {
	case 0: // the frame ends early
		l.b = l.b[:r.IntN(len(l.b)+1)]
	case 1: // the packet ends early, and its length says so
		l.shorten(r)
	case 2: // padding
		l.b = append(l.b, random(r, 1+r.IntN(60))...)
	case 3: // the length field is wrong, often by one
		l.bendLength(r)
	case 4: // a header length, version or chain is wrong
		l.bendHeader(r)
	case 5: // a transport length is wrong
		l.bendTransport(r)
	default:
		for range 1 + r.IntN(3) {
			if len(l.b) > 0 {
				// Mostly among the headers.
				l.b[r.IntN(min(len(l.b), 14+80))] ^= 1 << r.IntN(8)
			}
		}
	}
}

// shorten cuts bytes behind the IP header and makes the length field right again.
func (l *laidOut) shorten(r *rand.Rand) {
	if l.ip == 0 {
		return
	}
	first := l.ip + 20
	if l.b[l.ip]>>4 == 6 {
		first = l.ip + 40
	}
	end := first + r.IntN(len(l.b)-first+1)
	if r.IntN(2) == 0 { // near the end of the transport header
		end = min(max(l.l4+r.IntN(24), first), len(l.b))
	}
	padding := l.b[end:]
	l.b = l.b[:end]
	l.setLength(end - l.ip)
	if r.IntN(2) == 0 { // what was cut stays as padding
		l.b = l.b[:end+len(padding)]
	}
}

// setLength makes the length field say that the IP packet has n bytes.
func (l *laidOut) setLength(n int) {
	if l.b[l.ip]>>4 == 6 {
		binary.BigEndian.PutUint16(l.b[l.ip+4:], uint16(n-40))
	} else {
		binary.BigEndian.PutUint16(l.b[l.ip+2:], uint16(n))
	}
}

func (l *laidOut) bendLength(r *rand.Rand) {
	if l.ip == 0 {
		return
	}
	n := len(l.b) - l.ip
	l.setLength([]int{n + 1, n - 1, n + r.IntN(100), n - r.IntN(100), 0, 19, 20, 39, 40, 0xffff,
		r.IntN(0x10000)}[r.IntN(11)])
}

func (l *laidOut) bendHeader(r *rand.Rand) {
	switch {
	case l.ip == 0:
	case len(l.ext) > 0 && r.IntN(3) > 0:
		at := l.ext[r.IntN(len(l.ext))]
		switch r.IntN(3) {
		case 0:
			l.b[at] = []uint8{0, 43, 44, 50, 51, 59, 60, 135, 139, 6, 17}[r.IntN(11)]
		case 1:
			l.b[at+1] = uint8(r.Uint32())
		case 2:
			binary.BigEndian.PutUint16(l.b[at+2:], uint16(r.Uint32()))
		}
	case r.IntN(2) == 0:
		l.b[l.ip] = l.b[l.ip]&0xf0 | uint8(r.IntN(16)) // IPv4 header length
	case r.IntN(2) == 0:
		l.b[l.ip] = uint8(r.IntN(16))<<4 | l.b[l.ip]&15 // version
	default:
		binary.BigEndian.PutUint16(l.b[l.ip+6:], uint16(r.Uint32())) // fragment field; next header
	}
}

func (l *laidOut) bendTransport(r *rand.Rand) {
	if l.l4 == 0 || len(l.b) < l.l4+14 {
		return
	}
	n := len(l.b) - l.l4
	switch r.IntN(2) {
	case 0: // where UDP has its length
		binary.BigEndian.PutUint16(l.b[l.l4+4:],
			uint16([]int{0, 7, 8, n - 1, n + 1, 0xffff, r.IntN(0x10000)}[r.IntN(7)]))
	case 1: // where TCP has its data offset
		l.b[l.l4+12] = uint8(r.IntN(16)) << 4
	}
}
