package ir

import (
	"net/netip"
	"slices"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Pair is an endpoint within a class of packets, which fixes the family and mostly the protocol:
// addresses, and ports or, where the class has none, protocols.
type Pair struct {
	Prefix netip.Prefix
	Range  field.Range
}

type answerKey struct {
	set    *policy.Set
	field  field.Field
	not    bool
	family Family
	proto  uint64 // of the class; of those without a transport what endpoint says
}

// Kinds of classes without a transport, behind the numbers of protocols.
const (
	whole    = 256
	fragment = 257
)

// withoutPorts are the numbers of the IP protocols without ports.
var withoutPorts = field.Subtract(span(0, 255),
	[]field.Range{{Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}, {Lo: 33, Hi: 33}, {Lo: 132, Hi: 132},
		{Lo: 136, Hi: 136}})

// endpoint reduces a term on endpoints. A packet has the field if it has a port or is of a protocol
// that has none.
func (a *across) endpoint(t *policy.Term, c Class, q *questions) {
	if c.Family == NonIP {
		q.answer(never)
		return
	}
	keep := t.Set != nil && a.work.uses[t.Set] > 1
	key := answerKey{set: t.Set, field: t.Field, not: t.Not, family: c.Family, proto: whole}
	switch {
	case c.Transport != Other:
		key.proto = protoOf(c)
	case c.Fragment:
		key.proto = fragment
	}
	if keep {
		if known, ok := a.work.answers[key]; ok {
			*q = known
			return
		}
	}
	dynamic := t.Set != nil && t.Set.Kind == policy.Dynamic
	if dynamic {
		q.ask(dynamicService(t, c))
	} else {
		a.listedEndpoint(t, c, q)
	}
	if c.Transport == Other && c.Fragment && (t.Not || dynamic) && q.outcome != never {
		// The protocols with ports are here as later fragments, which do not have the field.
		q.ask(Cond{Field: field.Proto, Ranges: withoutPorts})
	}
	if keep {
		a.work.answers[key] = *q
	}
}

// pairsOf picks what endpoints are in a class, into scratch memory.
func (w *work) pairsOf(all []policy.Element, c Class) []Pair {
	out := w.listed[:0]
	protocols, four := &inClass[c.Index()], c.Family == IPv4
	for i := range all {
		e := &all[i]
		if !protocols[e.Service.Proto] || e.Prefix.Addr().Is4() != four {
			continue
		}
		p := Pair{e.Prefix, field.Range{Lo: uint64(e.Service.Lo), Hi: uint64(e.Service.Hi)}}
		if c.Transport == Other {
			p.Range = field.Range{Lo: uint64(e.Service.Proto), Hi: uint64(e.Service.Proto)}
		}
		out = append(out, p)
	}
	w.listed = out
	return out
}

// inClass are the protocols that endpoints can have in each class.
var inClass = func() (out [NumClasses][256]bool) {
	for _, c := range Classes() {
		protocols := domain(field.Proto, c)
		if c.Transport == Other {
			protocols = field.Intersect(protocols, withoutPorts)
		}
		for _, r := range protocols {
			for p := r.Lo; p <= r.Hi; p++ {
				out[c.Index()][p] = true
			}
		}
	}
	return out
}()

// dynamicService asks a dynamic set of services or endpoints. What the class knows of the protocol
// is part of the question, so that classes with the same rules do not take each other's.
func dynamicService(t *policy.Term, c Class) Cond {
	q := Cond{Field: t.Field, Not: t.Not, Set: t.Set, Number: t.Field.Info().Port}
	if c.Transport == Other {
		q.Number = field.Proto
	} else {
		q.Proto = uint8(protoOf(c))
	}
	return q
}

// listedEndpoint asks for the address alone, the number alone, or both one after the other, where
// that is the same.
func (a *across) listedEndpoint(t *policy.Term, c Class, q *questions) {
	addr, number := t.Field.Info().Address, t.Field.Info().Port
	if c.Transport == Other {
		number = field.Proto
	}
	pairs := a.work.pairsOf(t.Endpoints(), c)
	if len(pairs) == 0 {
		q.answer(holds(t.Not))
		return
	}
	if n, ok := product(pairs); ok {
		address := depends
		if pairs[0].Prefix.Bits() == 0 {
			address = always
		}
		numbers, byNumber := always, Cond{}
		if hasPorts(c) || c.Transport == Other { // ICMP is a class of its own
			numbers, byNumber = numeric(number, a.work.rangesOf(pairs, n), t.Not &&
				address == always, c)
		}
		if address == always || numbers == always || !t.Not {
			switch {
			case address == always && numbers == always:
				q.answer(holds(!t.Not))
			case address == always:
				q.answer(numbers)
			}
			if address == depends {
				prefixes, list := a.prefixesOf(pairs[:n])
				q.ask(Cond{Field: addr, Not: t.Not, Prefixes: prefixes, List: list})
			}
			if numbers == depends {
				q.ask(byNumber)
			}
			return
		}
	}
	kept, list := a.lists.pairs.keep(a.work, &a.work.pairs, pairs)
	q.ask(Cond{Field: t.Field, Not: t.Not, Pairs: kept, List: list, Number: number, Set: t.Set})
}

// product tells whether endpoints, which are sorted by range and prefix, are all combinations of
// some prefixes, the first n of them, with some ranges.
func product(pairs []Pair) (n int, ok bool) {
	for n = 1; n < len(pairs) && pairs[n].Range == pairs[0].Range; n++ {
	}
	if len(pairs)%n != 0 {
		return 0, false
	}
	for i := range pairs {
		if pairs[i].Prefix != pairs[i%n].Prefix || pairs[i].Range != pairs[i-i%n].Range {
			return 0, false
		}
	}
	return n, true
}

// rangesOf returns the ranges of all combinations with n prefixes, merged.
func (w *work) rangesOf(pairs []Pair, n int) []field.Range {
	out := w.merged[:0]
	for i := 0; i < len(pairs); i += n {
		out = append(out, pairs[i].Range)
	}
	w.merged = out
	return w.ranges.Keep(field.Join(out))
}

// prefixesOf returns the prefixes of endpoints.
func (a *across) prefixesOf(pairs []Pair) ([]netip.Prefix, ListID) {
	out := a.work.gathered[:0]
	for i := range pairs {
		out = append(out, pairs[i].Prefix)
	}
	a.work.gathered = out
	return a.lists.prefixes.keep(a.work, &a.work.prefixes, out)
}

// asks returns the fields that a condition looks at, as bits.
func (c *Cond) asks() uint64 {
	switch {
	case compares[c.Field] != field.ByPair:
		return 1 << c.Field
	case isEndpoint(c.Field):
		return 1<<c.address() | 1<<c.Number
	}
	return 1 << c.Number
}

// address returns the address field of a condition on endpoints.
func (c *Cond) address() field.Field { return c.Field.Info().Address }

// maxCompared bounds what looking for covered endpoints costs, as a product of two lists. Of longer
// lists only equal ones are known to cover each other: a finding may be missed, and a rule kept
// that can never match.
const maxCompared = 1024

func samePairs(a, b *Cond) bool {
	return a.List == b.List || len(a.Pairs) <= maxCompared && slices.Equal(a.Pairs, b.Pairs)
}

// pairsImply reports whether a packet with one of the endpoints of b always has a hold too.
func pairsImply(b, a *Cond, steps *int) bool {
	every := func(holds func(p Pair) bool) bool {
		return !slices.ContainsFunc(b.Pairs, func(p Pair) bool { *steps++; return !holds(p) })
	}
	switch {
	case a.Pairs != nil && a.Field == b.Field && !a.Not:
		return samePairs(a, b) || len(a.Pairs)*len(b.Pairs) <= maxCompared &&
			every(func(p Pair) bool { return p.within(a.Pairs, steps) })
	case a.Prefixes != nil && a.Field == b.address() && len(b.Pairs) <= maxCompared:
		if a.Not {
			return every(func(p Pair) bool {
				return prefixesDisjoint([]netip.Prefix{p.Prefix}, a.Prefixes, steps)
			})
		}
		return every(func(p Pair) bool {
			return prefixesWithin([]netip.Prefix{p.Prefix}, a.Prefixes, steps)
		})
	case a.Ranges != nil && a.Field == b.Number && len(b.Pairs) <= maxCompared:
		return every(func(p Pair) bool { return within([]field.Range{p.Range}, a.Ranges, steps) })
	}
	return false
}

// within reports whether one of the pairs covers p.
func (p Pair) within(all []Pair, steps *int) bool {
	return slices.ContainsFunc(all, func(q Pair) bool {
		*steps++
		return q.Prefix.Bits() <= p.Prefix.Bits() && q.Prefix.Contains(p.Prefix.Addr()) &&
			q.Range.Lo <= p.Range.Lo && p.Range.Hi <= q.Range.Hi
	})
}

// impliesPairs reports whether the address and the number that b asks for are always among the
// endpoints of a.
func impliesPairs(b *Rule, a *Cond, steps *int) bool {
	if a.Not || a.Pairs == nil || !lawsOf[a.Field].Cover {
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
