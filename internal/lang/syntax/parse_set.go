package syntax

import (
	"slices"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/bump"
	"levee/internal/lang/diag"
)

// setStmt parses `set NAME = ...`.
func (p *parser) setStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	return p.namedSet(base)
}

// namedSet parses what follows the word `set`. The name is kept in p as well, so that a set with an
// error in it is not reported as missing where it is used.
func (p *parser) namedSet(base ast.Common) (ast.Stmt, bool) {
	if p.tok.kind != tWord {
		hint := "write: set NAME = { ... }."
		if p.tok.kind == tString {
			hint = "write the name without quotes."
		}
		return nil, p.fail(hint, "expected a name after \"set\"")
	}
	s := &ast.Set{Common: base, Name: p.word()}
	p.setName = s.Name.Text
	if p.tok.kind != tOp || p.tok.text != "=" {
		hint := "write: set " + diag.Clip(s.Name.Text) + " = ..."
		if p.is("has") {
			hint = "\"set NAME has ADDRESS\" stands inside test \"...\" { }."
		}
		return nil, p.fail(hint, "expected = after the name of the set")
	}
	p.advance()
	return s, p.setBody(s)
}

func (p *parser) setBody(s *ast.Set) bool {
	switch {
	case p.tok.kind == tLBrace:
		s.List = p.values.One()
		return p.braces(s.List)
	case p.is("file"):
		p.advance()
		return p.parens("file", func() bool { return p.fileOf(s) })
	case p.is("dynamic"):
		p.advance()
		s.Dynamic = &ast.Dynamic{}
		if !p.parens("dynamic", func() bool { return p.dynamic(s.Dynamic) }) {
			return false
		}
		if p.is("of") {
			return p.typeOutside(s.Dynamic)
		}
		return true
	}
	if p.is("names") && p.ahead().kind == tLParen {
		p.advance()
		s.Names = &ast.Names{}
		return p.parens("names", func() bool { return p.names(s.Names) })
	}
	if p.is("mmdb") && p.ahead().kind == tLParen {
		p.advance()
		s.MMDB = &ast.MMDB{}
		return p.parens("mmdb", func() bool { return p.mmdb(s.MMDB) })
	}
	hint := ""
	switch {
	case p.tok.kind == tString:
		hint = "to read prefixes from a file: file(\"" + diag.Clip(p.tok.text) + "\")."
	case p.tok.kind == tWord && strings.HasPrefix(p.tok.text, "["):
		hint = "elements stand in braces: { ... }."
	case p.tok.kind == tWord:
		if hint = spell(p.tok.text, "file dynamic"); hint == "" {
			hint = "put the elements into braces: { " + diag.Clip(p.tok.text) + " }."
		}
	case p.tok.kind == tLParen:
		hint = "elements stand in braces: { ... }."
	case p.tok.kind == tOp && p.tok.text == "<":
		hint = "elements stand in braces: { ... }."
	}
	return p.fail(hint, "expected { ... }, file(\"...\") or dynamic(...)")
}

// fileOf parses a path, and behind it perhaps what the file has.
func (p *parser) fileOf(s *ast.Set) bool {
	path, ok := p.text("a path")
	s.Path = &path
	if !ok || p.tok.kind != tComma {
		return ok
	}
	p.advance()
	if p.tok.kind == tRParen {
		return true
	}
	if !p.accept("of") || p.tok.kind != tWord {
		return p.fail("write: file(\"blocked.txt\", of names).",
			"expected \"of\" and the type of the elements")
	}
	of := p.word()
	s.Of = &of
	return true
}

// typeOutside reports `dynamic(max 10) of services`, in which the type stands outside of the
// parentheses.
func (p *parser) typeOutside(d *ast.Dynamic) bool {
	pos := p.tok.pos
	p.advance()
	of := "addresses"
	if p.tok.kind == tWord {
		of = EntryType(p.tok.text)
	}
	if p.stopped {
		return false
	}
	hint := "write: dynamic(of addresses, max N), or services, endpoints or names in their place."
	if of != "" {
		hint = didYouMean("dynamic(of " + of + ", max " + diag.Clip(d.Max.Text) + ")")
	}
	p.errs.Errorf(pos, hint, "the type of the entries stands inside the parentheses of dynamic")
	return false
}

