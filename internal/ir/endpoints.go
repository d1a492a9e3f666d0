package ir

import (
	"net/netip"
	"slices"

	"levee/internal/policy"
)

// Pair is an endpoint within a class of packets, which fixes the family and mostly the protocol: addresses, and ports or,
// where the class has none, protocols.
type Pair struct {
	Prefix netip.Prefix
	Range  policy.Range
}

// memo keeps what terms on sets of endpoints that several rules name ask for in a class: equal questions share their lists,
// which is how codegen knows them to be equal. A nil memo keeps nothing.
type memo struct {
	answers map[memoKey]answer
	uses    map[*policy.Set]int // terms on each set of endpoints
}

func newMemo(p *policy.Policy) *memo {
	m := &memo{map[memoKey]answer{}, map[*policy.Set]int{}}
	for _, rules := range [][]*policy.Rule{p.Protect, p.Rules} {
		for _, r := range rules {
			for i := range r.Match {
				if t := &r.Match[i]; t.Set != nil && (t.Field == policy.SrcEndpoint || t.Field == policy.DstEndpoint) {
					m.uses[t.Set]++
				}
			}
		}
	}
	return m
}

type memoKey struct {
	set    *policy.Set
	field  policy.Field
	not    bool
	family Family
	proto  uint64 // of the class; of those without a transport what endpointKind says
}

type answer struct {
	outcome outcome
	conds   []Cond
}

// Kinds of classes without a transport, behind the numbers of protocols.
const (
	whole    = 256
	fragment = 257
)

// withoutPorts are the protocols that have none.
var withoutPorts = subtract(span(0, 255), []policy.Range{{Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}, {Lo: 33, Hi: 33}, {Lo: 132, Hi: 132}, {Lo: 136, Hi: 136}})

// specialiseEndpoint reduces a term on endpoints. A packet has the field if it has a port or is of a protocol that has none.
func specialiseEndpoint(t *policy.Term, c Class, m *memo) (outcome, []Cond) {
	if c.Family == NonIP {
		return never, nil
	}
	keep := m != nil && t.Set != nil && m.uses[t.Set] > 1
	key := memoKey{set: t.Set, field: t.Field, not: t.Not, family: c.Family, proto: whole}
	switch {
	case c.Transport != Other:
		key.proto = protoOf(c)
	case c.Fragment:
		key.proto = fragment
	}
	if keep {
		if a, ok := m.answers[key]; ok {
			return a.outcome, a.conds
		}
	}
	a := lowerEndpoint(t, pairsOf(t.Endpoints(), c), c)
	dynamic := t.Set != nil && t.Set.Kind == policy.Dynamic
	if dynamic {
		a = answer{depends, []Cond{dynamicService(t, c)}}
	}
	if c.Transport == Other && c.Fragment && (t.Not || dynamic) && a.outcome != never {
		// The protocols with ports are here as later fragments, which do not have the field.
		a = answer{depends, append(a.conds, Cond{Field: policy.Proto, Ranges: withoutPorts})}
	}
	if keep {
		m.answers[key] = a
	}
	return a.outcome, a.conds
}

