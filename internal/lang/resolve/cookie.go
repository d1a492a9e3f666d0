package resolve

import (
	"slices"
	"time"

	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/lang/scope"
)

// maxCookies is the largest number of cookies that a policy may have.
const maxCookies = 16

// cookie resolves what stands behind the match of a cookie.
func (r *resolver) cookie(s *ast.Rule, rule *policy.Rule) {
	rule.Cookie = &policy.Cookie{Answers: s.Answers}
	if r.cookies++; r.cookies == maxCookies+1 {
		r.c.Errorf(s.Pos, "answer for all services with one rule.",
			"a policy has at most %d cookies", maxCookies)
	}
	rule.Cookie.Above = r.above(s)
}

// above resolves the rate from which on a rule acts, 0 if it says none.
func (r *resolver) above(s *ast.Rule) uint64 {
	if s.Above == nil {
		return 0
	}
	const example = "write packets a second, as in 500/s, 10kpps or 1Mpps."
	var l policy.Limit
	switch p := l.SetRate(s.Above.Text); {
	case p.Message != "":
		p.Hint = example
		r.problem(s.Above.Pos, p)
	case l.Rate.Bits || l.Rate.Per != time.Second:
		r.c.Errorf(s.Above.Pos, example, "a %s counts packets a second, not %s", s.Action,
			diag.Clip(s.Above.Text))
	}
	return l.Rate.Amount
}

// connectionFields lists the fields that a client's SYN shares with all that it sends on, also with
// the RST by which it proves to a cookie that it is there. A rule about another field would see a
// part.
var connectionFields = map[field.Field]bool{
	field.SrcAddr: true, field.DstAddr: true, field.SrcPort: true, field.DstPort: true,
	field.SrcService: true, field.DstService: true, field.SrcEndpoint: true,
	field.DstEndpoint: true, field.SrcSuffix: true, field.DstSuffix: true, field.Proto: true,
	field.EtherType: true, field.VLAN: true, field.InnerVLAN: true, field.Tags: true,
	field.SrcMAC: true, field.DstMAC: true,
}

// connectionTerms allows the fields that all packets of a client's TCP connection have in common.
func (r *resolver) connectionTerms(s *ast.Rule, all []resolvedTerm, of *action.Connection) {
	so := scope.Everything
	for i := range all {
		t := &all[i]
		so = so.With(r.scopeOf(&t.term))
		if !connectionFields[t.term.Field] {
			why := of.Why
			if t.term.Field.OfMessage() {
				why = "a cookie for queries has dns in front of its match: cookie dns udp " +
					"port 53 dns type ANY."
			}
			r.c.Errorf(t.src.Pos, why, "%s cannot look at %s", of.Who,
				t.term.Field.Info().Name)
		}
	}
	if so.Ether&^scope.IP != 0 || so.Protocols != scope.Protocols(6) {
		r.c.Errorf(s.Pos, of.Example, "%s is for TCP only", of.Who)
	}
}

// overUDP says that a cookie for queries is for UDP.
func (r *resolver) overUDP(s *ast.Rule, all []resolvedTerm) {
	so := scope.Everything
	for i := range all {
		so = so.With(r.scopeOf(&all[i].term))
	}
	if so.Ether&^scope.IP != 0 || so.Protocols != scope.Protocols(17) {
		of := s.Answers.Info()
		r.c.Errorf(s.Pos, "write: "+of.Example+".", "a cookie for %s is for UDP only", of.Name)
	}
}

// queries adds terms for what a cookie for queries answers: what else there is goes on to other
// rules.
func (r *resolver) queries(s *ast.Rule, match []policy.Term) []policy.Term {
	switch s.Answers {
	case action.DNSQueries:
		return r.dnsQueries(s, match)
	case action.A2SQueries:
		return r.a2sQueries(s, match)
	}
	return match
}

// a2sQueries adds terms for queries of an unproven flow: INFO, PLAYER and RULES, the types 0x54 to
// 0x56. They have four bytes behind the type, so that an answer is not longer than they are.
func (r *resolver) a2sQueries(s *ast.Rule, match []policy.Term) []policy.Term {
	at := r.pos(s.Pos)
	return append(match,
		policy.Term{Field: field.ProvenFlow, Not: true, Ranges: []field.Range{{Lo: 1, Hi: 1}},
			Pos: at},
		policy.Term{Field: field.Payload, Pos: at, Bytes: &policy.Bytes{
			Value: []byte{0xff, 0xff, 0xff, 0xff, 0x54, 0, 0, 0, 0},
			Mask:  []byte{0xff, 0xff, 0xff, 0xff, 0xfc, 0, 0, 0, 0}}},
		policy.Term{Field: field.Payload, Not: true, Pos: at, Bytes: &policy.Bytes{At: 4,
			Value: []byte{0x57}, Mask: []byte{0xff}}})
}

// dnsQueries adds terms for well-formed queries with a question.
func (r *resolver) dnsQueries(s *ast.Rule, match []policy.Term) []policy.Term {
	at, is := r.pos(s.Pos), []field.Range{{Lo: 1, Hi: 1}}
	out := append(match, policy.Term{Field: field.DNSQuery, Ranges: is, Pos: at},
		policy.Term{Field: field.DNSOpcode, Ranges: []field.Range{{}}, Pos: at},
		policy.Term{Field: field.DNSMalformed, Not: true, Ranges: is, Pos: at})
	if slices.ContainsFunc(match, func(t policy.Term) bool {
		return t.Field == field.DNSName || t.Field == field.DNSType // which ask for a question
	}) {
		return out
	}
	every := []field.Range{{Hi: field.DNSType.Info().Max}}
	return append(out, policy.Term{Field: field.DNSType, Ranges: every, Pos: at})
}
