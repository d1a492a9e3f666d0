package match

import (
	"net/netip"
	"slices"
	"sort"

	"levee/internal/lang/field"
)

// Span is a range of values of one numeric field, inclusive at both ends.
type Span = field.Range

// Spans is a set of values: sorted, disjoint, not adjacent. nil, where a field may have one, means
// that nothing is asked of the field; the empty set that is not nil holds for no packet.
type Spans []Span

// Just is one value.
func Just(v uint64) Spans { return Spans{{Lo: v, Hi: v}} }

// Between returns the values from a to b.
func Between(a, b uint64) Spans { return Spans{{Lo: a, Hi: b}} }

// JoinSpans makes a set of ranges in any order.
func JoinSpans(in []Span) Spans { return append(Spans{}, field.Join(slices.Clone(in))...) }

// And returns what is in both.
func (s Spans) And(o Spans) Spans { return append(Spans{}, field.Intersect(s, o)...) }

// Not returns the complement within 0 to top.
func (s Spans) Not(top uint64) Spans {
	return append(Spans{}, field.Subtract(Between(0, top), s)...)
}

// Within tells whether all of s is in o.
func (s Spans) Within(o Spans) bool {
	i := 0
	for _, a := range s {
		for i < len(o) && o[i].Hi < a.Lo {
			i++
		}
		if i == len(o) || a.Lo < o[i].Lo || o[i].Hi < a.Hi {
			return false
		}
	}
	return true
}

// AddressSpan is a range of addresses of one family, inclusive at both ends.
type AddressSpan struct{ Lo, Hi netip.Addr }

// AddressSpans is a set of addresses: sorted, IPv4 before IPv6, disjoint, not adjacent.
type AddressSpans []AddressSpan

