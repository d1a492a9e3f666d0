package syntax

// Rates are those of a limit by prefix: `rate to { PREFIX RATE [burst N], ... }`, or `from` for
// those of sources. They may stand in a file.
type Rates struct {
	Side Word   // to or from
	List *Value // of elements such as `192.0.2.0/24 1kpps burst 2000`; nil with Path
	Path *Word
}

const ratesForm = "write: rate to { 192.0.2.0/24 1kpps, 198.51.100.0/24 2kpps burst 4000 }, or " +
	"rate to file(\"rates.txt\")."

// rates parses what stands behind `rate` where that is not one rate.
func (p *parser) rates() (*Rates, bool) {
	r := &Rates{Side: p.word()}
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
func (p *parser) rateElement() (Elem, bool) {
	e, ok := p.element()
	if !ok {
		return e, false
	}
	for n := 1; n < 4 && p.tok.kind == tWord && !p.tok.first && (n != 2 || p.is("burst")); n++ {
		e.Text += " " + p.tok.text
		e.Pos = e.Pos.to(p.tok.pos)
		p.advance()
	}
	return e, true
}

func (p *printer) rates(r *Rates) {
	p.words("rate", r.Side.Text)
	if r.List != nil {
		p.value(r.List)
		return
	}
	p.words("file(" + quoted(*r.Path) + ")")
}
