package importer

import (
	"slices"

	"levee/internal/lang/importer/match"
)

// SeenLately holds the options of -m recent.
type SeenLately struct {
	Sets, Asks, Not bool // puts an address there; asks for one; for one that is not there
	Hits, Seconds   uint64
	By, Mask        string
	Odd             bool   // a limit does not say the rest
	Name            string // with its family
	Rules           map[string][]*ChainRule
}

// rate returns the limit nearest to rule n of a chain, which drops a source above some packets in a
// time. It exists if one other rule alone uses the list's name, and puts all of its packets there.
func (s *SeenLately) rate(c *Chain, n int) *Rate {
	of := slices.DeleteFunc(slices.Clone(s.Rules[s.Name]),
		func(r *ChainRule) bool { return !r.Seen.Sets && r.idle() })
	if s.Odd || s.Hits < 2 || len(of) != 2 {
		return nil
	}
	set := of[0]
	if set == c.Rules[n] {
		set = of[1]
	}
	same := func(a, b []match.Match) bool {
		return slices.EqualFunc(a, b, func(a, b match.Match) bool { return a.Equal(&b) })
	}
	at := slices.Index(c.Rules, set)
	if at < 0 || !set.Seen.Sets || set.Seen.Odd || set.Seen.Mask != s.Mask ||
		set.Seen.By != s.By || set.Limit != NoLimit || len(set.Unknown) > 0 ||
		!same(set.Alts, c.Rules[n].Alts) && !same(set.Alts, c.Rules[n].opens) ||
		slices.ContainsFunc(c.Rules[min(at, n)+1:max(at, n)], func(r *ChainRule) bool {
			return !r.idle()
		}) {
		return nil
	}
	pass := s.Hits
	if at < n { // the packet itself is among those that came
		pass--
	}
	l := WindowRate(pass, s.Seconds)
	if l == nil {
		return nil
	}
	l.By, l.Mask = []string{s.By}, s.Mask
	return l
}