// EntryType returns the type of entries of a dynamic set that a word probably means: addresses,
// services, endpoints or names, or "" when that is not clear.
func EntryType(word string) string {
	switch word = strings.ToLower(word); {
	case oneOf("prefixes prefix ips ip hosts host address networks network nets", word):
		return "addresses"
	case oneOf("ports port service", word):
		return "services"
	case oneOf("pairs pair tuples sockets socket endpoint", word):
		return "endpoints"
	case oneOf("name domains domain zones zone fqdn dns", word):
		return "names"
	}
	return diag.Nearest(word, []string{"addresses", "services", "endpoints", "names"})
}

// parens parses `( body )`.
func (p *parser) parens(what string, body func() bool) bool {
	if p.tok.kind != tLParen {
		hint := "write: file(\"prefixes.txt\")."
		if what == "dynamic" {
			hint = "write: dynamic(max 100000, lease 10m)."
		}
		return p.fail(hint, "expected ( after %s", quote(what))
	}
	open := p.tok
	p.depth++
	p.advance()
	if !body() {
		return false
	}
	if p.tok.kind != tRParen {
		if p.tok.kind == tEOF || p.startsStatement() {
			return p.unclosed(open)
		}
		return p.fail("", "expected ) after %s", quote(p.last.text))
	}
	p.depth--
	p.advance()
	return true
}

// unclosed reports a brace or parenthesis without its end. The statement at which that was
// noticed is not skipped.
func (p *parser) unclosed(open token) bool {
	end := "}"
	if open.kind == tLParen {
		end = ")"
	}
	if p.stopped {
		return false
	}
	p.errs.Errorf(open.pos, "add "+end+" after the last element.", "this %s is never closed",
		open.text)
	return false
}

// dynamic parses `of TYPE, max N, lease DURATION, rollup, keep`, in any order.
func (p *parser) dynamic(d *ast.Dynamic) bool {
	for {
		switch {
		case p.is("max") && d.Max.Text == "":
			p.advance()
			if p.tok.kind != tWord {
				return p.fail("write: max 100000.", "expected a number after \"max\"")
			}
			d.Max = p.word()
		case p.is("lease") && d.Lease == nil:
			p.advance()
			if p.tok.kind != tWord {
				return p.fail("write a duration such as 30s, 10m, 12h or 7d.",
					"expected a duration after \"lease\"")
			}
			w := p.word()
			d.Lease = &w
		case p.is("of") && d.Of == nil:
			p.advance()
			if p.tok.kind != tWord || isDynamicWord[p.tok.text] {
				return p.fail("write: of addresses, of services, of endpoints or of names.",
					"expected the type of the entries after \"of\"")
			}
			w := p.word()
			d.Of = &w
		case p.is("rollup") && !d.RollUp:
			p.advance()
			d.RollUp = true
		case p.is("keep") && !d.Keep:
			p.advance()
			d.Keep = true
		case p.is("from") && d.From == nil && d.Path == nil:
			p.advance()
			if !p.dynamicFrom(d) {
				return false
			}
		case p.isDynamic():
			return p.fail("remove one of them.",
				"expected of, max, lease, rollup, keep and from once each")
		default:
			return p.fail(hintDynamic(p.tok), "expected of, max, lease, rollup, keep or from")
		}
		switch {
		case p.tok.kind == tComma:
			p.advance()
			if p.tok.kind == tRParen {
				return p.dynamicHasMax(d)
			}
		case p.tok.kind == tRParen:
			return p.dynamicHasMax(d)
		case p.isDynamic():
			return p.fail("separate of, max, lease, rollup, keep and from by commas.",
				"expected , or )")
		default:
			return true // parens says what is wrong
		}
	}
}

