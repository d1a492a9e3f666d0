package syntax

import "levee/internal/lang/ast"

// names parses what stands between the parentheses of names.
func (p *parser) names(n *ast.Names) bool {
	for {
		if p.tok.kind == tString || len(n.Names) == 0 {
			if p.tooMany(len(n.Names), p.tok.pos) {
				return false
			}
			w, ok := p.text("a name of DNS")
			if !ok {
				return false
			}
			n.Names = append(n.Names, w)
		} else if p.accept("stale") {
			if !p.listWord(&n.Stale, "stale", "a duration", "1d") {
				return false
			}
			if p.tok.kind == tComma {
				p.advance()
			}
			return true // parens says what is wrong
		} else {
			return p.fail("write: names(\"a.example\", \"b.example\", stale 1d).",
				"expected a name of DNS in quotes, or stale")
		}
		if p.tok.kind != tComma {
			return true
		}
		p.advance()
		if p.tok.kind == tRParen {
			return true
		}
	}
}

// mmdb parses what stands between the parentheses of mmdb.
func (p *parser) mmdb(m *ast.MMDB) bool {
	const form = "write: mmdb(\"GeoLite2-Country.mmdb\", country { DE, AT }), or: " +
		"mmdb(\"GeoLite2-ASN.mmdb\", as 64500)."
	var ok bool
	if m.Path, ok = p.text("a path"); !ok {
		return false
	}
	if p.tok.kind != tComma {
		return p.fail(form, "expected a comma, and country or as")
	}
	p.advance()
	if !p.is("country") && !p.is("as") {
		return p.fail(form, "expected country or as")
	}
	m.What = p.word()
	m.Values = p.values.One()
	m.Values.Pos = p.tok.pos
	if p.tok.kind == tLBrace {
		if !p.bracesOf(m.Values, p.mmdbValue) {
			return false
		}
		if len(m.Values.Elems) == 0 {
			p.errs.Errorf(m.Values.Pos, "", "this list is empty: no network would be in the set")
			return false
		}
	} else {
		e, ok := p.mmdbValue()
		if !ok {
			return false
		}
		m.Values.Elems = p.elems.Keep([]ast.Elem{e})
	}
	if p.tok.kind == tComma {
		p.advance()
	}
	return true
}

// mmdbValue parses a country or the number of an autonomous system.
func (p *parser) mmdbValue() (ast.Elem, bool) {
	e := ast.Elem{Text: p.tok.text, Pos: p.tok.pos}
	if p.tok.kind != tWord {
		return e, p.fail("write a country such as DE, or a number such as 64500.",
			"expected a country or a number")
	}
	p.part()
	if len(p.pending) > 0 || p.tok.blank {
		e.Comments = &ast.Comments{Lead: p.takeComments(), Blank: p.tok.blank}
	}
	p.advance()
	return e, true
}
