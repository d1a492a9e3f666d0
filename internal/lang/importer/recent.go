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
// time. It exists if a rule beside it puts the same packets into the list, and no rule takes
// addresses out of it. Where other rules use the list, too, more may pass.
func (s *SeenLately) rate(c *Chain, n int) *Rate {
	of := slices.DeleteFunc(slices.Clone(s.Rules[s.Name]),
		func(r *ChainRule) bool { return !r.Seen.Sets && r.idle() })
	if s.Hits < 2 || slices.ContainsFunc(s.Rules[s.Name],
		func(r *ChainRule) bool { return r.Seen.Odd }) {
		return nil
	}
	at := slices.IndexFunc(c.Rules, func(r *ChainRule) bool { return s.sets(r, c.Rules[n]) })
	if at < 0 || slices.ContainsFunc(c.Rules[min(at, n)+1:max(at, n)],
		func(r *ChainRule) bool { return !r.idle() }) {
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
	if len(of) > 2 {
		l.More = append(l.More, Reason{"counts what other rules put into the list, too; here " +
			"each rule has a limit of its own", ""})
	}
	return l
}

// sets tells whether a rule puts the packets of another into the list that this one asks for.
func (s *SeenLately) sets(r, other *ChainRule) bool {
	same := func(a, b []match.Match) bool {
		return slices.EqualFunc(a, b, func(a, b match.Match) bool { return a.Equal(&b) })
	}
	return r.Seen != nil && r.Seen.Sets && r.Seen.Name == s.Name && r.Seen.Mask == s.Mask &&
		r.Seen.By == s.By && r.Limit == NoLimit && len(r.Unknown) == 0 &&
		(same(r.Alts, other.Alts) || same(r.Alts, other.opens))
}
