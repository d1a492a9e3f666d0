package match

import (
	"slices"
)

// Compatible tells whether one rule can ask for both: what is in a dynamic set is known only at run
// time, so it has no intersection with another.
func (m *Match) Compatible(o *Match) bool {
	ok := func(a, b Address) bool {
		return a.In == nil || b.In == nil || a.In == b.In || !a.In.Dynamic && !b.In.Dynamic
	}
	same := func(a, b *DynamicSet) bool { return a == nil || b == nil || a == b }
	return ok(m.From, o.From) && ok(m.To, o.To) && same(m.FromDyn, o.FromDyn) &&
		same(m.ToDyn, o.ToDyn)
}

// Within tells whether all packets of m are of o.
func (m *Match) Within(o Match) bool {
	if !m.mayBeWithin(&o) || !m.Compatible(&o) {
		return false
	}
	both := m.And(&o)
	return both.Never == m.Never && both.Equal(m)
}

// mayBeWithin is false where one field or address alone tells that packets of m are none of o. It
// keeps And from making lists of what large sets have in common.
func (m *Match) mayBeWithin(o *Match) bool {
	for f := range numFields {
		if o.Fields[f] != nil && (m.Fields[f] == nil || !m.Fields[f].Within(o.Fields[f])) {
			return false
		}
	}
	in := func(a, b *Set) bool { // what And makes of two sets has no name
		return b == nil || a != nil && (a == b || a.Dynamic || b.Dynamic ||
			a.Name == "" && a.Addresses.Within(b.Addresses))
	}
	return in(m.From.In, o.From.In) && in(m.To.In, o.To.In)
}

// ButNot returns what m holds for and o, which asks for more than m, does not. It is one match
// where they differ in one field that all packets of m have; else there is none.
func (m Match) ButNot(o *Match) (Match, bool) {
	field, differ := numFields, 0
	for f := range numFields {
		if (m.Fields[f] == nil) != (o.Fields[f] == nil) || !slices.Equal(m.Fields[f], o.Fields[f]) {
			field = f
			differ++
		}
	}
	flags := (m.Flags == nil) != (o.Flags == nil) || m.Flags != nil && *m.Flags != *o.Flags ||
		!slices.Equal(m.NotFlags, o.NotFlags) || !slices.Equal(m.Finds, o.Finds) ||
		!slices.Equal(m.Services, o.Services)
	from, to := !m.From.equal(o.From), !m.To.equal(o.To)
	isIP := m.Fields[Ether] != nil && m.Fields[Ether].Within(BothIP)
	switch {
	case flags || from && to || o.Never || m.FromDyn != o.FromDyn || m.ToDyn != o.ToDyn:
		return m, false
	case from || to:
		a, b := &m.From, o.From
		if to {
			a, b = &m.To, o.To
		}
		// that addresses are of one family is no condition besides
		if differ > 1 || differ == 1 && (field != Ether || b.In == nil || b.In.Dynamic ||
			!slices.EqualFunc(a.Not, b.Not, (*Set).same) || !b.In.implies(o.Fields[Ether])) {
			return m, false
		}
		if !isIP || !a.butNot(b) {
			return m, false
		}
	case differ != 1:
		return m, false
	default:
		switch field {
		case Ether, Len, Sent:
		case Proto, TTL, DSCP:
			if !isIP {
				return m, false
			}
		case VLAN:
			left := m.With(field, o.Fields[field].Not(Top[field])).Fields[field]
			if len(left) > 0 && left[0].Lo == Untagged && !slices.Equal(left, Just(Untagged)) {
				return m, false
			}
		case Known:
			if !m.HasTransport() || !m.Fields[Proto].Within(NoTracked) {
				return m, false
			}
		case FromPort, Port:
			if !m.HasTransport() {
				return m, false
			}
		default:
			return m, false
		}
		m = m.With(field, o.Fields[field].Not(Top[field]))
	}
	m = m.Settle()
	return m, m.Terms() <= MaxTerms/2
}

// Or returns the packets of both, if one match says so: where one holds for all packets of the
// other, or where they differ in the values of one field.
func (m Match) Or(o *Match) (Match, bool) {
	if m.Within(*o) {
		return *o, true
	}
	if o.Within(m) {
		return m, true
	}
	for f := range numFields {
		if m.Fields[f] == nil || o.Fields[f] == nil || slices.Equal(m.Fields[f], o.Fields[f]) {
			continue
		}
		both := JoinSpans(slices.Concat(m.Fields[f], o.Fields[f]))
		if len(both.Not(Top[f])) == 0 {
			return m, false
		}
		m.Fields[f], m.Name[f] = both, ""
		other := *o
		other.Fields[f], other.Name[f] = both, ""
		return m, m.Equal(&other)
	}
	return m, false
}

