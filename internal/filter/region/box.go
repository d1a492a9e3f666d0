package region

import (
	"sort"

	"levee/internal/lang/field"
)

// box is all packets of a space whose sides have any of these values: sorted, disjoint. A side that
// is nil has all of its domain; what is behind the end of the list is nil.
type box [][]field.Range

// values of a side of the box.
func (s *space) values(b box, side int) []field.Range {
	if side < len(b) && b[side] != nil {
		return b[side]
	}
	return s.sides[side].domain
}

// with returns the box with other values of a side.
func (s *space) with(b box, side int, values []field.Range) box {
	out := make(box, len(s.sides))
	copy(out, b)
	out[side] = values
	return out
}

// relation says whether something holds for all of a box, a part of it, or none.
type relation uint8

const (
	none relation = iota
	some
	all
)

// relate says for how much of a list of values another one holds.
func relate(had, values []field.Range) relation {
	if len(had) <= 4 && len(values) > 16 { // a look-up in a long list for each
		held := some
		for i, r := range had {
			k := sort.Search(len(values), func(k int) bool { return values[k].Hi >= r.Lo })
			now := some
			switch {
			case k == len(values) || values[k].Lo > r.Hi:
				now = none
			case values[k].Lo <= r.Lo && r.Hi <= values[k].Hi:
				now = all
			}
			if i > 0 && now != held {
				return some
			}
			held = now
		}
		return held
	}
	var met, missed bool
	k := 0
	for _, r := range had {
		for k < len(values) && values[k].Hi < r.Lo {
			k++
		}
		if k == len(values) || values[k].Lo > r.Hi {
			missed = true
		} else {
			met = true
			missed = missed || values[k].Lo > r.Lo || values[k].Hi < r.Hi
		}
		if met && missed {
			return some
		}
	}
	if met {
		return all
	}
	return none
}

// relateWants says for how much of a box all wants hold. The second result is the first that holds
// for some of it only.
func (s *space) relateWants(b box, wants []want) (relation, *want) {
	rel := all
	var partial *want
	for i := range wants {
		w := &wants[i]
		switch relate(s.values(b, w.side), w.values) {
		case none:
			return none, nil
		case some:
			if rel = some; partial == nil {
				partial = w
			}
		}
	}
	return rel, partial
}

// relateUnion is relateWants of a union. It may say some where the parts together hold for all;
// what is left after cuts by the want tells.
func (s *space) relateUnion(b box, u *union) (relation, *want) {
	rel := none
	var partial *want
	for _, p := range u.parts {
		switch r, w := s.relateWants(b, p); r {
		case all:
			return u.turned(all), nil
		case some:
			if rel = some; partial == nil {
				partial = w
			}
		}
	}
	return u.turned(rel), partial
}

// turned returns a relation of the parts as one of the union.
func (u *union) turned(r relation) relation {
	if u.not {
		return all - r
	}
	return r
}

// relateRule is relateWants of a rule.
func (s *space) relateRule(b box, r *rule) (relation, *want) {
	rel, partial := s.relateWants(b, r.wants)
	for i := range r.unions {
		if rel == none {
			return none, nil
		}
		part, w := s.relateUnion(b, &r.unions[i])
		if part < rel {
			rel = part
		}
		if partial == nil {
			partial = w
		}
	}
	return rel, partial
}

// cut parts the packets of a box for which a want holds from the others. There are some of each.
func (s *space) cut(b box, w *want) (in, out box) {
	had := s.values(b, w.side)
	return s.with(b, w.side, field.Intersect(had, w.values)),
		s.with(b, w.side, field.Subtract(had, w.values))
}

// within returns the part of a box for which wants hold; false if there is none.
func (s *space) within(b box, wants []want) (box, bool) {
	out := make(box, len(s.sides))
	copy(out, b)
	for _, w := range wants {
		values := field.Intersect(s.values(out, w.side), w.values)
		if len(values) == 0 {
			return nil, false
		}
		out[w.side] = values
	}
	return out, true
}

// carve parts the packets of a box that a rule matches from the others, in boxes.
func (s *space) carve(b box, r *rule, in, out []box) (inside, outside []box) {
	switch rel, w := s.relateRule(b, r); rel {
	case none:
		return in, append(out, b)
	case all:
		return append(in, b), out
	default:
		yes, no := s.cut(b, w)
		in, out = s.carve(yes, r, in, out)
		return s.carve(no, r, in, out)
	}
}

// search looks for packets of a box that no rule of a list matches.
type search struct {
	*space
	left int // steps that it may still take
}

// find returns a part of a box for all packets of which the unions hold, and that no rule matches;
// false if there is none, or if no step is left.
func (s *search) find(b box, unions []union, rules []*rule) (box, bool) {
	if s.left--; s.left < 0 {
		return nil, false
	}
	for i := range unions {
		switch rel, w := s.relateUnion(b, &unions[i]); rel {
		case none:
			return nil, false
		case some:
			in, out := s.cut(b, w)
			if unions[i].not {
				in, out = out, in
			}
			if found, ok := s.find(in, unions[i:], rules); ok {
				return found, true
			}
			return s.find(out, unions[i:], rules)
		}
	}
	var kept []*rule
	var next *want
	fewest := 1 << 30
	for _, r := range rules {
		switch rel, w := s.relateRule(b, r); rel {
		case all:
			return nil, false
		case some:
			kept = append(kept, r)
			if n := s.partial(b, r); n < fewest {
				fewest, next = n, w
			}
		}
	}
	if len(kept) == 0 {
		return b, true
	}
	in, out := s.cut(b, next)
	if found, ok := s.find(out, nil, kept); ok {
		return found, true
	}
	return s.find(in, nil, kept)
}

// partial counts what of a rule holds for some of a box only: of a rule with one, all packets
// outside of that are none of its.
func (s *space) partial(b box, r *rule) (n int) {
	for i := range r.wants {
		if relate(s.values(b, r.wants[i].side), r.wants[i].values) == some {
			n++
		}
	}
	return n + len(r.unions)
}
