package ir

import "levee/internal/lang/policy"

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

// domains are the values that numeric fields can have in each class; nil where the class lacks the field.
var domains = func() (out [policy.NumFields][NumClasses][]policy.Range) {
	for f := range policy.NumFields {
		for _, c := range Classes() {
			out[f][c.Index()] = domain(f, c)
		}
	}
	return out
}()

// domain is one of domains. A field with one value costs nothing; VLAN ids are the only ones that may be absent within a
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

// term reduces a term, number i of the match, to what has to be asked of a packet of class c; that of endpoints may take more
// than one question.
func (a *across) term(i int, c Class, q *questions) {
	t := &a.match[i]
	q.n = 0
	var cond Cond
	switch t.Field {
	case policy.SrcEndpoint, policy.DstEndpoint:
		a.endpoint(t, c, q)
		return
	case policy.SrcAddr, policy.DstAddr:
		if q.outcome, cond = specialiseAddr(t, c); q.outcome == depends && !cond.Dynamic() {
			cond.List = a.listOf(i, c.Family)
		}
	case policy.TCPFlags:
		q.outcome, cond = specialiseFlags(t, c)
	case policy.SrcService, policy.DstService:
		q.outcome, cond = a.work.service(t, c)
	default:
		ranges := t.Ranges
		if t.Set != nil {
			ranges = t.Set.Ports
		}
		q.outcome, cond = numeric(t.Field, ranges, t.Not, c)
	}
	if q.outcome == depends {
		q.ask(cond)
	}
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

func specialiseFlags(t *policy.Term, c Class) (outcome, Cond) {
	switch {
	case c.Transport != TCP:
		return never, Cond{}
	case t.Value&^t.Mask != 0:
		return holds(t.Not), Cond{}
	case t.Mask == 0:
		return holds(!t.Not), Cond{}
	}
	return depends, Cond{Field: t.Field, Not: t.Not, Mask: t.Mask, Value: t.Value}
}

// service reduces a term on services to the ports of the class's protocol.
func (w *work) service(t *policy.Term, c Class) (outcome, Cond) {
	switch {
	case !hasPorts(c):
		return never, Cond{}
	case t.Set != nil && t.Set.Kind == policy.Dynamic:
		return depends, dynamicService(t, c)
	}
	field := policy.SrcPort
	if t.Field == policy.DstService {
		field = policy.DstPort
	}
	out := w.merged[:0]
	for _, s := range t.Services() {
		if uint64(s.Proto) == protoOf(c) {
			out = append(out, policy.Range{Lo: uint64(s.Lo), Hi: uint64(s.Hi)})
		}
	}
	w.merged = out
	return numeric(field, w.ranges.Keep(policy.MergeRanges(out)), t.Not, c)
}

// numeric reduces a question for numbers. What it gives may share the memory of the ranges.
func numeric(f policy.Field, ranges []policy.Range, not bool, c Class) (outcome, Cond) {
	dom := domains[f][c.Index()]
	if dom == nil {
		return never, Cond{}
	}
	r := ranges
	if steps := 0; !within(ranges, dom, &steps) {
		r = intersect(dom, ranges)
	}
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

// specialise reduces the match to its conditions in class c, in scratch memory; false if it cannot match there.
func (a *across) specialise(c Class) ([]Cond, bool) {
	all, excluding := a.work.asked[:0], 0
	var q questions
	for i := range a.match {
		a.term(i, c, &q)
		if q.outcome == never {
			return nil, false
		}
		for k := range q.conds[:q.n] {
			var possible bool
			if all, possible = narrow(all, &q.conds[k]); !possible {
				return nil, false
			}
			if q.conds[k].excludes() {
				excluding++
			}
		}
	}
	a.work.asked = all
	if excluding > 1 {
		return a.joinExcluded(all)
	}
	return all, true
}

// narrow adds a condition, to one on the same number if there is one; false if none can hold then.
func narrow(all []Cond, cond *Cond) ([]Cond, bool) {
	if cond.Ranges != nil {
		for j := range all {
			if all[j].Field == cond.Field {
				all[j].Ranges = intersect(all[j].Ranges, cond.Ranges)
				return all, len(all[j].Ranges) > 0
			}
		}
	}
	return append(all, *cond), true
}

// excludes tells whether a condition excludes addresses that stand in the rule.
func (c *Cond) excludes() bool { return c.Not && c.Set == nil && c.Prefixes != nil }

// joinExcluded makes one question of those that exclude addresses of one side, one after the other: `not from A not from B` is
// `not from { A, B }`. It is false if they exclude all.
func (a *across) joinExcluded(all []Cond) ([]Cond, bool) {
	for _, side := range []policy.Field{policy.SrcAddr, policy.DstAddr} {
		together := a.work.gathered[:0]
		out, first := all[:0], -1
		for _, q := range all {
			if q.Field != side || !q.excludes() {
				out = append(out, q)
				continue
			}
			together = append(together, q.Prefixes...)
			if first < 0 {
				first = len(out)
				out = append(out, q)
			}
		}
		a.work.gathered = together
		if len(out) < len(all) {
			out[first].Prefixes, out[first].List = a.lists.prefixes.keep(a.work, &a.work.prefixes, policy.MergePrefixes(together))
			if out[first].Prefixes[0].Bits() == 0 {
				return nil, false
			}
		}
		all = out
	}
	return all, true
}
