package syntax

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
)

const detectForm = `write: detect "floods" enforce.`

// detectModes are the words for how far a detector goes.
const detectModes = "observe propose enforce"

// detectStmt parses what begins with `detect`.
func (p *parser) detectStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	s := &ast.Detect{Common: base}
	if p.tok.kind == tWord && oneOf(detectModes, p.tok.text) {
		return nil, p.fail(detectForm, "expected a name for the detector in quotes")
	}
	var ok bool
	if s.Name, ok = p.text("a name for the detector"); !ok {
		return nil, false
	}
	if p.accept("to") {
		if s.To, ok = p.detectAddresses("to"); !ok {
			return nil, false
		}
	}
	if p.accept("above") {
		for {
			w, ok := p.detectWord("above", "a rate", "write a rate to one host such as above "+
				"50000/s, above 500mbit/s, or both: above 50000/s, 500mbit/s.")
			if !ok || p.tooMany(len(s.Above), w.Pos) {
				return nil, false
			}
			s.Above = append(s.Above, *w)
			if p.tok.kind != tComma {
				break
			}
			p.advance()
		}
	}
	if p.tok.kind != tWord || !oneOf(detectModes, p.tok.text) {
		hint := "say what becomes of a flood: observe tells of it, propose finds rules against " +
			"it, enforce puts them into force."
		if p.tok.kind == tWord {
			if m := diag.Nearest(p.tok.text, []string{"observe", "propose", "enforce", "above",
				"to"}); m != "" {
				hint = didYouMean(m)
			} else if oneOf("collateral keep lease quiet", p.tok.text) {
				hint = "that stands behind the mode: " + detectForm[len("write: "):]
			}
		}
		return nil, p.fail(hint, "expected observe, propose or enforce")
	}
	s.Mode = p.word()
	if p.accept("collateral") {
		if s.Collateral, ok = p.detectWord("collateral", "a part", "write the part of good "+
			"packets that rules may drop: collateral 1/1000."); !ok {
			return nil, false
		}
	}
	if p.accept("keep") {
		if s.Keep, ok = p.detectAddresses("keep"); !ok {
			return nil, false
		}
	}
	const duration = "write a duration such as 45s, 2m or 1h."
	if p.accept("lease") {
		if s.Lease, ok = p.detectWord("lease", "a duration", duration); !ok {
			return nil, false
		}
	}
	if p.accept("quiet") {
		if s.Quiet, ok = p.detectWord("quiet", "a duration", duration); !ok {
			return nil, false
		}
	}
	if p.tok.kind == tWord && oneOf("to above collateral keep lease quiet", p.tok.text) {
		return nil, p.fail("each stands once, in this order: to, above, the mode, collateral, "+
			"keep, lease, quiet.", "expected the end of the line")
	}
	return s, true
}

// detectWord returns the value of a word.
func (p *parser) detectWord(word, what, hint string) (*ast.Word, bool) {
	if p.tok.kind != tWord || oneOf(detectModes+" collateral keep lease quiet", p.tok.text) {
		return nil, p.fail(hint, "expected %s after %q", what, word)
	}
	w := p.word()
	return &w, true
}

// detectAddresses returns an address, a prefix, a list of them or a set.
func (p *parser) detectAddresses(word string) (*ast.Value, bool) {
	v := p.values.One()
	v.Pos = p.tok.pos
	switch {
	case p.tok.kind == tLBrace:
		if !p.braces(v) {
			return nil, false
		}
		if len(v.Elems) == 0 {
			p.errs.Errorf(v.Pos, "name addresses, or leave \""+word+"\" out.", "this list is empty")
			return nil, false
		}
		return v, true
	case p.tok.kind == tWord && p.tok.class&keyword == 0 && !oneOf(detectModes, p.tok.text):
		v.Elems = p.elems.Keep([]ast.Elem{{Text: p.tok.text, Pos: p.tok.pos}})
		p.advance()
		return v, true
	}
	return nil, p.fail("write a prefix, a list in braces or the name of a set.",
		"expected addresses after %q", word)
}
