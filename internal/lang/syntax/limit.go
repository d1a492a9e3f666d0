package syntax

import (
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/ast"
)

// limitWords stand between the match of a limit and its label.
var limitWords = behind[action.Limit.String()]

const limitForm = "write: limit tcp port 22 rate 10/s burst 20 by source."

// limit parses what stands behind the match of a limit.
func (p *parser) limit(r *ast.Rule) bool {
	l := &ast.Limit{}
	r.Limit = l
	if !p.is("rate") {
		return p.fail(limitForm, "expected \"rate\" and how many packets may pass")
	}
	ok := false
	if next := p.ahead(); next.kind == tWord && (next.text == "to" || next.text == "from") {
		l.Rate.Pos = p.word().Pos
		if l.Rates, ok = p.rates(); !ok {
			return false
		}
	} else {
		rate, ok := p.limitValue()
		if !ok {
			return false
		}
		l.Rate = *rate
	}
	if p.is("burst") {
		if l.Rates != nil {
			return p.fail("write it behind each rate: { 192.0.2.0/24 1kpps burst 2000 }.",
				"rates by prefix have bursts of their own")
		}
		if l.Burst, ok = p.limitValue(); !ok {
			return false
		}
	}
	if p.accept("by") && !p.keys(l) {
		return false
	}
	if p.is("memory") {
		if l.Memory, ok = p.limitValue(); !ok {
			return false
		}
	}
	switch {
	case p.atEnd() || p.is("as"):
		return true
	case p.tok.kind == tWord && limitWords[p.tok.text]:
		return p.fail("each stands once, in this order: rate, burst, by, memory.",
			"expected as or the end of the line")
	}
	return p.fail("terms stand before \"rate\"; "+limitForm,
		"expected burst, by, memory, as or the end of the line")
}

// limitValue parses a word of a limit with its value.
func (p *parser) limitValue() (*ast.Word, bool) {
	word := p.word().Text
	if p.tok.kind != tWord || limitWords[p.tok.text] || p.is("as") {
		return nil, p.fail(limitExamples[word], "expected a value after %q", word)
	}
	w := p.word()
	return &w, true
}

// limitExamples are hints for what lacks its value.
var limitExamples = map[string]string{
	"rate": "write a rate such as 100/s, 20/m, 50kpps or 10mbit/s.",
	"burst": "write how many packets may come at once: burst 20; of bits a second bytes: burst " +
		"64kB.",
	"memory": "write a size such as 512kB or 8MB.",
}

// keys parses the list behind `by`.
func (p *parser) keys(l *ast.Limit) bool {
	for {
		if p.tok.kind != tWord || limitWords[p.tok.text] || p.is("as") {
			return p.fail("keys are source, destination, source/24,56, from port, port, flow and "+
				"dns-name/2.",
				"expected a key after \"by\"")
		}
		if p.tooMany(len(l.By), p.tok.pos) {
			return false
		}
		k := ast.Key{}
		k.Name = p.word()
		if k.Name.Text == "from" && p.is("port") {
			k.Name.Text += " " + p.tok.text
			k.Name.Pos = k.Name.Pos.To(p.tok.pos)
			p.advance()
		}
		k.Bits = p.bits(&k.Name)
		if p.tok.kind == tWord && len(p.tok.text) > 1 && p.tok.text[0] == 'x' &&
			isDigits(p.tok.text[1:]) {
			w := p.word()
			k.Times = &w
		}
		l.By = append(l.By, k)
		if p.tok.kind != tComma {
			return true
		}
		p.advance()
	}
}

// bits parts a word from the prefix lengths behind it, nil if it has none; the second, for IPv6,
// stands behind a comma.
func (p *parser) bits(name *ast.Word) (bits *ast.Word) {
	word, length, has := strings.Cut(name.Text, "/")
	if !has {
		return nil
	}
	name.Text, bits = word, &ast.Word{Text: length, Pos: name.Pos}
	if p.tok.kind == tComma && isDigits(p.ahead().text) {
		p.advance()
		bits.Text += "," + p.tok.text
		bits.Pos = bits.Pos.To(p.tok.pos)
		p.advance()
	}
	return bits
}