// dynamicFrom parses what a set begins with.
func (p *parser) dynamicFrom(d *ast.Dynamic) bool {
	switch {
	case p.tok.kind == tLBrace:
		d.From = p.values.One()
		return p.braces(d.From)
	case p.is("file"):
		p.advance()
		return p.parens("file", func() bool {
			path, ok := p.text("a path")
			d.Path = &path
			return ok
		})
	}
	return p.fail("write: from { 192.0.2.1, 198.51.100.0/24 }, or from file(\"entries.txt\").",
		"expected { ... } or file(\"...\") after \"from\"")
}

// isDynamicWord are the words that stand inside dynamic( ).
var isDynamicWord = wordSet("of max lease rollup keep from")

func (p *parser) isDynamic() bool { return p.tok.kind == tWord && isDynamicWord[p.tok.text] }

func (p *parser) dynamicHasMax(d *ast.Dynamic) bool {
	if d.Max.Text == "" {
		return p.fail("say how many entries it may hold: dynamic(max 100000, ...).",
			"expected max N")
	}
	return true
}

func hintDynamic(t token) string {
	switch {
	case t.kind == tRParen:
		return "say how many entries it may hold: dynamic(max 100000)."
	case t.kind != tWord:
		return ""
	case oneOf("timeout ttl expire expires age time", t.text):
		return didYouMean("lease")
	case oneOf("persist persistent save saved permanent", t.text):
		return didYouMean("keep")
	case oneOf("size maxelem limit entries count", t.text):
		return didYouMean("max")
	case t.text == "type":
		return "write: of addresses, of services, of endpoints or of names."
	case isDigits(t.text):
		return "write: max " + diag.Clip(t.text) + "."
	}
	if hint := spell(t.text, "max lease rollup"); hint != "" {
		return hint
	}
	if of := EntryType(t.text); of != "" {
		return "write: of " + of + "."
	}
	return ""
}

// noElement tells whether the current token is a word of the language that no list can hold.
func (p *parser) noElement() bool {
	return p.tok.class&(keyword|protoWord|familyWord) == keyword && p.tok.text != "any"
}

// braces parses `{ element, ... }` into v. A missing comma is reported and the list goes on.
func (p *parser) braces(v *ast.Value) bool { return p.bracesOf(v, p.element) }

// bracesOf is braces with elements of another kind.
func (p *parser) bracesOf(v *ast.Value, element func() (ast.Elem, bool)) bool {
	v.List, v.Pos = true, p.tok.pos
	brace := p.tok
	p.depth++
	p.advance()
	list := p.list[:0]
	for p.tok.kind != tRBrace {
		if p.tok.kind == tEOF || p.startsStatement() {
			return p.unclosed(brace)
		}
		e, ok := element()
		if !ok {
			return false
		}
		list = append(list, e)
		p.separator()
		if len(p.pending) > 0 && !p.pending[0].Own {
			p.trail(&list[len(list)-1])
		}
	}
	if len(list) >= bump.Large {
		v.Elems, p.list = slices.Clip(list), nil
	} else {
		v.Elems, p.list = p.elems.Keep(list), list
	}
	if end := p.takeComments(); end != nil {
		v.End = &ast.Comments{Lead: end}
	}
	v.Pos = v.Pos.To(p.tok.pos)
	p.depth--
	p.advance()
	return true
}

// trail gives the first pending comment to the element in whose line it stands.
func (p *parser) trail(e *ast.Elem) {
	if e.Comments == nil {
		e.Comments = &ast.Comments{}
	}
	if e.Comments.Trail == "" {
		e.Comments.Trail = p.pending[0].Text
		p.pending = p.pending[1:]
	}
}

