package region

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/filter/ir"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// isSender says whether a field is known of who sends what leaves. What the kernel itself sends,
// and what is forwarded, has the value of those that lack it.
func isSender(f field.Field) bool {
	return f.Info().Kernel == field.Leaving && f != field.Local
}

// senderFields are such fields that rules name by numbers and by names.
var senderFields = [...]field.Field{field.UID, field.GID, field.User, field.Group, field.Service,
	field.Container}

// named returns the names of all policies, each once.
func named(of []*policy.Policy) (all policy.Senders) {
	for _, p := range of {
		for _, f := range senderFields {
			list := all.Of(f)
			if list == nil {
				continue
			}
			for _, name := range *p.Senders.Of(f) {
				if !slices.Contains(*list, name) {
					*list = append(*list, name)
				}
			}
		}
	}
	return all
}

// renamed returns the values of a field for the names of the space where they stood for those of
// the policy that asks. Whom it does not name is nobody to it.
func (s *space) renamed(f field.Field, values []field.Range) []field.Range {
	list := s.whom.Of(f)
	if list == nil {
		return values
	}
	has := func(v uint64) bool {
		return slices.ContainsFunc(values,
			func(r field.Range) bool { return r.Lo <= v && v <= r.Hi })
	}
	own := *s.asks.Of(f)
	var out []field.Range
	for v := range f.Info().Max + 1 {
		at := 0
		if name := s.whom.Name(f, v); name != "" {
			at = slices.Index(own, name) + 1
		}
		if has(uint64(at)) {
			out = append(out, field.Range{Lo: v, Hi: v})
		}
	}
	if absent := f.Info().Absent; has(absent) {
		out = append(out, single(absent)...)
	}
	return field.Join(out)
}

// forwarded notes that what is forwarded has no sender.
func (s *space) forwarded() {
	local, ok := s.index[sideKey{about: ofNumber, field: field.Local}]
	for _, f := range senderFields {
		if of, asked := s.index[sideKey{about: ofNumber, field: f}]; ok && asked {
			s.senderless = append(s.senderless, &rule{wants: []want{{local, single(0)},
				{of, field.Subtract(s.sides[of].domain, single(f.Info().Absent))}}})
		}
	}
}

// knownTogether are senders of which the kernel tells both or neither: the numbers of users and
// groups with the names of these, and the unit with the container, both by the cgroup.
var knownTogether = [...][2]field.Field{{field.UID, field.User}, {field.GID, field.Group},
	{field.Service, field.Container}}

// together notes that nothing is known of one of them where nothing is of the other.
func (s *space) together() {
	for _, pair := range knownTogether {
		a, ok := s.index[sideKey{about: ofNumber, field: pair[0]}]
		b, asked := s.index[sideKey{about: ofNumber, field: pair[1]}]
		if !ok || !asked {
			continue
		}
		noA, noB := single(pair[0].Info().Absent), single(pair[1].Info().Absent)
		s.impossible = append(s.impossible,
			&rule{wants: []want{{a, noA}, {b, field.Subtract(s.sides[b].domain, noB)}}},
			&rule{wants: []want{{b, noB}, {a, field.Subtract(s.sides[a].domain, noA)}}})
	}
}

// answering notes which packets that leave answer the other side by what they are, and which never
// do.
func (s *space) answering(known int) {
	never := func(side int, value uint64, values []field.Range) {
		s.byForm = append(s.byForm,
			&rule{wants: []want{{known, single(value)}, {side, values}}})
	}
	switch s.class.Transport {
	case ir.ICMP:
		f, answers := field.ICMPType, answers4
		if s.class.Family == ir.IPv6 {
			f, answers = field.ICMP6Type, answers6
		}
		side := s.number(f)
		never(side, 1, field.Subtract(s.class.Domain(f), answers))
		never(side, 0, answers)
	case ir.TCP:
		const both = packet.SYN | packet.ACK
		side := s.number(field.TCPFlags)
		never(side, 1, masked(both|packet.RST, packet.SYN, false))
		never(side, 0, field.Join(append(masked(packet.RST, packet.RST, false),
			masked(both, both, false)...)))
	}
}

// senderWords are values of such a field in words.
func (s *space) senderWords(f field.Field, values []field.Range) string {
	some := field.Subtract(values, single(f.Info().Absent))
	none := !slices.Equal(some, values)
	if len(some) == 0 {
		return f.Word() + " none"
	}
	text := s.nameWords(f, some)
	if s.whom.Of(f) == nil {
		text = strings.TrimPrefix((&ir.Cond{Field: f, Ranges: some}).String(), f.Word()+" ")
	}
	if none {
		text = "none or " + text
	}
	return f.Word() + " " + text
}

// nameWords returns the names that values stand for, or those that they do not.
func (s *space) nameWords(f field.Field, values []field.Range) string {
	var in, out []string
	if list := s.whom.Of(f); list != nil {
		for i, name := range *list {
			v := uint64(i + 1)
			if slices.ContainsFunc(values,
				func(r field.Range) bool { return r.Lo <= v && v <= r.Hi }) {
				in = append(in, fmt.Sprintf("%q", name))
			} else {
				out = append(out, fmt.Sprintf("%q", name))
			}
		}
	}
	list := func(names []string) string {
		if len(names) == 1 {
			return names[0]
		}
		return "{ " + strings.Join(names, ", ") + " }"
	}
	switch {
	case values[0].Lo > 0:
		return list(in)
	case len(out) == 0:
		return "any"
	}
	return "not " + list(out)
}

// sender returns the words for who sends the packet, as far as the box asks for it. A packet that
// names nobody is of this machine, and of nobody that rules name.
func (p *point) sender() (out []string) {
	nobody := false
	for _, f := range senderFields {
		absent := f.Info().Absent
		v, asked := p.number(f, absent)
		switch name := p.whom.Name(f, v); {
		case !asked || v == absent:
		case name != "":
			out = append(out, fmt.Sprintf("%s %q", f.Word(), name))
		case p.whom.Of(f) != nil:
			nobody = true
		default:
			out = append(out, fmt.Sprintf("%s %d", f.Word(), v))
		}
	}
	local, asked := p.number(field.Local, 1)
	switch {
	case asked && local == 0:
		return []string{"forwarded"}
	case len(out) == 0 && (asked || nobody):
		return []string{"local"}
	}
	return out
}
