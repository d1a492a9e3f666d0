package ir

import (
	"net/netip"
	"slices"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// shadow removes rules that an earlier deciding rule covers by itself: every packet that they match
// has been decided before. Of many thousand rules without addresses, which only comparing all pairs
// could tell, and of long lists that are nearly the same, some that are covered may be kept. A rule
// that may not go is kept and told of.
func shadow(rules []Rule, trace *reach) []Rule {
	kept := rules[:0] // in place
	deciding := index{of: map[tuple]*group{}, budget: fewSteps + stepsPerRule*len(rules)}
	for i := range rules {
		if by, ok := deciding.cover(begins(&rules[i]), kept); ok {
			trace.shadowed(rules[i].Slot, kept[by].Slot)
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

// begins is a rule for the packets that make it do anything: a cookie does nothing unless it has
// answered a SYN.
func begins(r *Rule) *Rule {
	if !r.Action.Has(action.Cookie) {
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

// implies reports whether a packet for which b holds always has a hold too. Of a field for which
// the table of fields does not allow that, nothing does.
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
	groups []*group
	of     map[tuple]*group
	budget int // steps left
}

// What looking for covering rules may cost in each list, in pairs of rules compared and elements
// looked at: about a twentieth of a second, and some tenth of a µs a rule.
const (
	fewSteps     = 1 << 20
	stepsPerRule = 16
)

// group is the rules of one tuple, as positions in the list.
type group struct {
	tuple
	at  map[place][]int
	all []int
}

// A tuple has a bit for each field.
const _ = uint(32 - field.NumFields)

// tuple is what the rules of a group have in common.
type tuple struct {
	fields   uint32
	src, dst int16 // prefix lengths, or open
}

// place is where in a group a rule stands: its prefixes.
type place struct{ src, dst netip.Prefix }

// open stands for an address that is not asked about by exactly one prefix.
const open = -1

// single gives the prefix of a condition on an address that is one prefix, not negated.
func single(r *Rule, f field.Field) (p netip.Prefix, n int16) {
	found := false
	for i := range r.Conds {
		q := &r.Conds[i]
		if q.Field != f {
			continue
		}
		if found || q.Not || len(q.Prefixes) != 1 {
			return netip.Prefix{}, open
		}
		found, p = true, q.Prefixes[0]
	}
	if !found {
		return netip.Prefix{}, open
	}
	return p, int16(p.Bits())
}

func fieldsOf(r *Rule) (set uint32) {
	for i := range r.Conds {
		set |= r.Conds[i].asks()
	}
	return set
}

func (x *index) add(r *Rule, at int) {
	src, m := single(r, field.SrcAddr)
	dst, n := single(r, field.DstAddr)
	t := tuple{fieldsOf(r), m, n}
	g := x.of[t]
	if g == nil {
		g = &group{tuple: t, at: map[place][]int{}}
		x.of[t] = g
		x.groups = append(x.groups, g)
	}
	p := place{src, dst}
	g.at[p] = append(g.at[p], at)
	g.all = append(g.all, at)
}

// cover finds the first of the kept rules that covers r.
func (x *index) cover(r *Rule, kept []Rule) (at int, ok bool) {
	fields := fieldsOf(r)
	src, m := single(r, field.SrcAddr)
	dst, n := single(r, field.DstAddr)
	at = len(kept)
	for _, t := range x.groups {
		if t.fields&^fields != 0 || t.src > m && m != open || t.dst > n && n != open {
			continue
		}
		if t.src != open && m == open || t.dst != open && n == open {
			// Several prefixes may together lie in one: any place can hold the rule.
			at = x.first(t.all, kept, r, at)
			continue
		}
		at = x.first(t.at[place{shorten(src, t.src), shorten(dst, t.dst)}], kept, r, at)
	}
	return at, at < len(kept)
}

func shorten(p netip.Prefix, n int16) netip.Prefix {
	if n == open {
		return netip.Prefix{}
	}
	q, _ := p.Addr().Prefix(int(n))
	return q
}

// first of the members, in order, that covers r and stands before at.
func (x *index) first(members []int, kept []Rule, r *Rule, at int) int {
	for _, i := range members {
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
