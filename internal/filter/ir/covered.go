package ir

import (
	"encoding/binary"
	"slices"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// uncovered removes rules that an earlier deciding rule covers by itself: every packet that they
// match has been decided before. The work is bounded: of many thousand rules without addresses, and
// of long lists that are nearly the same, some covered rules may be kept, since only a comparison
// of all pairs would find them. A rule that may not go is kept, and the report names it.
func uncovered(rules []Rule, trace *reach) []Rule {
	kept := rules[:0] // in place
	deciding := newIndex(len(rules))
	for i := range rules {
		if by, ok := deciding.cover(begins(&rules[i]), kept); ok {
			trace.covered(rules[i].Slot, kept[by].Slot)
			if rules[i].Action.May(action.MayGo) {
				continue
			}
			trace.idle[rules[i].Slot] = true
		}
		if rules[i].Action.Decides() {
			deciding.add(&rules[i], len(kept))
		}
		kept = append(kept, rules[i])
	}
	return kept
}

// begins returns a rule for the packets that make it do anything: a cookie over TCP does nothing
// unless it has answered a SYN.
func begins(r *Rule) *Rule {
	if !slices.ContainsFunc(r.Action.Effects, func(e Effect) bool {
		return e.Action == action.Cookie && e.Answers == action.SYNs
	}) {
		return r
	}
	syn := *r
	syn.Conds = append(slices.Clip(r.Conds), aSYN)
	return &syn
}

// aSYN holds for the segments that a cookie answers.
var aSYN = Cond{Field: field.TCPFlags, Value: packet.SYN,
	Mask: packet.SYN | packet.ACK | packet.RST | packet.FIN}

// covers reports whether every packet that b matches is matched by a. Each question of a must be
// answered by one of b's: a field that b leaves open cannot imply anything.
// How many elements of lists were looked at is added to steps.
func covers(a, b *Rule, steps *int) bool {
	for i := range a.Conds {
		if q := &a.Conds[i]; !answered(b, q, steps) &&
			(q.Number == 0 || !impliesPairs(b, q, steps)) {
			return false
		}
	}
	return true
}

// answered reports whether one of the questions of a rule answers q. It runs some million times for
// a large policy.
func answered(r *Rule, q *Cond, steps *int) bool {
	for i := range r.Conds {
		if implies(&r.Conds[i], q, steps) {
			return true
		}
	}
	return false
}

// implies reports whether a packet for which b holds always has a hold too. It is false for fields
// for which the table of fields does not allow this conclusion.
func implies(b, a *Cond, steps *int) bool {
	if b.Pairs != nil && !b.Not && lawsOf[b.Field].Cover {
		return pairsImply(b, a, steps)
	}
	if a.Field != b.Field || !lawsOf[a.Field].Cover {
		return false
	}
	switch compares[a.Field] {
	case field.ByRange:
		return within(b.Ranges, a.Ranges, steps)
	case field.ByMask:
		return flagsImply(b, a)
	case field.ByPrefix:
		return prefixesImply(b, a, steps)
	case field.ByPair:
		return a.Set == b.Set && a.Not == b.Not && samePairs(a, b)
	}
	return false
}

func prefixesImply(b, a *Cond, steps *int) bool {
	switch {
	case a.Dynamic() || b.Dynamic():
		return a.Set == b.Set && a.Not == b.Not
	case !a.Not && !b.Not:
		return a.List == b.List || prefixesWithin(b.Prefixes, a.Prefixes, steps)
	case a.Not && !b.Not:
		return prefixesDisjoint(a.Prefixes, b.Prefixes, steps)
	case a.Not && b.Not:
		return a.List == b.List || prefixesWithin(a.Prefixes, b.Prefixes, steps)
	}
	return false
}

func flagsImply(b, a *Cond) bool {
	for f := range 256 {
		if flagsHold(b, uint8(f)) && !flagsHold(a, uint8(f)) {
			return false
		}
	}
	return true
}

func flagsHold(c *Cond, f uint8) bool { return (f&c.Mask == c.Value) != c.Not }

// index finds a covering rule without comparing all pairs, by tuple space search (Srinivasan et
// al., SIGCOMM 1999): rules are grouped by the fields they ask about and the lengths of their two
// prefixes. A covering rule asks about no other fields, and its prefixes hold those of the covered
// rule, so there is one place in each group where it can be.
type index struct {
	tuples []tuple
	groups []group // of the tuples
	of     map[tuple]int
	budget int // steps left
	// what follows each rule in its place, and in its group
	inPlace, inGroup []int32
}

// Bounds of the search for covering rules in each list: pairs of rules, and elements: about a
// twentieth of a second, and some tenth of a µs a rule.
const (
	fewSteps     = 1 << 20
	stepsPerRule = 16
)

// group is the rules of one tuple.
type group struct {
	at  map[addresses]members
	all members
}

// A tuple has a bit for each field.
const _ = uint(64 - field.NumFields)

// tuple holds the fields and prefix lengths that the rules of a group share.
type tuple struct {
	fields   uint64
	src, dst int16 // prefix lengths, or open
}

// addresses are the places of a rule in a group. All rules of a list are of one family.
type addresses struct{ src, dst address }

// address is the two halves of one, an IPv4 address at the top.
type address struct{ hi, lo uint64 }

// open stands for an address that is not asked about by exactly one prefix.
const open = -1

// members are rules as positions in the list, plus 1; 0 is none. Each leads to the next.
type members struct{ first, last int32 }

// with adds a rule behind all others.
func (m members) with(at int, next []int32) members {
	n := int32(at) + 1
	if m.first == 0 {
		return members{n, n}
	}
	next[m.last-1] = n
	return members{m.first, n}
}

// newIndex makes the index for a list of n rules.
func newIndex(n int) *index {
	return &index{of: map[tuple]int{}, budget: fewSteps + stepsPerRule*n,
		inPlace: make([]int32, n), inGroup: make([]int32, n)}
}

// stand gives the tuple and the addresses of a rule.
func stand(r *Rule) (t tuple, p addresses) {
	for i := range r.Conds {
		t.fields |= r.Conds[i].asks()
	}
	p.src, t.src = single(r, field.SrcAddr)
	p.dst, t.dst = single(r, field.DstAddr)
	return t, p
}

// single gives the prefix of a condition on an address that is one prefix, not negated.
func single(r *Rule, f field.Field) (a address, n int16) {
	n = open
	for i := range r.Conds {
		q := &r.Conds[i]
		if q.Field != f {
			continue
		}
		if n != open || q.Not || len(q.Prefixes) != 1 {
			return address{}, open
		}
		p := q.Prefixes[0]
		n = int16(p.Bits())
		if p.Addr().Is4() {
			b := p.Addr().As4()
			a.hi = uint64(binary.BigEndian.Uint32(b[:])) << 32
		} else {
			b := p.Addr().As16()
			a = address{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
		}
	}
	return a, n
}

// shorten gives the first n bits, none of an open address.
func (a address) shorten(n int16) address {
	n = max(n, 0)
	return address{a.hi &^ (^uint64(0) >> min(n, 64)), a.lo &^ (^uint64(0) >> max(n-64, 0))}
}

func (x *index) add(r *Rule, at int) {
	t, p := stand(r)
	n, ok := x.of[t]
	if !ok {
		n = len(x.tuples)
		x.of[t] = n
		x.tuples = append(x.tuples, t)
		x.groups = append(x.groups, group{at: map[addresses]members{}})
	}
	g := &x.groups[n]
	g.at[p] = g.at[p].with(at, x.inPlace)
	g.all = g.all.with(at, x.inGroup)
}

// cover finds the first of the kept rules that covers r.
func (x *index) cover(r *Rule, kept []Rule) (at int, ok bool) {
	of, p := stand(r)
	at = len(kept)
	for i, t := range x.tuples {
		if t.fields&^of.fields != 0 || t.src > of.src && of.src != open ||
			t.dst > of.dst && of.dst != open {
			continue
		}
		if t.src != open && of.src == open || t.dst != open && of.dst == open {
			// Several prefixes may together lie in one: any place can hold the rule.
			at = x.first(x.groups[i].all, x.inGroup, kept, r, at)
			continue
		}
		there := x.groups[i].at[addresses{p.src.shorten(t.src), p.dst.shorten(t.dst)}]
		at = x.first(there, x.inPlace, kept, r, at)
	}
	return at, at < len(kept)
}

// first of the members, in order, that covers r and stands before at.
func (x *index) first(m members, next []int32, kept []Rule, r *Rule, at int) int {
	for n := m.first; n != 0; n = next[n-1] {
		i := int(n) - 1
		if i >= at || x.budget <= 0 {
			break
		}
		steps := 1
		covered := covers(&kept[i], r, &steps)
		x.budget -= steps
		if covered {
			return i
		}
	}
	return at
}
