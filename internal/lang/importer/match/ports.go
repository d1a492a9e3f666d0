package match

// Ports says which destination port nat gives to packets: the one that they have where it is of
// the range, else the first of it (nf_nat_l4proto_unique_tuple of the kernel; a port that another
// connection of the same client has is passed over).
type Ports struct {
	Span
	Any    bool // any of the range
	Counts bool // the port lies as far behind the first of the range as that of the packet behind
	Base   uint64
}

// maxPortParts is how many parts a translation of ports may have.
const maxPortParts = 64

// PortPart is ports for which a translation does the same.
type PortPart struct {
	Of, As Spans  // those of packets as they arrive, and what they become
	shift  uint64 // As is Of and this, modulo 65536, unless it is one port or any
	One    bool
	any    bool
}

// Parts takes the ports of packets apart by what becomes of them. It fails where there are too many
// parts.
func (p *Ports) Parts(in Spans) (out []PortPart, ok bool) {
	if in == nil {
		in = Between(0, 0xffff)
	}
	is, size := Spans{p.Span}, p.Hi-p.Lo+1
	switch {
	case size == 1:
		return []PortPart{{Of: in, As: is, One: true}}, true
	case p.Any:
		return []PortPart{{Of: in, As: is, any: true}}, true
	case !p.Counts:
		for _, part := range [...]PortPart{
			{Of: in.And(is), As: in.And(is)},
			{Of: in.And(is.Not(0xffff)), As: Just(p.Lo), One: true},
		} {
			if len(part.Of) > 0 {
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
			out = append(out, PortPart{Of: Between(lo, hi),
				As: Between(to, to+hi-lo), shift: (to - lo) & 0xffff})
			if lo = hi + 1; len(out) > maxPortParts {
				return nil, false
			}
		}
	}
	return out, true
}

// Arrived returns the ports that packets arrived with, of those that they became. It fails where
// nobody can tell which.
func (p *PortPart) Arrived(became Spans) (Spans, bool) {
	if p.One {
		return p.Of, true
	}
	if p.any {
		return p.Of, Spans(p.As).Within(became)
	}
	out := Spans{}
	for _, s := range became {
		out = append(out, Span{Lo: (s.Lo - p.shift) & 0xffff, Hi: (s.Hi - p.shift) & 0xffff})
	}
	return out, true
}
