package syntax

import (
	"levee/internal/lang/action"
	"levee/internal/lang/ast"
)

// behind are the words that end the match of a rule, by its action.
var behind = func() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, info := range action.Table() {
		if info.Behind != "" {
			all[info.Word] = wordSet(info.Behind)
		}
	}
	return all
}()

const (
	greylistForm = "write: greylist udp port 51820 not proven flow after 100ms within 10s."
	sampleForm   = "write how many of the packets: sample 1/100."
	aboveForm    = "write up to how many packets a second the rule does nothing: above 10kpps."
)

// tail parses the words with one value that stand behind a match.
func (p *parser) tail(r *ast.Rule) bool {
	for _, part := range []struct {
		word, what, form string
		must             bool
		to               **ast.Word
	}{
		{"sample", "a value", sampleForm, false, &r.Sample},
		{"after", "a time", greylistForm, true, &r.After},
		{"within", "a time", greylistForm, true, &r.Within},
		{"above", "a value", aboveForm, false, &r.Above},
	} {
		ends := behind[r.Action]
		switch {
		case !ends[part.word] || !part.must && !p.is(part.word):
			continue
		case !p.accept(part.word):
			return p.fail(part.form, "expected %q and %s", part.word, part.what)
		case p.tok.kind != tWord || p.is("as") || ends[p.tok.text]:
			return p.fail(part.form, "expected %s after %q", part.what, part.word)
		}
		w := p.word()
		*part.to = &w
	}
	return true
}

// ruleStmt parses what begins with the word of an action.
func (p *parser) ruleStmt(base ast.Common) (ast.Stmt, bool) {
	r := &ast.Rule{Common: base, Action: p.tok.text}
	p.advance()
	match := p.match[:0]
	ends := behind[r.Action]
	if r.Action == action.Track.String() && !p.accept("track") {
		return nil, p.fail("write: fragments track, or a rule as in: drop fragments.",
			"expected \"track\" after \"fragments\"")
	}
	if r.Action == action.Cookie.String() {
		t, ok := p.answers(r)
		if !ok {
			return nil, false
		}
		match = append(match, t...)
	}
	redirects := r.Action == action.Redirect.String()
	for !p.atEnd() && !p.is("as") && !(p.tok.kind == tWord && ends[p.tok.text]) &&
		!(redirects && p.ringAhead()) {
		t, ok := p.term()
		if !ok || p.tooMany(len(match), t.Pos) {
			return nil, false
		}
		if t.Kind != noTerm {
			match = append(match, t)
		}
	}
	r.Terms, p.match = p.terms.Keep(match), match
	if r.Action == action.Limit.String() && !p.limit(r) || !p.tail(r) {
		return nil, false
	}
	if redirects && !p.ring(r) {
		return nil, false
	}
	if p.accept("as") {
		label, ok := p.text("a label")
		if !ok {
			return nil, false
		}
		r.Label = &label
	}
	return r, true
}

// answers parses what a cookie answers, where a word says it. "dns" may begin a term instead, which
// it gives back then.
func (p *parser) answers(r *ast.Rule) ([]ast.Term, bool) {
	t := ast.Term{Pos: p.tok.pos}
	of, ok := action.AnsweredBy(p.tok.text)
	if !ok || p.tok.kind != tWord {
		return nil, true
	}
	p.advance()
	if of == action.DNSQueries && (p.is("name") || dnsFields[p.tok.text] != nil) {
		ok := p.message(&t)
		t.Pos = t.Pos.To(p.last.pos)
		return []ast.Term{t}, ok
	}
	r.Answers = of
	return nil, true
}
