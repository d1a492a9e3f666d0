package syntax

import (
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/field"
)

// dnsRule shows what a rule can ask of a DNS message.
const dnsRule = "write: dns name \"example.com\", dns name in SET, dns type, dns opcode, " +
	"dns query, dns response, dns edns-size or dns malformed; for the port write: port 53."

// isDNS tells whether a row is about DNS messages. Its words mean something behind dns only, and
// sets may have such names.
func isDNS(ph *field.Phrase) bool { return strings.HasPrefix(ph.Word, "dns ") }

// isDNSWord are dns and what stands behind it.
var isDNSWord = wordSet(strings.Join(phraseWords(isDNS), " "))

// dnsFields are the phrases that may follow `dns`, except a name.
var dnsFields = func() map[string]*field.Phrase {
	m := map[string]*field.Phrase{}
	for i := range field.Phrases {
		ph := &field.Phrases[i]
		if isDNS(ph) && ph.Form != field.FormName {
			m[strings.TrimPrefix(ph.Word, "dns ")] = ph
		}
	}
	return m
}()

// dns parses what follows dns, which begins a term and may be the name of a set elsewhere.
func (p *parser) dns(t *ast.Term) bool {
	p.advance()
	return p.message(t)
}

// message parses what stands behind dns.
func (p *parser) message(t *ast.Term) bool {
	if p.accept("name") {
		t.Kind, t.Field = ast.DNSName, field.DNSName
		return p.dnsName(t)
	}
	ph := dnsFields[p.tok.text]
	if p.tok.kind != tWord || ph == nil {
		return p.fail(dnsRule, "expected what a DNS message has after \"dns\"")
	}
	t.Kind, t.Field = ast.KindsOf(ph)[0], ph.Field
	p.advance()
	return t.Kind == ast.Alone || p.value(t, ph.Word, ph.What, true)
}

// dnsName parses a name in quotes, or behind in a list of them or a set.
func (p *parser) dnsName(t *ast.Term) bool {
	if p.accept("in") {
		return p.named(t, true, "in", "the name of a set or a list",
			"write: dns name in SET, or dns name in { \"example.com\" }.")
	}
	return p.named(t, false, "dns name", "a name",
		"write the name in quotes: dns name \"example.com\", or: dns name in SET.")
}

// named parses what stands behind a word: a text in quotes, or a bare one where there may be one,
// or a list of them. What and hint are for what is neither.
func (p *parser) named(t *ast.Term, bare bool, word, what, hint string) bool {
	v := p.values.One()
	v.Pos = p.tok.pos
	t.Value = v
	switch {
	case p.tok.kind == tLBrace:
		ok := p.braces(v)
		if ok && len(v.Elems) == 0 {
			p.errs.Errorf(v.Pos, "name what should match, or leave the term out.",
				"this list is empty and would never match")
			return false
		}
		return ok
	case p.tok.kind == tString, bare && p.tok.kind == tWord && p.tok.class&keyword == 0:
		e := p.elems.Take(1)
		e[0] = ast.Elem{Text: p.tok.text, Pos: p.tok.pos}
		if p.tok.kind == tString {
			e[0].Text = ast.Quoted(ast.Word{Text: p.tok.text})
		}
		v.Elems = e
		p.advance()
		v.Pos = v.Pos.To(p.last.pos)
		return true
	}
	return p.fail(hint, "expected %s after %s", what, quote(word))
}

// NameIn is such an element without them.
func NameIn(element string) string {
	return strings.TrimSuffix(strings.TrimPrefix(element, `"`), `"`)
}
