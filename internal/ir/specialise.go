package ir

import "levee/internal/policy"

// protocol numbers of the transports, by Transport; Other has none.
var protocol = [NumTransports]uint64{TCP: 6, UDP: 17, UDPLite: 136, SCTP: 132, DCCP: 33}

// protoOf is the protocol of a class whose transport is known.
func protoOf(c Class) uint64 {
	if c.Transport != ICMP {
		return protocol[c.Transport]
	}
	if c.Family == IPv4 {
		return 1
	}
	return 58
}

func hasPorts(c Class) bool { return c.Transport >= TCP && c.Transport <= DCCP }

func one(v uint64) []policy.Range       { return []policy.Range{{Lo: v, Hi: v}} }
func span(lo, hi uint64) []policy.Range { return []policy.Range{{Lo: lo, Hi: hi}} }
func present(is bool, r []policy.Range) []policy.Range {
	if is {
		return r
	}
	return nil
}

// domain is the values a numeric field can have in a class; nil where the class lacks the field.
// A field with one value costs nothing; VLAN ids are the only ones that may be absent within a
// class.
func domain(f policy.Field, c Class) []policy.Range {
	ip := c.Family != NonIP
	switch f {
	case policy.SrcPort, policy.DstPort:
		return present(hasPorts(c), span(0, 0xffff))
	case policy.Proto:
		switch {
		case !ip:
			return nil
		case c.Transport != Other:
			return one(protoOf(c))
		case c.Fragment: // a later fragment, whatever its protocol
			return span(0, 255)
		}
		rest := span(0, 255)
		for t := TCP; t < NumTransports; t++ {
			rest = subtract(rest, one(protoOf(Class{c.Family, t, false})))
		}
		return rest
	case policy.EtherType:
		switch c.Family {
		case IPv4:
			return one(0x0800)
		case IPv6:
			return one(0x86dd)
		}
		rest := span(0, 0xffff)
		for _, t := range []uint64{0x0800, 0x8100, 0x86dd, 0x88a8} {
			rest = subtract(rest, one(t))
		}
		return rest
	case policy.ICMPType:
		return present(c.Family == IPv4 && c.Transport == ICMP, span(0, 0xffff))
	case policy.ICMP6Type:
		return present(c.Family == IPv6 && c.Transport == ICMP, span(0, 0xffff))
	case policy.Len:
		switch c.Family {
		case IPv4:
			return span(20, 0xffff)
		case IPv6:
			return span(40, 0xffff+40)
		}
		return span(0, 0xffffffff)
	case policy.TTL:
		return present(ip, span(0, 255))
	case policy.DSCP:
		return present(ip, span(0, 63))
	case policy.VLAN, policy.InnerVLAN:
		return span(0, 0xfff)
	case policy.Tags:
		return span(0, 2)
	case policy.SrcMAC, policy.DstMAC:
		return span(0, 1<<48-1)
	case policy.Fragment:
		if !ip {
			return nil
		}
		if c.Fragment {
			return one(1)
		}
		return one(0)
	}
	return nil
}

// outcome of asking a term about a class.
type outcome uint8

const (
	never outcome = iota
	always
	depends
)

// specialiseTerm reduces a term to what has to be asked of a packet of class c; that of endpoints may take two
// questions.
func specialiseTerm(t *policy.Term, c Class, m *memo) (outcome, []Cond) {
	if t.Field == policy.SrcEndpoint || t.Field == policy.DstEndpoint {
		return specialiseEndpoint(t, c, m)
	}
	o, cond := specialiseOne(t, c)
	return o, conds(o, cond)
}

func specialiseOne(t *policy.Term, c Class) (outcome, Cond) {
	switch t.Field {
	case policy.SrcAddr, policy.DstAddr:
		return specialiseAddr(t, c)
	case policy.TCPFlags:
		if c.Transport != TCP {
			return never, Cond{}
		}
		return specialiseFlags(t)
	case policy.SrcService, policy.DstService:
		if !hasPorts(c) {
			return never, Cond{}
		}
		if t.Set != nil && t.Set.Kind == policy.Dynamic {
			return depends, dynamicService(t, c)
		}
		field := policy.SrcPort
		if t.Field == policy.DstService {
			field = policy.DstPort
		}
		return numeric(field, servicePorts(t, c), t.Not, c)
	}
	ranges := t.Ranges
	if t.Set != nil {
		ranges = t.Set.Ports
	}
	return numeric(t.Field, ranges, t.Not, c)
}

func specialiseAddr(t *policy.Term, c Class) (outcome, Cond) {
	if c.Family == NonIP {
		return never, Cond{}
	}
	cond := Cond{Field: t.Field, Not: t.Not, Set: t.Set}
	if cond.Dynamic() {
		return depends, cond
	}
	cond.Prefixes = ofFamily(t.Addresses(), c.Family)
	switch {
	case len(cond.Prefixes) == 0:
		return holds(t.Not), Cond{}
	case cond.Prefixes[0].Bits() == 0:
		return holds(!t.Not), Cond{}
	}
	return depends, cond
}

func holds(b bool) outcome {
	if b {
		return always
	}
	return never
}

func specialiseFlags(t *policy.Term) (outcome, Cond) {
	switch {
	case t.Value&^t.Mask != 0:
		return holds(t.Not), Cond{}
	case t.Mask == 0:
		return holds(!t.Not), Cond{}
	}
	return depends, Cond{Field: t.Field, Not: t.Not, Mask: t.Mask, Value: t.Value}
}

// servicePorts picks the ports of the class's protocol, merged.
func servicePorts(t *policy.Term, c Class) []policy.Range {
	// The complement of the complement is sorted and merged, however the services overlap.
	rest := span(0, 0xffff)
	for _, s := range t.Services() {
		if uint64(s.Proto) == protoOf(c) {
			rest = subtract(rest, span(uint64(s.Lo), uint64(s.Hi)))
		}
	}
	return subtract(span(0, 0xffff), rest)
}

func numeric(f policy.Field, ranges []policy.Range, not bool, c Class) (outcome, Cond) {
	dom := domain(f, c)
	if dom == nil {
		return never, Cond{}
	}
	r := intersect(dom, ranges)
	if not {
		r = subtract(dom, r)
	}
	switch {
	case len(r) == 0:
		return never, Cond{}
	case sameRanges(r, dom) && f != policy.VLAN && f != policy.InnerVLAN:
		return always, Cond{}
	}
	return depends, Cond{Field: f, Ranges: r}
}

// specialise reduces a match to its conditions in class c; false if it cannot match there.
func specialise(match []policy.Term, c Class, m *memo) ([]Cond, bool) {
	all := make([]Cond, 0, len(match))
	for i := range match {
		o, conds := specialiseTerm(&match[i], c, m)
		if o == never {
			return nil, false
		}
		for _, cond := range conds {
			var possible bool
			if all, possible = narrow(all, cond); !possible {
				return nil, false
			}
		}
	}
	return all, true
}

// narrow adds a condition, to one on the same number if there is one; false if none can hold then.
func narrow(all []Cond, cond Cond) ([]Cond, bool) {
	if cond.Ranges != nil {
		for j := range all {
			if all[j].Field == cond.Field {
				all[j].Ranges = intersect(all[j].Ranges, cond.Ranges)
				return all, len(all[j].Ranges) > 0
			}
		}
	}
	return append(all, cond), true
}
