package pf

import (
	"slices"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// pfLeaving is a rule of pf that is about what leaves, too.
type pfLeaving struct {
	at    importer.Origin
	s     pfStatement
	under []match.Match
	only  bool // about what leaves alone
}

// leaving returns pf's rules for what leaves that need no states: block rules (`quick`) in front of
// all that pass and with a destination address or port. Without these a rule would cut answers to
// clients that pf let in by their state. Packets that no rule matches pass.
func (p *pf) leaving(side *importer.Output) ([]*importer.Chain, error) {
	if p.skips {
		return nil, nil
	}
	out := *p
	out.out, out.leaves, out.first, out.last, out.outs, out.own = side, true, nil, nil, nil, nil
	var rules []*importer.ChainRule
	for _, l := range p.outs {
		n := len(out.first)
		if out.rule(l.at, l.s, l.under); n == len(out.first) {
			continue
		}
		r := out.first[n]
		if r.Verb != importer.DoDrop {
			break
		}
		if p.states && slices.ContainsFunc(r.Alts, func(m match.Match) bool {
			return m.To.In == nil && m.Fields[match.Port] == nil
		}) {
			continue
		}
		if rules = append(rules, r); l.only {
			p.carried++
		}
	}
	if out.tellOwn(); len(rules) == 0 {
		return nil, nil
	}
	return []*importer.Chain{{Name: "pf", Base: true,
		Family: match.Match{}.With(match.Ether, match.BothIP),
		Origin: importer.Origin{File: p.reader.name}, Rules: rules}}, nil
}