// PrefixSpan returns the addresses of a prefix.
func PrefixSpan(p netip.Prefix) AddressSpan {
	p = p.Masked()
	hi := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(hi)*8; bit++ {
		hi[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(hi)
	return AddressSpan{p.Addr(), a}
}

// JoinAddrs sorts spans and joins those that overlap or touch.
func JoinAddrs(in []AddressSpan) AddressSpans {
	in = slices.Clone(in)
	sort.Slice(in, func(i, j int) bool { return in[i].Lo.Less(in[j].Lo) })
	out := AddressSpans{}
	for _, s := range in {
		if n := len(out); n > 0 && s.Lo.BitLen() == out[n-1].Hi.BitLen() &&
			(!out[n-1].Hi.Less(s.Lo) || out[n-1].Hi.Next() == s.Lo) {
			if out[n-1].Hi.Less(s.Hi) {
				out[n-1].Hi = s.Hi
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// Innermost is the addresses of prefixes in a set, without those that are taken out of it: of the
// prefixes that have an address the longest decides.
func Innermost(in, out []AddressSpan) AddressSpans {
	if len(out) == 0 {
		return JoinAddrs(in)
	}
	type part struct {
		AddressSpan
		width int
		out   bool
	}
	var all []part
	for _, a := range in {
		all = append(all, part{a, width(a), false})
	}
	for _, a := range out {
		all = append(all, part{a, width(a), true})
	}
	slices.SortStableFunc(all, func(a, b part) int { return b.width - a.width })
	// Prefixes of one length do not overlap, so each length is one step.
	is := AddressSpans{}
	for i := 0; i < len(all); {
		var yes, no []AddressSpan
		for w := all[i].width; i < len(all) && all[i].width == w; i++ {
			if all[i].out {
				no = append(no, all[i].AddressSpan)
			} else {
				yes = append(yes, all[i].AddressSpan)
			}
		}
		is = JoinAddrs(append(is, yes...)).Minus(JoinAddrs(no))
	}
	return is
}

// width is the number of bits that differ within a range that is a prefix.
func width(a AddressSpan) int {
	lo, hi := a.Lo.AsSlice(), a.Hi.AsSlice()
	for i := range lo {
		if d := lo[i] ^ hi[i]; d != 0 {
			n := (len(lo) - i - 1) * 8
			for ; d != 0; d >>= 1 {
				n++
			}
			return n
		}
	}
	return 0
}

func (s AddressSpans) and(o AddressSpans) AddressSpans {
	if len(s) < len(o) {
		s, o = o, s
	}
	out := AddressSpans{}
	// few in many: look each up, so that chains behind large sets stay quick
	if len(o) <= len(s)/16 {
		for _, a := range o {
			for i := s.from(a.Lo); i < len(s) && !a.Hi.Less(s[i].Lo) &&
				s[i].Lo.BitLen() == a.Lo.BitLen(); i++ {
				out = append(out, AddressSpan{latest(a.Lo, s[i].Lo), earliest(a.Hi, s[i].Hi)})
			}
		}
		return out
	}
	for i, j := 0, 0; i < len(s) && j < len(o); {
		lo, hi := s[i].Lo, s[i].Hi
		if lo.Less(o[j].Lo) {
			lo = o[j].Lo
		}
		if o[j].Hi.Less(hi) {
			hi = o[j].Hi
		}
		if lo.BitLen() == hi.BitLen() && !hi.Less(lo) {
			out = append(out, AddressSpan{lo, hi})
		}
		if s[i].Hi.Less(o[j].Hi) {
			i++
		} else {
			j++
		}
	}
	return out
}

// from returns the first range that does not end before a.
func (s AddressSpans) from(a netip.Addr) int {
	return sort.Search(len(s), func(i int) bool { return !s[i].Hi.Less(a) })
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

// Within tells whether all of s is in o. Both are joined, so that each range lies in one of o.
func (s AddressSpans) Within(o AddressSpans) bool {
	for _, a := range s {
		if i := o.from(a.Lo); i == len(o) || a.Lo.Less(o[i].Lo) || o[i].Hi.Less(a.Hi) ||
			o[i].Hi.BitLen() != a.Lo.BitLen() {
			return false
		}
	}
	return true
}

// Minus returns what is in s and not in o.
func (s AddressSpans) Minus(o AddressSpans) AddressSpans {
	out := AddressSpans{}
	j := 0
	for _, a := range s {
		for j < len(o) && o[j].Hi.Less(a.Lo) {
			j++
		}
		lo, open := a.Lo, true
		for k := j; k < len(o) && open && !a.Hi.Less(o[k].Lo); k++ {
			if o[k].Lo.BitLen() != lo.BitLen() {
				break
			}
			if lo.Less(o[k].Lo) {
				out = append(out, AddressSpan{lo, o[k].Lo.Prev()})
			}
			if open = o[k].Hi.Less(a.Hi); open && !o[k].Hi.Less(lo) {
				lo = o[k].Hi.Next()
			}
		}
		if open {
			out = append(out, AddressSpan{lo, a.Hi})
		}
	}
	return out
}

// families tells which families have an address in the set.
func (s AddressSpans) families() (four, six bool) {
	if len(s) == 0 {
		return false, false
	}
	return s[0].Lo.Is4(), !s[len(s)-1].Lo.Is4()
}

// Mapped tells whether a range begins or ends with an IPv4-mapped address, which no policy has.
func (s AddressSpans) Mapped() bool {
	for _, a := range s {
		if a.Lo.Is4In6() || a.Hi.Is4In6() {
			return true
		}
	}
	return false
}

// String returns the range as an element of a policy: an address, a prefix or both ends.
func (a AddressSpan) String() string {
	if a.Lo == a.Hi {
		return a.Lo.String()
	}
	for bits := a.Lo.BitLen() - 1; bits >= 0; bits-- {
		p := netip.PrefixFrom(a.Lo, bits)
		if p.Masked().Addr() != a.Lo {
			break
		}
		if PrefixSpan(p).Hi == a.Hi {
			return p.String()
		}
	}
	return a.Lo.String() + "-" + a.Hi.String()
}
