package ir

import "slices"

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
