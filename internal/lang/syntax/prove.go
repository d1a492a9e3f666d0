package syntax

import "levee/internal/lang/ast"

const proveForm = `write: prove "a2s" udp port 27015 reply payload at 4 41 echo 4 bytes at 5 ` +
	`in request at 5.`

// proveStmt parses what begins with `prove`.
func (p *parser) proveStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	s := &ast.Prove{Common: base}
	if p.is("udp") || p.is("reply") {
		return nil, p.fail(proveForm, "expected a name for the proof in quotes")
	}
	var ok bool
	if s.Name, ok = p.text("a name for the proof"); !ok {
		return nil, false
	}
	if s.Terms, ok = p.termsUntil("reply"); !ok {
		return nil, false
	}
	if !p.accept("reply") {
		return nil, p.fail(proveForm, "expected \"reply\" and what replies have to match")
	}
	if s.Reply, ok = p.termsUntil("echo"); !ok {
		return nil, false
	}
	if !p.accept("echo") {
		return nil, p.fail(proveForm, "expected \"echo\" and which bytes come back")
	}
	if s.Bytes, ok = p.proveNumber("how many bytes come back"); !ok {
		return nil, false
	}
	if !p.accept("bytes") {
		return nil, p.fail(proveForm, "expected \"bytes at\" and where replies have them")
	}
	if !p.accept("at") {
		return nil, p.fail(proveForm, "expected \"at\" and where replies have the bytes")
	}
	if s.At, ok = p.proveNumber("where replies have the bytes"); !ok {
		return nil, false
	}
	for _, word := range []string{"in", "request", "at"} {
		if !p.accept(word) {
			return nil, p.fail(proveForm, "expected \"in request at\" and where clients send the "+
				"bytes back")
		}
	}
	for {
		w, ok := p.proveNumber("where clients send the bytes back")
		if !ok || p.tooMany(len(s.In), w.Pos) {
			return nil, false
		}
		s.In = append(s.In, w)
		if p.tok.kind != tComma {
			return s, true
		}
		p.advance()
	}
}

// termsUntil parses terms up to a word that is none of them.
func (p *parser) termsUntil(word string) ([]ast.Term, bool) {
	match := p.match[:0]
	for !p.atEnd() && !p.is(word) {
		t, ok := p.term()
		if !ok || p.tooMany(len(match), t.Pos) {
			return nil, false
		}
		if t.Kind != noTerm {
			match = append(match, t)
		}
	}
	p.match = match
	return p.terms.Keep(match), true
}

// proveNumber parses a number; what says what it is for.
func (p *parser) proveNumber(what string) (ast.Word, bool) {
	if p.tok.kind != tWord || !isDigits(p.tok.text) {
		return ast.Word{}, p.fail(proveForm, "expected a number: %s", what)
	}
	return p.word(), true
}
