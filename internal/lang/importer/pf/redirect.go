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
// FreeBSD). A match rule with rdr-to does it before the rules behind it look.

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
// so. It is an rdr where the rules in front of it judge its packets alike before and after.
func (p *pf) matchTranslates(at importer.Origin, s pfStatement, under []match.Match) bool {
	word := slices.IndexFunc(s.tokens, func(t pfToken) bool {
		return t.is("rdr-to") || t.is("binat-to") || t.is("af-to")
	})
	if word < 0 {
		return false
	}
	r := p.newRule(at, pfStatement{tokens: s.tokens[:word]}, under)
	r.Rule.Verb, r.Rule.Label = importer.DoAccept, "pf:"+strconv.Itoa(at.Line)
	r.read()
	r.Rule.CheckFragment()
	if r.out || r.Rule.Absent || len(r.Rule.Alts) == 0 {
		return false
	}
	before := slices.Clone(r.Rule.Alts)
	target, port, ok := r.target(s.tokens[word+1:])
	text := s.tokens[word].text + " of match changes destinations for the rules behind it, and a " +
		"policy sees what arrives: they are judged as they arrive"
	others, clear := p.meetsMatch(before)
	m := matchRule{arrive: before}
	switch {
	case p.at != "" || len(r.Rule.Unknown) > 0:
		p.asArrives(at, text, true)
		p.matched = append(p.matched, m)
		return true
	case !ok || !s.tokens[word].is("rdr-to") || p.looksBefore(before) || !clear:
		r.Rule.Widen(text, translateHint, append(others, before...))
		target, port = nil, nil
	default:
		m.become = becoming(r.Rule.Alts, target, port)
	}
	r.Translated(s.tokens[word].text, false, target, port)
	if r.logs {
		r.Logged("log")
	}
	p.matched = append(p.matched, m)
	p.rdr = append(p.rdr, r.Rule)
	p.rdrs = len(p.rdr)
	return true
}

// matchRule has the packets of a match rule with rdr-to, as they arrive, and as what it makes of
// them where that is followed.
type matchRule struct{ arrive, become []match.Match }

// becoming returns what packets are with another address and port, nil for the port that they have.
func becoming(of []match.Match, target *match.Set, port *match.Ports) (out []match.Match) {
	for _, m := range of {
		to, ports := match.Match{To: match.Address{In: target}}, m.Fields[match.Port]
		if port != nil {
			ports = match.Between(port.Lo, port.Hi)
		}
		if ports != nil {
			to = to.With(match.Port, ports)
		}
		m = withoutDestination(m)
		out = append(out, m.And(&to))
	}
	return out
}

// withoutDestination returns a match that does not ask for the destination.
func withoutDestination(m match.Match) match.Match {
	m.To, m.ToDyn, m.Fields[match.Port] = match.Address{}, nil, nil
	return m
}

// looksBefore tells whether a rule that was read asks some of the packets for their destination.
func (p *pf) looksBefore(of []match.Match) bool {
	for _, r := range slices.Concat(p.first, p.last) {
		for _, m := range r.Alts {
			free := withoutDestination(m)
			if !m.Equal(&free) && slices.ContainsFunc(of, func(o match.Match) bool {
				return importer.Meet(free, o)
			}) {
				return true
			}
		}
	}
	return false
}

// meetsMatch tells whether no translation in front is about some of the packets, as they arrive or
// as what it makes of others, and returns those of the match rules that are.
func (p *pf) meetsMatch(of []match.Match) (others []match.Match, clear bool) {
	clear = !p.stays && !p.mixed
	for _, m := range p.matched {
		if slices.ContainsFunc(slices.Concat(m.arrive, m.become), func(m match.Match) bool {
			return slices.ContainsFunc(of, func(o match.Match) bool { return importer.Meet(m, o) })
		}) {
			others, clear = append(others, m.arrive...), false
		}
	}
	return others, clear
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

// target reads what a destination becomes: an address, or one of a list, a network or a table, and
// a port or none. Its family narrows the rule, as pf has it.
func (r *pfRule) target(t []pfToken) (to *match.Set, port *match.Ports, ok bool) {
	of := pfRule{t: t}
	to = &match.Set{}
	for _, item := range of.list() {
		if len(item) == 3 && item[0].is("<") {
			held := r.p.set(item[1].text)
			if held.Dynamic {
				return nil, nil, false
			}
			to.Addresses = append(to.Addresses, held.Addresses...)
			continue
		}
		a, err := parsePFAddr(item[0].text)
		if err != nil || len(item) != 1 {
			return nil, nil, false
		}
		to.Addresses = append(to.Addresses, a)
	}
	if to.Addresses = match.JoinAddrs(to.Addresses); len(to.Addresses) == 0 {
		return nil, nil, false
	}
	family, in := match.Only6, to.Addresses
	if in[0].Lo.Is4() {
		family = match.Only4
	}
	away := in.Minus(match.Loopback) // the others are pf's `self`
	if in[0].Lo.Is4() != in[len(in)-1].Lo.Is4() || len(away) > 0 && len(in.Minus(away)) > 0 {
		return nil, nil, false
	}
	r.Both(match.Match{}.With(match.Ether, family))
	for len(of.t) > 0 {
		switch t := of.next(); t.text {
		case "port":
			if port, ok = r.targetPort(of.next().text); !ok {
				return nil, nil, false
			}
		case "static-port", "sticky-address", "round-robin", "random", "bitmask", "least-states":
		default:
			return nil, nil, false
		}
	}
	return to, port, true
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
