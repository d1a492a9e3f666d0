package syntax

import "levee/internal/lang/ast"

const ratesForm = "write: rate to { 192.0.2.0/24 1kpps, 198.51.100.0/24 2kpps burst 4000 }, or " +
	"rate to file(\"rates.txt\")."

// rates parses what stands behind `rate` where that is not one rate.
func (p *parser) rates() (*ast.Rates, bool) {
	r := &ast.Rates{Side: p.word()}
	switch {
	case p.tok.kind == tLBrace:
		r.List = p.values.One()
		return r, p.bracesOf(r.List, p.rateElement)
	case p.is("file"):
		p.advance()
		return r, p.parens("file", func() bool {
			path, ok := p.text("a path")
			r.Path = &path
			return ok
		})
	}
	return nil, p.fail(ratesForm, "expected { ... } or file(\"...\") after \"rate %s\"",
		r.Side.Text)
}

// rateElement parses `PREFIX RATE [burst N]`.
func (p *parser) rateElement() (ast.Elem, bool) {
	e, ok := p.element()
	if !ok {
		return e, false
	}
	for n := 1; n < 4 && p.tok.kind == tWord && !p.tok.first && (n != 2 || p.is("burst")); n++ {
		e.Text += " " + p.tok.text
		e.Pos = e.Pos.To(p.tok.pos)
		p.advance()
	}
	return e, true
}
