package ir

import "slices"

// sameConds reports whether two matches ask the same questions in the same order.
func sameConds(a, b []Cond) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].same(&b[i]) {
			return false
		}
	}
	return true
}

// same compares questions.
func (c *Cond) same(d *Cond) bool {
	return c.Field == d.Field && c.Not == d.Not && c.Number == d.Number && c.Proto == d.Proto &&
		c.Set == d.Set &&
		c.Mask == d.Mask && c.Value == d.Value && slices.Equal(c.Ranges, d.Ranges) &&
		c.List == d.List && c.Bytes.Equal(d.Bytes) && c.Inner == d.Inner &&
		c.Pattern == d.Pattern && c.Unknown == d.Unknown && c.Names == d.Names
}
