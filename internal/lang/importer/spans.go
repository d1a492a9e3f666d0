package importer

import (
	"net/netip"
	"slices"
	"sort"

	"levee/internal/lang/field"
)

// span is a range of values of one numeric field, inclusive at both ends.
type span = field.Range

// spans is a set of values: sorted, disjoint, not adjacent. nil, where a field may have one, means
// that nothing is asked of the field; the empty set that is not nil holds for no packet.
type spans []span

func just(v uint64) spans       { return spans{{Lo: v, Hi: v}} }
func between(a, b uint64) spans { return spans{{Lo: a, Hi: b}} }

// joinSpans makes a set of ranges in any order.
func joinSpans(in []span) spans { return append(spans{}, field.Join(slices.Clone(in))...) }

func (s spans) and(o spans) spans { return append(spans{}, field.Intersect(s, o)...) }

// not is the complement within 0 to top.
func (s spans) not(top uint64) spans {
	return append(spans{}, field.Subtract(between(0, top), s)...)
}

func (s spans) within(o spans) bool { return slices.Equal(s.and(o), s) }

// addrSpan is a range of addresses of one family, inclusive at both ends.
type addrSpan struct{ lo, hi netip.Addr }

// addrSpans is a set of addresses: sorted, IPv4 before IPv6, disjoint, not adjacent.
type addrSpans []addrSpan

func prefixSpan(p netip.Prefix) addrSpan {
	p = p.Masked()
	hi := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(hi)*8; bit++ {
		hi[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(hi)
	return addrSpan{p.Addr(), a}
}

func joinAddrs(in []addrSpan) addrSpans {
	in = slices.Clone(in)
	sort.Slice(in, func(i, j int) bool { return in[i].lo.Less(in[j].lo) })
	out := addrSpans{}
	for _, s := range in {
		if n := len(out); n > 0 && s.lo.BitLen() == out[n-1].hi.BitLen() &&
			(!out[n-1].hi.Less(s.lo) || out[n-1].hi.Next() == s.lo) {
			if out[n-1].hi.Less(s.hi) {
				out[n-1].hi = s.hi
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

func (s addrSpans) and(o addrSpans) addrSpans {
	if len(s) < len(o) {
		s, o = o, s
	}
	out := addrSpans{}
	// few in many: look each up, so that chains behind large sets stay quick
	if len(o) <= len(s)/16 {
		for _, a := range o {
			for i := s.from(a.lo); i < len(s) && !a.hi.Less(s[i].lo) &&
				s[i].lo.BitLen() == a.lo.BitLen(); i++ {
				out = append(out, addrSpan{latest(a.lo, s[i].lo), earliest(a.hi, s[i].hi)})
			}
		}
		return out
	}
	for i, j := 0, 0; i < len(s) && j < len(o); {
		lo, hi := s[i].lo, s[i].hi
		if lo.Less(o[j].lo) {
			lo = o[j].lo
		}
		if o[j].hi.Less(hi) {
			hi = o[j].hi
		}
		if lo.BitLen() == hi.BitLen() && !hi.Less(lo) {
			out = append(out, addrSpan{lo, hi})
		}
		if s[i].hi.Less(o[j].hi) {
			i++
		} else {
			j++
		}
	}
	return out
}

// from is the first range that does not end before a.
func (s addrSpans) from(a netip.Addr) int {
	return sort.Search(len(s), func(i int) bool { return !s[i].hi.Less(a) })
}

func latest(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

func earliest(a, b netip.Addr) netip.Addr {
	if b.Less(a) {
		return b
	}
	return a
}

// within tells whether all of s is in o. Both are joined, so that each range lies in one of o.
func (s addrSpans) within(o addrSpans) bool {
	for _, a := range s {
		if i := o.from(a.lo); i == len(o) || a.lo.Less(o[i].lo) || o[i].hi.Less(a.hi) ||
			o[i].hi.BitLen() != a.lo.BitLen() {
			return false
		}
	}
	return true
}

// minus is what is in s and not in o.
func (s addrSpans) minus(o addrSpans) addrSpans {
	out := addrSpans{}
	j := 0
	for _, a := range s {
		for j < len(o) && o[j].hi.Less(a.lo) {
			j++
		}
		lo, open := a.lo, true
		for k := j; k < len(o) && open && !a.hi.Less(o[k].lo); k++ {
			if o[k].lo.BitLen() != lo.BitLen() {
				break
			}
			if lo.Less(o[k].lo) {
				out = append(out, addrSpan{lo, o[k].lo.Prev()})
			}
			if open = o[k].hi.Less(a.hi); open && !o[k].hi.Less(lo) {
				lo = o[k].hi.Next()
			}
		}
		if open {
			out = append(out, addrSpan{lo, a.hi})
		}
	}
	return out
}

// families tells which families have an address in the set.
func (s addrSpans) families() (four, six bool) {
	if len(s) == 0 {
		return false, false
	}
	return s[0].lo.Is4(), !s[len(s)-1].lo.Is4()
}

// mapped tells whether a range begins or ends with an IPv4-mapped address, which no policy has.
func (s addrSpans) mapped() bool {
	for _, a := range s {
		if a.lo.Is4In6() || a.hi.Is4In6() {
			return true
		}
	}
	return false
}

// String is the range as an element of a policy: an address, a prefix or both ends.
func (a addrSpan) String() string {
	if a.lo == a.hi {
		return a.lo.String()
	}
	for bits := a.lo.BitLen() - 1; bits >= 0; bits-- {
		p := netip.PrefixFrom(a.lo, bits)
		if p.Masked().Addr() != a.lo {
			break
		}
		if prefixSpan(p).hi == a.hi {
			return p.String()
		}
	}
	return a.lo.String() + "-" + a.hi.String()
}