// element parses one element of a list.
func (p *parser) element() (ast.Elem, bool) {
	switch p.tok.kind {
	case tWord:
		if p.noElement() {
			return ast.Elem{}, p.fail("if the list ends here, a } is missing before it.",
				"expected an element or }")
		}
	case tComma:
		return ast.Elem{}, p.fail("remove the extra comma.", "expected an element")
	case tLBrace:
		return ast.Elem{}, p.fail("lists do not nest; give the inner one a name with \"set\" and "+
			"write that name.", "expected an element")
	case tOp:
		return ast.Elem{}, p.fail(hintOp(p.tok.text), "expected an element")
	case tString: // a name of the DNS
	default:
		return ast.Elem{}, p.fail("", "expected an element or }")
	}
	p.part()
	e := ast.Elem{Text: p.tok.text, Pos: p.tok.pos}
	if p.tok.kind == tString {
		e.Text = ast.Quoted(ast.Word{Text: e.Text})
	}
	if len(p.pending) > 0 || p.tok.blank {
		e.Comments = &ast.Comments{Lead: p.takeComments(), Blank: p.tok.blank}
	}
	p.advance()
	if p.endpointService(e.Text) {
		p.joinService(&e)
	}
	return e, true
}

// endpointService tells whether the current token is the service behind an address, as in
// `192.0.2.1 tcp/443`.
func (p *parser) endpointService(before string) bool {
	return p.tok.kind == tWord && !p.tok.first && p.tok.class&(keyword|protoWord) != keyword &&
		(strings.IndexByte(before, '.') >= 0 || strings.IndexByte(before, ':') >= 0) &&
		IsService(p.tok.text)
}

// joinService makes the current token, which follows an element, part of it, behind one blank.
// Where it is written so, that is how the source has it.
func (p *parser) joinService(e *ast.Elem) {
	from, to := int(p.last.at), int(p.tok.at)+len(p.tok.text)
	if text := p.lx.src[from:to]; text[len(e.Text)] == ' ' &&
		len(text) == len(e.Text)+1+len(p.tok.text) {
		e.Text = text
	} else {
		e.Text += " " + p.tok.text
	}
	e.Pos = e.Pos.To(p.tok.pos)
	p.advance()
}

// IsService tells whether a word looks like a service, names a protocol or is a port: what stands
// behind an address in an endpoint, right or wrong.
func IsService(word string) bool {
	head, rest, slash := strings.Cut(word, "/")
	if isProto[head] || slash && isProto[rest] || strings.Trim(word, "0123456789-") == "" &&
		word != "" && word[0] != '-' {
		return true
	}
	return slash && strings.Trim(head,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") == "" && head != ""
}

// separator parses the comma after an element.
func (p *parser) separator() {
	switch {
	case p.noElement(): // reported as an element that cannot be
	case p.tok.kind == tComma:
		p.advance()
	case p.tok.kind == tSemi:
		p.fail("separate elements by commas.", "expected , or }")
		p.advance()
	case p.tok.kind == tWord && strings.HasPrefix(p.tok.text, "-") && !p.tok.first:
		p.fail("write a range without blanks: "+diag.Clip(p.last.text)+"-"+
			strings.TrimPrefix(diag.Clip(p.tok.text), "-")+".", "expected , or }")
		p.advance()
		if p.tok.kind == tWord && p.last.text == "-" {
			p.advance()
		}
		if p.tok.kind == tComma {
			p.advance()
		}
	case p.tok.kind == tWord && p.tok.first && !p.startsStatement():
		at := p.last.pos
		at.Col, at.EndCol = at.EndCol, at.EndCol+1
		p.errs.Errorf(at, "separate elements by commas.", "expected , or } after %s",
			quote(p.last.text))
	case p.tok.kind == tWord && !p.startsStatement() && strings.Contains(p.tok.text, "/") &&
		IsService(p.tok.text) && !IsService(p.last.text):
		p.fail("a service stands behind an address: 192.0.2.1 "+diag.Clip(p.tok.text)+".",
			"expected , or }")
	case p.tok.kind == tWord && !p.startsStatement(), p.tok.kind == tString,
		p.tok.kind == tExpression:
		p.fail("separate elements by commas.", "expected , or }")
	}
}
