package importer

import "levee/internal/lang/importer/match"

// Ports says which destination port nat gives to packets: the one that they have where it is of
// the range, else the first of it (nf_nat_l4proto_unique_tuple of the kernel; a port that another
// connection of the same client has is passed over).
type Ports struct {
	match.Span
	Any    bool // any of the range
	Counts bool // the port lies as far behind the first of the range as that of the packet behind
	Base   uint64
}

// maxPortParts is how many parts a translation of ports may have.
const maxPortParts = 64

// portPart is ports for which a translation does the same.
type portPart struct {
	of, as match.Spans // those of packets as they arrive, and what they become
	shift  uint64      // as is of and this, modulo 65536, unless it is one port or any
	one    bool
	any    bool
}

// parts takes the ports of packets apart by what becomes of them. It fails where there are too many
// parts.
func (p *Ports) parts(in match.Spans) (out []portPart, ok bool) {
	if in == nil {
		in = match.Between(0, 0xffff)
	}
	is, size := match.Spans{p.Span}, p.Hi-p.Lo+1
	switch {
	case size == 1:
		return []portPart{{of: in, as: is, one: true}}, true
	case p.Any:
		return []portPart{{of: in, as: is, any: true}}, true
	case !p.Counts:
		for _, part := range [...]portPart{
			{of: in.And(is), as: in.And(is)},
			{of: in.And(is.Not(0xffff)), as: match.Just(p.Lo), one: true},
		} {
			if len(part.of) > 0 {
				out = append(out, part)
			}
		}
		return out, true
	}
	for _, s := range in {
		for lo := s.Lo; lo <= s.Hi; {
			behind := (lo - p.Base) & 0xffff % size
			hi := min(s.Hi, lo+size-1-behind)
			if lo < p.Base {
				hi = min(hi, p.Base-1) // what is behind the base begins anew
			}
			to := p.Lo + behind
			out = append(out, portPart{of: match.Between(lo, hi),
				as: match.Between(to, to+hi-lo), shift: (to - lo) & 0xffff})
			if lo = hi + 1; len(out) > maxPortParts {
				return nil, false
			}
		}
	}
	return out, true
}

// arrived returns the ports that packets arrived with, of those that they became. It fails where
// nobody can tell which.
func (p *portPart) arrived(became match.Spans) (match.Spans, bool) {
	if p.one {
		return p.of, true
	}
	if p.any {
		return p.of, match.Spans(p.as).Within(became)
	}
	out := match.Spans{}
	for _, s := range became {
		out = append(out, match.Span{Lo: (s.Lo - p.shift) & 0xffff, Hi: (s.Hi - p.shift) & 0xffff})
	}
	return out, true
}
