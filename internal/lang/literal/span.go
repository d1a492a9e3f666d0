package literal

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// span is a range of addresses, lo to hi of one family, with the service of an endpoint; without
// one the zero value. A list keeps ranges as they are written until all are known: a range of IPv6
// becomes up to 254 prefixes, and of many that overlap most would be thrown away again.
type span struct {
	lo, hi  netip.Addr
	service policy.Service
}

// parseSpan reads a range of addresses; ok is false where the text is none.
func parseSpan(text string) (s span, ok bool, p diag.Problem) {
	lo, hi, ok := strings.Cut(text, "-")
	if !ok {
		return span{}, false, diag.Problem{}
	}
	a, p := Address(lo)
	if p.Found() {
		return span{}, true, rangeProblem(lo, hi, p)
	}
	b, p := Address(hi)
	if p.Found() {
		return span{}, true, rangeProblem(lo, hi, p)
	}
	switch {
	case a.Is4() != b.Is4():
		p = diag.Problemf("write two ends of one family.", "the range %s mixes IPv4 and IPv6",
			diag.Clip(text))
	case b.Less(a):
		p = diag.Problemf(diag.DidYouMean(hi+"-"+lo), "the range %s ends before it begins",
			diag.Clip(text))
	}
	return span{lo: a, hi: b}, true, p
}

// parseEndpointSpan reads an endpoint whose addresses are a range; ok is false where they are none.
func parseEndpointSpan(text string) (s span, ok bool, p diag.Problem) {
	where, what, _ := strings.Cut(text, " ")
	if s, ok, p = parseSpan(where); ok && !p.Found() {
		s.service, p = parseProtocolOrService(what)
	}
	return s, ok, p
}

// joinSpans sorts ranges by service and address and joins those that overlap or touch, in place.
func joinSpans(all []span) []span {
	slices.SortFunc(all, func(a, b span) int {
		return cmp.Or(a.service.Compare(b.service), a.lo.Compare(b.lo))
	})
	out := all[:0]
	for _, s := range all {
		if n := len(out); n > 0 && out[n-1].joins(s) {
			if out[n-1].hi.Less(s.hi) {
				out[n-1].hi = s.hi
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// joins tells whether a range t that does not begin before s overlaps or touches it.
func (s span) joins(t span) bool {
	if s.service != t.service || s.lo.Is4() != t.lo.Is4() {
		return false
	}
	next := s.hi.Next() // not valid behind the last address: then s has all that follow
	return !next.IsValid() || !next.Less(t.lo)
}

// joinPorts joins the ports of ranges with the same ends and protocol, in place.
func joinPorts(all []span) []span {
	slices.SortFunc(all, func(a, b span) int {
		return cmp.Or(a.lo.Compare(b.lo), a.hi.Compare(b.hi),
			a.service.Compare(b.service))
	})
	out := all[:0]
	for _, s := range all {
		if n := len(out); n > 0 && out[n-1].lo == s.lo && out[n-1].hi == s.hi &&
			out[n-1].service.Joins(s.service) {
			out[n-1].service.Hi = max(out[n-1].service.Hi, s.service.Hi)
			continue
		}
		out = append(out, s)
	}
	return out
}

// spread makes prefixes of the ranges and of what else the list has, once those that overlap are
// one: sorted, and none within another of its service. It returns how many there are; above
// MaxElements it makes none.
func (l *Elements) spread() int {
	for _, p := range l.Prefixes {
		l.spans = append(l.spans, span{lo: p.Addr(), hi: lastAddr(p)})
	}
	for _, e := range l.Endpoints {
		l.spans = append(l.spans, span{e.Prefix.Addr(), lastAddr(e.Prefix), e.Service})
	}
	all := joinSpans(l.spans)
	addresses := len(all) > 0 && all[0].service == (policy.Service{})
	if !addresses {
		all = joinSpans(joinPorts(all))
	}
	l.Prefixes, l.Endpoints, l.spans = l.Prefixes[:0], l.Endpoints[:0], l.spans[:0]
	n, few := 0, []netip.Prefix(nil)
	for _, s := range all {
		few = appendRange(few[:0], s.lo, s.hi)
		n += len(few)
	}
	if n > MaxElements {
		return n
	}
	if addresses {
		l.Prefixes = slices.Grow(l.Prefixes, n)
	} else {
		l.Endpoints = slices.Grow(l.Endpoints, n)
	}
	for _, s := range all {
		if addresses {
			l.Prefixes = appendRange(l.Prefixes, s.lo, s.hi)
			continue
		}
		few = appendRange(few[:0], s.lo, s.hi)
		for _, p := range few {
			l.Endpoints = append(l.Endpoints, policy.Element{Prefix: p, Service: s.service})
		}
	}
	return n
}
