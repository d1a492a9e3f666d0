package ir

import (
	"slices"

	"levee/internal/policy"
)

// shadow removes rules that an earlier deciding rule covers by itself: every packet that they
// match has been decided before.
func shadow(rules []Rule, trace *reach) []Rule {
	var kept []Rule
	var deciding index
	for i := range rules {
		if by, ok := deciding.cover(&rules[i], kept); ok {
			trace.shadowed(rules[i].Slot, by)
			continue
		}
		if rules[i].Action != policy.Count {
			deciding.add(&rules[i], len(kept))
		}
		kept = append(kept, rules[i])
	}
	return kept
}

// covers reports whether every packet that b matches is matched by a. Each question of a must be
// answered by one of b's: a field that b leaves open cannot imply anything.
func covers(a, b *Rule) bool {
	for i := range a.Conds {
		if !slices.ContainsFunc(b.Conds, func(c Cond) bool { return implies(&c, &a.Conds[i]) }) {
			return false
		}
	}
	return true
}

// implies reports whether a packet for which b holds always has a hold too.
func implies(b, a *Cond) bool {
	if a.Field != b.Field {
		return false
	}
	switch {
	case a.Field == policy.TCPFlags:
		return flagsImply(b, a)
	case a.Dynamic() || b.Dynamic():
		return a.Set == b.Set && a.Not == b.Not
	case a.Prefixes != nil:
		switch {
		case !a.Not && !b.Not:
			return prefixesWithin(b.Prefixes, a.Prefixes)
		case a.Not && !b.Not:
			return prefixesDisjoint(a.Prefixes, b.Prefixes)
		case a.Not && b.Not:
			return prefixesWithin(a.Prefixes, b.Prefixes)
		}
		return false
	}
	return within(b.Ranges, a.Ranges)
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

// index finds a covering rule without comparing all pairs: a rule can only be covered by one whose
// every condition is on a field that it also asks about, so the candidates are grouped by
// their set of fields.
type index struct {
	groups []*group
}

// group holds the deciding rules that ask about the same fields.
type group struct {
	fields  uint32
	members []int // into the kept rules
}

func fieldsOf(r *Rule) (set uint32) {
	for i := range r.Conds {
		set |= 1 << r.Conds[i].Field
	}
	return set
}

func (x *index) add(r *Rule, at int) {
	f := fieldsOf(r)
	for _, g := range x.groups {
		if g.fields == f {
			g.members = append(g.members, at)
			return
		}
	}
	x.groups = append(x.groups, &group{f, []int{at}})
}

func (x *index) cover(r *Rule, kept []Rule) (slot int, ok bool) {
	f := fieldsOf(r)
	best := -1
	for _, g := range x.groups {
		if g.fields&^f != 0 {
			continue
		}
		for _, at := range g.members {
			if (best < 0 || at < best) && covers(&kept[at], r) {
				best = at
				break
			}
		}
	}
	if best < 0 {
		return 0, false
	}
	return kept[best].Slot, true
}