// pairsOf picks what endpoints are in a class.
func pairsOf(all []policy.Element, c Class) []Pair {
	here := func(e *policy.Element) bool {
		return e.Prefix.Addr().Is4() == (c.Family == IPv4) && contains(endpointProtocols[c.Index()], uint64(e.Service.Proto))
	}
	n := 0
	for i := range all {
		if here(&all[i]) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	out := make([]Pair, 0, n)
	for i := range all {
		e := &all[i]
		if !here(e) {
			continue
		}
		p := Pair{e.Prefix, policy.Range{Lo: uint64(e.Service.Lo), Hi: uint64(e.Service.Hi)}}
		if c.Transport == Other {
			p.Range = policy.Range{Lo: uint64(e.Service.Proto), Hi: uint64(e.Service.Proto)}
		}
		out = append(out, p)
	}
	return out
}

// endpointProtocols are the protocols that endpoints can have in each class.
var endpointProtocols = func() (out [NumClasses][]policy.Range) {
	for _, c := range Classes() {
		out[c.Index()] = domain(policy.Proto, c)
		if c.Transport == Other {
			out[c.Index()] = intersect(out[c.Index()], withoutPorts)
		}
	}
	return out
}()

// dynamicService asks a dynamic set of services or endpoints. What the class knows of the protocol is part of the question, so
// that classes with the same rules do not take each other's.
func dynamicService(t *policy.Term, c Class) Cond {
	q := Cond{Field: t.Field, Not: t.Not, Set: t.Set, Number: policy.DstPort}
	if t.Field == policy.SrcService || t.Field == policy.SrcEndpoint {
		q.Number = policy.SrcPort
	}
	if c.Transport == Other {
		q.Number = policy.Proto
	} else {
		q.Proto = uint8(protoOf(c))
	}
	return q
}

// lowerEndpoint asks for the address alone, the number alone, or both one after the other, where that is the same.
func lowerEndpoint(t *policy.Term, pairs []Pair, c Class) answer {
	addr, number := policy.SrcAddr, policy.SrcPort
	if t.Field == policy.DstEndpoint {
		addr, number = policy.DstAddr, policy.DstPort
	}
	if c.Transport == Other {
		number = policy.Proto
	}
	if len(pairs) == 0 {
		return answer{holds(t.Not), nil}
	}
	if prefixes, ranges, ok := factors(pairs); ok {
		address, byAddr := depends, Cond{Field: addr, Not: t.Not, Prefixes: prefixes}
		if prefixes[0].Bits() == 0 {
			address = always
		}
		numbers, byNumber := always, Cond{}
		if hasPorts(c) || c.Transport == Other { // ICMP is a class of its own
			numbers, byNumber = numeric(number, ranges, t.Not && address == always, c)
		}
		switch {
		case address == always && numbers == always:
			return answer{holds(!t.Not), nil}
		case address == always:
			return answer{numbers, conds(numbers, byNumber)}
		case numbers == always:
			return answer{depends, []Cond{byAddr}}
		case !t.Not:
			return answer{depends, []Cond{byAddr, byNumber}}
		}
	}
	return answer{depends, []Cond{{Field: t.Field, Not: t.Not, Pairs: pairs, Number: number, Set: t.Set}}}
}

func conds(o outcome, q Cond) []Cond {
	if o != depends {
		return nil
	}
	return []Cond{q}
}

// factors are prefixes and ranges of which pairs are all combinations; not ok if they are not. The prefixes of
// each range are merged already.
func factors(pairs []Pair) (prefixes []netip.Prefix, ranges []policy.Range, ok bool) {
	seen := map[netip.Prefix]bool{}
	asked := map[policy.Range]bool{}
	for _, p := range pairs {
		if !seen[p.Prefix] {
			seen[p.Prefix] = true
			prefixes = append(prefixes, p.Prefix)
		}
		if !asked[p.Range] {
			asked[p.Range] = true
			ranges = append(ranges, p.Range)
		}
	}
	if len(prefixes)*len(ranges) != len(pairs) {
		return nil, nil, false
	}
	// The complement of the complement is sorted and merged, however the ranges overlap.
	rest := span(0, 0xffff)
	for _, r := range ranges {
		rest = subtract(rest, []policy.Range{r})
	}
	return prefixes, subtract(span(0, 0xffff), rest), true
}

// asks are the fields that a condition looks at, as bits.
func (c *Cond) asks() uint32 {
	switch c.Field {
	case policy.SrcEndpoint:
		return 1<<policy.SrcAddr | 1<<c.Number
	case policy.DstEndpoint:
		return 1<<policy.DstAddr | 1<<c.Number
	case policy.SrcService, policy.DstService:
		return 1 << c.Number
	}
	return 1 << c.Field
}

// address is the address field of a condition on endpoints.
func (c *Cond) address() policy.Field {
	if c.Field == policy.SrcEndpoint {
		return policy.SrcAddr
	}
	return policy.DstAddr
}

// maxCompared bounds what looking for covered endpoints costs, as a product of two lists. Of longer lists only
// equal ones are known to cover each other: a finding may be missed, and a rule kept that can never match.
const maxCompared = 1024

func samePairs(a, b []Pair) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || len(a) <= maxCompared && slices.Equal(a, b))
}

// pairsImply reports whether a packet with one of the endpoints of b always has a hold too.
func pairsImply(b, a *Cond, steps *int) bool {
	every := func(holds func(p Pair) bool) bool {
		return !slices.ContainsFunc(b.Pairs, func(p Pair) bool { *steps++; return !holds(p) })
	}
	switch {
	case a.Pairs != nil && a.Field == b.Field && !a.Not:
		return samePairs(a.Pairs, b.Pairs) || len(a.Pairs)*len(b.Pairs) <= maxCompared && every(func(p Pair) bool { return p.within(a.Pairs, steps) })
	case a.Prefixes != nil && a.Field == b.address() && len(b.Pairs) <= maxCompared:
		if a.Not {
			return every(func(p Pair) bool { return prefixesDisjoint([]netip.Prefix{p.Prefix}, a.Prefixes, steps) })
		}
		return every(func(p Pair) bool { return prefixesWithin([]netip.Prefix{p.Prefix}, a.Prefixes, steps) })
	case a.Ranges != nil && a.Field == b.Number && len(b.Pairs) <= maxCompared:
		return every(func(p Pair) bool { return within([]policy.Range{p.Range}, a.Ranges, steps) })
	}
	return false
}

// within reports whether one of the pairs covers p.
func (p Pair) within(all []Pair, steps *int) bool {
	return slices.ContainsFunc(all, func(q Pair) bool {
		*steps++
		return q.Prefix.Bits() <= p.Prefix.Bits() && q.Prefix.Contains(p.Prefix.Addr()) && q.Range.Lo <= p.Range.Lo && p.Range.Hi <= q.Range.Hi
	})
}

// impliesPairs reports whether the address and the number that b asks for are always among the endpoints of a.
func impliesPairs(b *Rule, a *Cond, steps *int) bool {
	if a.Not || a.Pairs == nil {
		return false
	}
	var prefixes []netip.Prefix
	ranges := span(0, 0xffff)
	for i := range b.Conds {
		switch q := &b.Conds[i]; {
		case q.Field == a.address() && !q.Not && q.Prefixes != nil:
			prefixes = q.Prefixes
		case q.Field == a.Number:
			ranges = q.Ranges
		}
	}
	if len(prefixes) == 0 || len(prefixes)*len(ranges)*len(a.Pairs) > maxCompared {
		return false
	}
	for _, p := range prefixes {
		for _, r := range ranges {
			if !(Pair{p, r}).within(a.Pairs, steps) {
				return false
			}
		}
	}
	return true
}
