package signature

import (
	"cmp"
	"math"
	"slices"

	"levee/internal/lang/field"
)

const (
	// beam is the number of unfinished rules that are followed at a time, by each of two orders.
	beam = 10
	// deep is the largest number of terms that a rule needs to tell the flood apart.
	deep = 5
	// perTerm, perDecade and perGood weigh rules against each other, in logarithms of what they
	// drop: a further term must bring 2 % more; to hold for a tenth of what rules can ask for is
	// worth 15 %, up to decadesWanted times, so that two narrow rules are better than one that is
	// wide; and the share of good packets counts five times.
	perTerm, perDecade, perGood = 0.02, 0.15, 5
	decadesWanted               = 8
	// unserved is the share of good packets that a rule may hold for without its service.
	unserved = 0.1
	// answers is the number of finished rules that are kept, for those that turn out to be refused.
	answers = 12
)

// rule is terms that all have to hold, with the packets that meet them.
type rule struct {
	terms       []*term
	flood, good set
	hits, harm  int // packets that are left of the flood, and good ones not dropped yet
	value       float64
	key         string
}

// search looks for rules on the views of both samples.
type search struct {
	terms     []*term
	left      set // of the flood: packets that no rule drops yet
	spared    set // of the good traffic: the same
	n, good   int // packets of the flood in the view, left or not, and of good traffic
	least     int // packets that a rule has to drop
	allowance int // good packets that it may drop
}

// rules returns the best that stay within the limits, the best first: a beam over conjunctions. The
// address that a flood goes to is no part of them: a rule that needs it to spare good traffic would
// only finish what the flood began.
func (s *search) rules() []*rule {
	var found []*rule
	front := []*rule{{flood: s.left, good: s.spared, hits: s.left.count(), harm: s.spared.count()}}
	for range deep {
		var next []*rule
		seen := map[string]bool{}
		for _, r := range front {
			for _, t := range s.terms {
				if t.field == field.DstAddr || t.spares {
					continue
				}
				if w := s.with(r, t); w != nil && !seen[w.key] {
					seen[w.key] = true
					next = append(next, w)
				}
			}
		}
		for _, r := range next {
			if r.harm <= s.allowance && r.ofProtocol() && s.telling(r) {
				found = append(found, r)
			}
		}
		front = s.best(next)
		found = bestAnswers(found)
		if len(front) == 0 {
			break
		}
	}
	for _, r := range found {
		s.fill(r)
	}
	return found
}

// with returns a rule with a term more; nil if that is no other rule, or one of too few packets.
func (s *search) with(r *rule, t *term) *rule {
	for _, u := range r.terms {
		if t.conflicts(u) {
			return nil
		}
	}
	hits := both(r.flood, t.holds[0])
	if hits < s.least {
		return nil
	}
	harm := both(r.good, t.holds[1])
	w := &rule{terms: append(slices.Clone(r.terms), t), hits: hits, harm: harm}
	slices.SortFunc(w.terms, func(a, b *term) int { return cmp.Compare(a.text, b.text) })
	w.value = math.Log(float64(hits) / float64(s.n))
	if s.good > 0 {
		w.value -= perGood * float64(harm) / float64(s.good)
	}
	decades := 0.0
	for _, t := range w.terms {
		w.value -= perTerm * t.cost
		if t.width <= fewest { // a wide range loses packets for nothing
			decades -= math.Log10(t.width)
		}
		w.key += t.text + "\n"
	}
	w.value += perDecade * min(decades, decadesWanted)
	if hits == r.hits && harm == r.harm && w.value <= r.value && len(r.terms) > 0 {
		return nil
	}
	return w
}

// fill makes the sets of packets that meet a rule.
func (s *search) fill(r *rule) {
	r.flood, r.good = s.left, s.spared
	for _, t := range r.terms {
		r.flood, r.good = and(r.flood, t.holds[0]), and(r.good, t.holds[1])
	}
}

// best returns the unfinished rules to go on with, by two orders: what they tell apart, and how
// near they are to the limit.
func (s *search) best(rs []*rule) []*rule {
	apart := func(r *rule) float64 {
		return float64(r.hits)/float64(s.n) - float64(r.harm)/float64(max(s.good, 1)) -
			perTerm/5*float64(len(r.terms))
	}
	near := func(r *rule) float64 {
		over := (float64(r.harm) + 0.5) / (float64(s.allowance) + 0.5)
		return math.Log(float64(r.hits)/float64(s.n)) - 0.3*math.Log(max(over, 1))
	}
	var out []*rule
	for _, by := range []func(*rule) float64{apart, near} {
		slices.SortStableFunc(rs, func(a, b *rule) int {
			return cmp.Or(cmp.Compare(by(b), by(a)), cmp.Compare(a.key, b.key))
		})
		for _, r := range rs[:min(beam, len(rs))] {
			if !slices.Contains(out, r) {
				s.fill(r)
				out = append(out, r)
			}
		}
	}
	return out
}

