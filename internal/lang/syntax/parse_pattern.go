package syntax

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/field"
)

// patternRule shows how a rule searches packets.
const patternRule = "write a text, bytes in hexadecimal or an expression between slashes: " +
	"drop udp port 53 payload contains \"evil\"."

// streamRule shows how a rule searches streams.
const streamRule = "write what to look for in the bytes that clients send: " +
	"drop tcp port 80 stream contains \"evil\" within 4096 bytes or unknown."

// stream parses how many bytes of a stream are searched, and what becomes of those that nobody
// knows.
func (p *parser) stream(t *ast.Term) bool {
	t.Field = field.Stream
	if p.accept("within") {
		if p.tok.kind != tWord || !isDigits(p.tok.text) {
			return p.fail(streamRule, "expected a number of bytes after \"within\"")
		}
		n := p.word()
		t.Value.Within = &n
		if !p.accept("bytes") {
			return p.fail(streamRule, "expected \"bytes\" after \"within %s\"", n.Text)
		}
	}
	if p.accept("or") {
		if !p.accept("unknown") {
			return p.fail(streamRule, "expected \"unknown\" after \"or\"")
		}
		t.Value.Unknown = true
	}
	return true
}

// find parses what follows payload contains: a text in quotes, bytes or an expression, or a list
// of these, and whether the case of letters matters.
func (p *parser) find(t *ast.Term) bool {
	t.Kind, t.Field = ast.Pattern, field.Contents
	p.slashes = true
	p.advance()
	v := p.values.One()
	v.Pos = p.tok.pos
	t.Value = v
	if p.tok.kind == tLBrace {
		ok := p.bracesOf(v, p.findElement)
		p.slashes = false
		if ok && len(v.Elems) == 0 {
			p.errs.Errorf(v.Pos, "name what to look for, or leave the term out.",
				"this list is empty and would never match")
		}
		if !ok || len(v.Elems) == 0 {
			return false
		}
	} else {
		p.slashes = false
		e, ok := p.findElement()
		if !ok {
			return false
		}
		v.Elems = p.elems.Keep([]ast.Elem{e})
		v.Pos = e.Pos
	}
	if p.accept("any") {
		if !p.accept("case") {
			return p.fail("write: payload contains \"evil\" any case.",
				"expected \"case\" after \"any\"")
		}
		v.AnyCase = true
	}
	return true
}

// findElement parses one thing to look for.
func (p *parser) findElement() (ast.Elem, bool) {
	e := ast.Elem{Text: p.tok.text, Pos: p.tok.pos}
	switch {
	case p.is("file"):
		return p.findFile()
	case p.tok.kind == tString:
		e.Text = ast.Quoted(ast.Word{Text: p.tok.text})
	case p.tok.kind == tExpression:
	case p.tok.kind == tWord && p.tok.class&keyword == 0:
	case p.tok.kind == tBad:
		return e, false
	default:
		return e, p.fail(patternRule, "expected what to look for after \"payload contains\"")
	}
	p.beginFind(&e)
	p.advance()
	return e, true
}

// findFile parses the name of a file of things to look for, as one element.
func (p *parser) findFile() (ast.Elem, bool) {
	e := ast.Elem{Pos: p.tok.pos}
	p.beginFind(&e)
	p.advance()
	ok := p.parens("file", func() bool {
		path, ok := p.text("a path")
		e.Text = "file(" + ast.Quoted(path) + ")"
		return ok
	})
	e.Pos = e.Pos.To(p.last.pos)
	return e, ok
}

// beginFind counts an element, and gives it the comments in front of it.
func (p *parser) beginFind(e *ast.Elem) {
	p.part()
	if p.depth > 0 && (len(p.pending) > 0 || p.tok.blank) {
		e.Comments = &ast.Comments{Lead: p.takeComments(), Blank: p.tok.blank}
	}
}