// Minus are the packets of m that are none of o, as matches that share none. It tells whether
// fields and addresses alone say which those are.
func (m Match) Minus(o *Match) (out []Match, ok bool) {
	if m.Never || o.Never {
		return []Match{m}, true
	}
	if o.Flags != nil || len(o.NotFlags)+len(o.Finds)+len(o.Services) > 0 || o.FromDyn != nil ||
		o.ToDyn != nil || !m.Compatible(o) {
		return nil, false
	}
	for f := range numFields {
		if o.Fields[f] == nil {
			continue
		}
		both := m.With(f, o.Fields[f]).Settle()
		switch f {
		case ICMP, ICMP6, FromPort, Port: // m is of their protocols by now
			if !m.HasTransport() {
				out = append(out, m.With(Fragment, Just(Later)).Settle())
			}
			out = append(out, m.With(f, o.Fields[f].Not(Top[f])).Settle())
		case Fragment:
			out = append(out, m.With(f, o.Fields[f].Not(Top[f])).Settle())
		default:
			rest, ok := m.without(&both)
			if !ok {
				return nil, false
			}
			out = append(out, rest...)
		}
		if m = both; m.Never {
			break
		}
	}
	for _, a := range []Match{{From: o.From}, {To: o.To}} {
		if m.Never {
			break
		}
		both := m.And(&a)
		rest, ok := m.without(&both)
		if !ok {
			return nil, false
		}
		out, m = append(out, rest...), both
	}
	return slices.DeleteFunc(out, func(m Match) bool { return m.Never }), true
}

// without are the packets of m that are none of part, which is m with one term more.
func (m Match) without(part *Match) (out []Match, ok bool) {
	if part.Never {
		return []Match{m}, true
	}
	if rest, ok := m.ButNot(part); ok {
		return []Match{rest}, true
	}
	return nil, part.Equal(&m)
}

// implies tells whether the addresses are of the families of e, all of them.
func (s *Set) implies(e Spans) bool {
	four, six := s.Addresses.families()
	return four && !six && slices.Equal(e, Only4) || six && !four && slices.Equal(e, Only6)
}

// butNot takes b, which asks for more, out of a. It tells whether that can be said.
func (a *Address) butNot(b Address) bool {
	switch {
	case slices.EqualFunc(a.Not, b.Not, (*Set).same) && b.In != nil:
		a.Not = without(a.Not, b.In)
		return true
	case len(b.Not) == len(a.Not)+1 && (a.In == nil) == (b.In == nil) &&
		(a.In == nil || a.In.same(b.In)) &&
		slices.EqualFunc(a.Not, b.Not[:len(a.Not)], (*Set).same):
		n := b.Not[len(a.Not)]
		if a.In != nil && (a.In.Dynamic || n.Dynamic) {
			return false
		}
		*a = a.And(Address{In: n})
		return true
	}
	return false
}

// Equal tells whether two settled matches are the same conditions.
func (m *Match) Equal(o *Match) bool {
	for f := range numFields {
		if (m.Fields[f] == nil) != (o.Fields[f] == nil) || !slices.Equal(m.Fields[f], o.Fields[f]) {
			return false
		}
	}
	if (m.Flags == nil) != (o.Flags == nil) || m.Flags != nil && *m.Flags != *o.Flags {
		return false
	}
	if m.FromDyn != o.FromDyn || m.ToDyn != o.ToDyn {
		return false
	}
	return m.From.equal(o.From) && m.To.equal(o.To) && slices.Equal(m.NotFlags, o.NotFlags) &&
		slices.Equal(m.Finds, o.Finds) && slices.Equal(m.Services, o.Services)
}

func (a Address) equal(o Address) bool {
	if (a.In == nil) != (o.In == nil) || a.In != nil && !a.In.same(o.In) {
		return false
	}
	return slices.EqualFunc(a.Not, o.Not, (*Set).same)
}

// Settled settles each match.
func Settled(in []Match) (out []Match) {
	for _, m := range in {
		out = append(out, m.Settle())
	}
	return out
}
