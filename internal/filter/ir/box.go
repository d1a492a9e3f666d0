package ir

import (
	"net/netip"
	"slices"
	"sort"

	"levee/internal/lang/field"
	"levee/internal/lang/literal"
)

// box is all packets whose fields have any of these values.
type box struct {
	numbers [field.NumFields][]field.Range
	addrs   [2][]netip.Prefix // source, destination: sorted, disjoint
	public  bool              // from public sources
	group   bool              // to a group of machines
}

// meets says whether each condition by itself holds for some packets.
func (b *box) meets(conds []Cond, budget *int) bool {
	for i := range conds {
		c := &conds[i]
		*budget -= 1 + len(c.Pairs) + min(len(c.Prefixes), maxPrefixes)
		if c.Ranges != nil {
			if !slices.ContainsFunc(b.numbers[c.Field],
				func(r field.Range) bool { return overlap(r, c.Ranges) }) {
				return false
			}
		} else if c.Prefixes != nil && !c.Not && prefixesApart(b.addrs[sideOf(c)], c.Prefixes) {
			return false
		}
	}
	return true
}

// cut splits a box into the packets for which all conditions hold (nil if there are none) and boxes
// of the rest.
func (b *box) cut(conds []Cond) (part *box, rest []*box) {
	part = b
	for i := range conds {
		in, out := part.split(&conds[i])
		if in == nil {
			return nil, nil
		}
		if out != nil {
			rest = append(rest, out)
		}
		part = in
	}
	return part, rest
}

// split divides a box by a condition: in has the packets for which it holds, out the others. A side
// without packets is nil.
func (b *box) split(c *Cond) (in, out *box) {
	ranges := c.Ranges
	if compares[c.Field] == field.ByMask {
		ranges = flagRanges(c)
	}
	if compares[c.Field] == field.ByMask || ranges != nil {
		had := b.numbers[c.Field]
		held := field.Intersect(had, ranges)
		if held == nil {
			return nil, b
		}
		return b.number(c.Field, held), b.number(c.Field, field.Subtract(had, ranges))
	}
	side, listed := sideOf(c), c.Prefixes
	if c.Pairs != nil {
		listed = b.paired(c)
	}
	had := b.addrs[side]
	held, others := common, without
	if c.Not {
		held, others = others, held
	}
	addrs := held(had, listed)
	if addrs == nil {
		return nil, b
	}
	return b.address(side, addrs), b.address(side, others(had, listed))
}

// inBoxes reports whether a condition's field is a dimension of boxes.
func (c *Cond) inBoxes() bool {
	switch compares[c.Field] {
	case field.ByRange, field.ByMask, field.ByPrefix, field.ByPair:
		return true
	}
	return false
}

// sideOf returns the side of a box that a condition on addresses names.
func sideOf(c *Cond) int {
	if c.Field == field.DstAddr || c.Field == field.DstEndpoint {
		return 1
	}
	return 0
}

func (b *box) number(f field.Field, values []field.Range) *box {
	if len(values) == 0 {
		return nil
	}
	c := *b
	c.numbers[f] = values
	return &c
}

func (b *box) address(side int, values []netip.Prefix) *box {
	if len(values) == 0 {
		return nil
	}
	c := *b
	c.addrs[side] = values
	return &c
}

// paired lists the addresses of endpoints that have the port of the box, which has only one.
func (b *box) paired(c *Cond) (out []netip.Prefix) {
	for _, p := range c.Pairs {
		if len(field.Intersect(b.numbers[c.Number], []field.Range{p.Range})) > 0 {
			out = append(out, p.Prefix)
		}
	}
	return literal.MergePrefixes(out)
}

// around gives the elements of a sorted, disjoint list that lie in p, or the one around p.
func around(p netip.Prefix, list []netip.Prefix) (inside []netip.Prefix, covered bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].Addr().Compare(p.Addr()) >= 0 })
	if i > 0 && list[i-1].Contains(p.Addr()) {
		return nil, true
	}
	j := i + sort.Search(len(list)-i, func(k int) bool { return !p.Contains(list[i+k].Addr()) })
	if j > i && list[i].Addr() == p.Addr() && list[i].Bits() <= p.Bits() {
		return nil, true
	}
	return list[i:j], false
}

// overlap says whether a range has a value of a sorted, disjoint list.
func overlap(r field.Range, list []field.Range) bool {
	i := sort.Search(len(list), func(i int) bool { return list[i].Hi >= r.Lo })
	return i < len(list) && list[i].Lo <= r.Hi
}

// prefixesApart says whether two sorted, disjoint lists have no address in common.
func prefixesApart(a, b []netip.Prefix) bool {
	if len(b) < len(a) {
		a, b = b, a
	}
	return !slices.ContainsFunc(a, func(p netip.Prefix) bool {
		inside, covered := around(p, b)
		return covered || len(inside) > 0
	})
}

// common returns what two sorted, disjoint lists have in common, or the beginning of it.
func common(a, b []netip.Prefix) (out []netip.Prefix) {
	if len(b) < len(a) {
		a, b = b, a
	}
	for _, p := range a {
		inside, covered := around(p, b)
		if covered {
			inside = []netip.Prefix{p}
		}
		if out = append(out, inside...); len(out) >= maxPrefixes {
			return out[:maxPrefixes]
		}
	}
	return out
}

// without returns the first list less the second, or the beginning of it.
func without(a, b []netip.Prefix) (out []netip.Prefix) {
	for _, p := range a {
		out = exclude(p, b, out)
	}
	return out
}

// exclude appends what of p is not in the list.
func exclude(p netip.Prefix, list, out []netip.Prefix) []netip.Prefix {
	inside, covered := around(p, list)
	switch {
	case covered || len(out) >= maxPrefixes:
		return out
	case len(inside) == 0:
		return append(out, p)
	}
	low, high := halves(p)
	return exclude(high, inside, exclude(low, inside, out))
}

// halves of a prefix that is no single address.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	n := p.Bits()
	b := p.Addr().AsSlice()
	b[n/8] |= 0x80 >> (n % 8)
	addr, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), n+1), netip.PrefixFrom(addr, n+1)
}
