package pf

import (
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
)

// This file has what pf does with destinations before its rules look at packets: the first rdr or
// no rdr that matches decides, and where no rdr does, the first binat (pf_get_translation of
// FreeBSD).

// translate reads rdr, no rdr and binat.
func (p *pf) translate(at importer.Origin, s pfStatement, under []match.Match) {
	word := s.tokens[0].text
	arrow := slices.IndexFunc(s.tokens, func(t pfToken) bool { return t.is("-") })
	for arrow >= 0 && arrow+1 < len(s.tokens) && !s.tokens[arrow+1].is(">") { // of a range
		next := slices.IndexFunc(s.tokens[arrow+1:], func(t pfToken) bool { return t.is("-") })
		if arrow += 1 + next; next < 0 {
			arrow = -1
		}
	}
	asks, to := s.tokens[1:], []pfToken(nil)
	if arrow > 0 && arrow+1 < len(s.tokens) {
		asks, to = s.tokens[1:arrow], s.tokens[arrow+2:]
	}
	pass := asks[0].is("pass")
	if pass || word == "no" {
		asks = asks[1:]
	}
	if word == "binat" {
		asks, to = turned(asks, to)
	}
	r := p.newRule(at, pfStatement{tokens: slices.Concat([]pfToken{{text: "pass"}}, asks)}, under)
	r.Rule.Verb, r.Rule.Label = importer.DoAccept, "pf:"+strconv.Itoa(at.Line)
	r.read()
	r.Rule.CheckFragment()
	target, port, ok := r.target(to)
	switch {
	case r.Rule.Absent || len(r.Rule.Alts) == 0:
		for _, m := range r.Rule.Remarks {
			p.out.Report.Add(m)
		}
		return
	case p.at != "" || len(r.Rule.Unknown) > 0 || len(to) == 0 && word != "no":
		p.unsaid = true
		p.asArrives(at, word+" changes the destination before pf's rules look at packets, and a "+
			"policy has no words for which packets: they are judged as they arrive", !pass)
		return
	case word == "no":
		r.Translated("no rdr", false, nil, nil)
	case pass:
		r.Remark(importer.Changed, word+" pass rewrites destinations before pf's rules look at "+
			"packets, and none of these does: they pass, as they arrive",
			"keep the rewriting where it is")
		if p.unsaid {
			r.Rule.Widen("a translation in front of it that is not carried over may be for some "+
				"of these packets, which pf's rules judge then", "write rules for those, in "+
				"front", r.Rule.Alts)
		}
		r.Translated(word, true, nil, nil)
	case !ok || word == "binat" && p.stays: // what stays as it is for rdr is looked at here
		r.Rule.Widen(word+" changes the destination before pf's rules look at packets, to one "+
			"that a policy cannot follow: they are judged as they arrive", translateHint,
			r.Rule.Alts)
		r.Translated(word, false, nil, nil)
	default:
		r.Translated(word, false, target, port)
	}
	if r.logs {
		r.Logged("log")
	}
	if word == "binat" {
		p.binat = append(p.binat, r.Rule)
	} else {
		if p.rdr = append(p.rdr, r.Rule); word == "rdr" {
			p.rdrs = len(p.rdr)
		}
	}
}

// matchTranslates tells whether a match rule changes destinations for the rules behind it, and says
// so.
func (p *pf) matchTranslates(at importer.Origin, s pfStatement, under []match.Match) bool {
	words := slices.DeleteFunc(slices.Clone(s.tokens), func(t pfToken) bool {
		return !t.is("rdr-to") && !t.is("binat-to") && !t.is("af-to")
	})
	r := p.newRule(at, s, under)
	r.read()
	if len(words) == 0 || r.out || r.Rule.Absent || len(r.Rule.Alts) == 0 {
		return false
	}
	p.asArrives(at, words[0].text+" of match changes destinations for the rules behind it, and a "+
		"policy sees what arrives: they are judged as they arrive", true)
	return true
}

// asArrives says of a translation, of packets that are not known here, that it is left out.
func (p *pf) asArrives(at importer.Origin, text string, widens bool) {
	m := at.Remark(importer.Changed, text, translateHint)
	m.Widens = widens
	p.out.Report.Add(m)
	f := &p.out.Report.Fates
	f.Given, f.Changed, f.Widened = f.Given+1, f.Changed+1, f.Widened+match.Int(widens)
}

const translateHint = "write rules with the addresses and ports before the rewriting"

// target reads what a destination becomes: one address, and a port or none. Its family narrows the
// rule, as pf has it.
func (r *pfRule) target(t []pfToken) (to *match.Set, port *match.Ports, ok bool) {
	if len(t) == 0 {
		return nil, nil, false
	}
	a, err := parsePFAddr(t[0].text)
	if err != nil || a.Lo != a.Hi {
		return nil, nil, false
	}
	family := match.Only6
	if a.Lo.Is4() {
		family = match.Only4
	}
	r.Both(match.Match{}.With(match.Ether, family))
	for i := 1; i < len(t); i++ {
		switch {
		case t[i].is("port") && i+1 < len(t):
			i++
			if port, ok = r.targetPort(t[i].text); !ok {
				return nil, nil, false
			}
		case t[i].is("static-port"), t[i].is("sticky-address"):
		default:
			return nil, nil, false
		}
	}
	return &match.Set{Addresses: match.AddressSpans{a}}, port, true
}

// targetPort reads what a port becomes: one, or one of a range, as far behind its first as the port
// of the packet behind the first that the rule is about (pf_get_translation).
func (r *pfRule) targetPort(text string) (*match.Ports, bool) {
	lo, hi, isRange := strings.Cut(text, ":")
	first, err := match.ParseSpansOf(match.ServicePorts(lo), ":", 0xffff)
	if err != nil {
		return nil, false
	}
	to := &match.Ports{Span: first[0]}
	if !isRange {
		return to, true
	}
	var asked match.Spans
	for i := range r.Rule.Alts {
		of := r.Rule.Alts[i].Fields[match.Port]
		if asked = of; len(of) != 1 || of[0] != r.Rule.Alts[0].Fields[match.Port][0] {
			return nil, false
		}
	}
	if len(asked) == 0 {
		return nil, false
	}
	to.Counts, to.Base = true, asked[0].Lo
	if hi == "*" {
		to.Hi = to.Lo + asked[0].Hi - asked[0].Lo
		return to, to.Hi <= 0xffff
	}
	last, err := match.ParseSpansOf(match.ServicePorts(hi), ":", 0xffff)
	if err != nil || last[0].Lo < to.Lo {
		return nil, false
	}
	to.Hi = last[0].Lo
	return to, true
}

// turned makes of what a binat asks of packets that leave, `from INNER to PEER -> OUTER`, what it
// asks of those that arrive: from PEER to OUTER, which becomes INNER.
func turned(asks, outer []pfToken) (_, inner []pfToken) {
	from := slices.IndexFunc(asks, func(t pfToken) bool { return t.is("from") })
	to := slices.IndexFunc(asks, func(t pfToken) bool { return t.is("to") })
	if from < 0 || to < from || len(outer) != 1 {
		return asks, nil
	}
	return slices.Concat(asks[:from], []pfToken{{text: "from"}}, asks[to+1:],
		[]pfToken{{text: "to"}}, outer), asks[from+1 : to]
}
