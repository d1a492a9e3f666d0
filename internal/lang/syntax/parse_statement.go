package syntax

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
)

func (p *parser) interfaceStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	if p.tok.kind == tString {
		return nil, p.fail("write the name without quotes.", "expected the name of an interface")
	}
	v := p.values.One()
	v.Pos = p.tok.pos
	if p.tok.kind == tLBrace {
		ok := p.braces(v)
		if ok && len(v.Elems) == 0 {
			p.errs.Errorf(v.Pos, "name interfaces: interface { eth0, eth1 }.",
				"this list is empty: the policy would be put nowhere")
			ok = false
		}
		for _, e := range v.Elems {
			if ok && ast.IsQuoted(e.Text) {
				p.errs.Errorf(e.Pos, "write the name without quotes.",
					"expected the name of an interface, found the text %s", e.Text)
				ok = false
			}
			if ok && IsKeyword(e.Text) {
				p.errs.Errorf(e.Pos, "name it by --dev, or by a pattern.",
					"%q is a word of the language and cannot stand in a list of interfaces", e.Text)
				ok = false
			}
		}
		return &ast.Interface{Common: base, Names: v}, ok
	}
	if p.tok.kind != tWord {
		return nil, p.fail("write the name that `ip link` shows: interface eth0.",
			"expected the name of an interface")
	}
	w := p.word()
	v.Elems = p.elems.Keep([]ast.Elem{{Text: w.Text, Pos: w.Pos}})
	return &ast.Interface{Common: base, Names: v}, true
}

// verdictWord parses pass or drop.
func (p *parser) verdictWord(after string) (ast.Word, bool) {
	if p.is("pass") || p.is("drop") {
		return p.word(), true
	}
	hint := "write: " + after + " drop, or " + after + " pass."
	if p.tok.kind == tWord {
		if a := actionMeant(p.tok.text); isVerdict(a) {
			hint = didYouMean(a)
		} else if m := spell(p.tok.text, "pass drop"); m != "" {
			hint = m
		}
	}
	return ast.Word{}, p.fail(hint, "expected pass or drop after %s", quote(after))
}

// outStmt parses what follows `out`: a rule, or the default, for what leaves.
func (p *parser) outStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	switch {
	case p.tok.kind == tWord && isAction(p.tok.text):
		s, ok := p.ruleStmt(base)
		if r, is := s.(*ast.Rule); is {
			r.Out = true
		}
		return s, ok
	case p.is("default"):
		s, ok := p.defaultStmt(base)
		if d, is := s.(*ast.Default); is {
			d.Out = true
		}
		return s, ok
	}
	hint := "write a rule behind it, as in: out drop tcp port 25."
	if p.tok.kind == tWord {
		if a := actionMeant(p.tok.text); a != "" {
			hint = didYouMean("out " + a)
		} else if m := spell(p.tok.text, actionWords+" default"); m != "" {
			hint = m
		}
	}
	return nil, p.fail(hint, "expected a rule or default after \"out\"")
}

func (p *parser) defaultStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	if p.tok.kind == tOp && p.tok.text == "=" {
		return nil, p.fail("write \"default pass\" or \"default drop\".",
			"expected pass or drop after \"default\"")
	}
	w, ok := p.verdictWord("default")
	return &ast.Default{Common: base, Action: w}, ok
}

func (p *parser) essentialStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	if !p.is("off") {
		hint := "\"essential off\" removes the built-in rules."
		if p.is("on") {
			hint = "the built-in rules are on unless the policy says \"essential off\"; remove " +
				"this line."
		}
		return nil, p.fail(hint, "expected off after \"essential\"")
	}
	p.advance()
	return &ast.Essential{Common: base}, true
}

func (p *parser) connectionsStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	if !p.accept("max") {
		hint := "write how many may be known at once: connections max 100000."
		if p.tok.kind == tWord && isDigits(p.tok.text) {
			hint = "write: connections max " + diag.Clip(p.tok.text) + "."
		}
		return nil, p.fail(hint, "expected max after \"connections\"")
	}
	if p.tok.kind != tWord {
		return nil, p.fail("write how many may be known at once: connections max 100000.",
			"expected a number after \"connections max\"")
	}
	return &ast.Connections{Common: base, Max: p.word()}, true
}

func (p *parser) onErrorStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	if !p.accept("error") {
		return nil, p.fail("write \"on error pass\" or \"on error drop\".",
			"expected error after \"on\"")
	}
	w, ok := p.verdictWord("on error")
	return &ast.OnError{Common: base, Action: w}, ok
}
