package ir

import "slices"

// conditions keeps, by slot and family, what a rule asked in the last class in which it can match. Most rules ask the
// same in many classes, and share the questions then: 29 lists of 100,000 rules take the memory of a few, and are soon
// found to be the same.
type conditions [3][][]Cond

func newConditions(slots int) *conditions {
	var k conditions
	for f := range k {
		k[f] = make([][]Cond, slots)
	}
	return &k
}

// share gives rules the questions that they asked in a class before, where these are the same.
func (k *conditions) share(rules []Rule, f Family) {
	for i := range rules {
		r := &rules[i]
		if before := k[f][r.Slot]; len(before) > 0 && SameConds(before, r.Conds) {
			r.Conds = before
		} else {
			k[f][r.Slot] = r.Conds
		}
	}
}

// SameConds reports whether two rules ask the same questions in the same order.
func SameConds(a, b []Cond) bool {
	if len(a) != len(b) {
		return false
	}
	if len(a) == 0 || &a[0] == &b[0] {
		return true
	}
	for i := range a {
		if !a[i].same(&b[i]) {
			return false
		}
	}
	return true
}

// same compares questions. Lists of prefixes and endpoints are compared by where they are: a set's are there once.
func (c *Cond) same(d *Cond) bool {
	return c.Field == d.Field && c.Not == d.Not && c.Number == d.Number && c.Proto == d.Proto && c.Set == d.Set &&
		c.Mask == d.Mask && c.Value == d.Value && slices.Equal(c.Ranges, d.Ranges) &&
		sameList(c.Prefixes, d.Prefixes) && sameList(c.Pairs, d.Pairs)
}

func sameList[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