// bestAnswers keeps the best, and of those that drop as many packets of both only one: mostly these
// are the same packets.
func bestAnswers(rs []*rule) []*rule {
	slices.SortStableFunc(rs, func(a, b *rule) int {
		return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.key, b.key))
	})
	type effect struct{ hits, harm int }
	var out []*rule
	seen := map[effect]bool{}
	for _, r := range rs {
		if e := (effect{r.hits, r.harm}); !seen[e] && len(out) < answers {
			seen[e] = true
			out = append(out, r)
		}
	}
	return out
}

const (
	// kept is the share of a rule's packets that a term has to hold for to narrow the rule.
	kept = 0.998
	// further is the number of terms that narrow a rule which tells the flood apart already.
	further = 3
)

// narrow adds terms that hold for nearly all that a rule drops and for few good packets, so that it
// drops less of the good traffic that is in no sample. Without good traffic to compare with it adds
// all that name a small part of what the field can hold.
func (s *search) narrow(r *rule, most int, blind bool) *rule {
	var strongest []*term
	for _, t := range s.terms {
		family := t.field == field.EtherType // which addresses and protocols say too
		if t.not || family || !t.strange ||
			float64(both(r.flood, t.holds[0])) < kept*float64(r.hits) {
			continue
		}
		strongest = append(strongest, t)
	}
	slices.SortStableFunc(strongest, func(a, b *term) int {
		return cmp.Or(cmp.Compare(a.share, b.share), cmp.Compare(a.width, b.width))
	})
	for _, t := range s.terms { // a protocol belongs to ports and flags
		if t.field == field.Proto && float64(both(r.flood, t.holds[0])) >= kept*float64(r.hits) {
			if w := s.joined(r, t); w != nil {
				r = w
			}
		}
	}
	until := min(most, len(r.terms)+further)
	if blind {
		until = most
	}
	for _, t := range strongest {
		if len(r.terms) >= until {
			break
		}
		if w := s.joined(r, t); w != nil {
			r = w
		}
	}
	return r.withoutDouble()
}

// sparing returns a rule with a term that spares answers of DHCP servers; nil where it has no room
// for one.
func (s *search) sparing(r *rule) *rule {
	for _, t := range s.terms {
		if t.spares {
			if w := s.joined(r, t); w != nil {
				return w
			}
		}
	}
	return nil
}

// withoutDouble leaves out the protocol where a type of ICMP says it.
func (r *rule) withoutDouble() *rule {
	if !r.asks(field.ICMPType, field.ICMP6Type) {
		return r
	}
	w := *r
	w.terms = slices.DeleteFunc(slices.Clone(r.terms), func(t *term) bool {
		return t.field == field.Proto
	})
	return &w
}

// telling says whether a rule asks for something that the sender of a flood has chosen, and would
// spare most good packets without its condition on the flooded service.
func (s *search) telling(r *rule) bool {
	good, chosen := full(s.good), false
	for _, t := range r.terms {
		switch t.field {
		case field.DstAddr, field.DstPort:
			continue
		case field.Proto, field.EtherType, field.TCPFlags:
		default:
			chosen = chosen || !t.not && t.strange
		}
		good = and(good, t.holds[1])
	}
	return chosen && float64(good.count()) <= unserved*float64(s.good)
}

// ofProtocol says whether a rule is about one protocol: what several have in common is no pattern
// of one flood, and takes what is essential too.
func (r *rule) ofProtocol() bool {
	return slices.ContainsFunc(r.terms, func(t *term) bool {
		return t.field == field.Proto || len(t.field.Info().Header.Presence().Protos) == 1
	})
}

// asks says whether a rule has a term about one of some fields.
func (r *rule) asks(fields ...field.Field) bool {
	return slices.ContainsFunc(r.terms, func(t *term) bool {
		return slices.Contains(fields, t.field)
	})
}

// joined returns a rule with a term more that narrows it, where the language lets both stand
// together.
func (s *search) joined(r *rule, t *term) *rule {
	for _, u := range r.terms {
		if t.field == u.field {
			return nil
		}
	}
	w := *r
	w.terms = append(slices.Clone(r.terms), t)
	w.flood, w.good = and(r.flood, t.holds[0]), and(r.good, t.holds[1])
	if w.hits, w.harm = w.flood.count(), w.good.count(); w.hits < s.least {
		return nil
	}
	return &w
}

// text returns the rule without its label.
func (r *rule) text() string {
	out := "drop"
	for _, t := range r.terms {
		out += " " + t.text
	}
	return out
}
