package syntax

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
)

const ringForm = `write: redirect udp port 53 to ring "dns" else drop.`

// ringAhead tells whether the match of a redirect ends here. A set may be named ring, and stands
// without quotes.
func (p *parser) ringAhead() bool {
	if !p.is("to") {
		return p.is("else")
	}
	lx := p.lx
	lx.errs = &diag.Collector{}
	ring, name := lx.next(), lx.next()
	return ring.kind == tWord && ring.text == "ring" &&
		(name.kind == tString || name.kind == tWord && lx.next().text == "else")
}

// ring parses what stands behind the match of a redirect.
func (p *parser) ring(r *ast.Rule) bool {
	if !p.is("to") {
		return p.fail(ringForm, "expected to ring \"NAME\" behind the match of a redirect")
	}
	p.advance()
	p.advance()
	name, ok := p.text("the name of the ring")
	if !ok {
		return false
	}
	r.Ring = &name
	if !p.accept("else") {
		return p.fail("write else pass, or else drop.",
			"expected else, and what becomes of the packets while nobody reads the ring")
	}
	w, ok := p.verdictWord("else")
	r.Else = &w
	return ok
}
