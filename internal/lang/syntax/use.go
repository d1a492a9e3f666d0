package syntax

import (
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
)

const useForm = "write: use source-engine port { 27015-27030 }."

// useStmt parses what begins with `use`.
func (p *parser) useStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	s := &ast.Use{Common: base}
	switch p.tok.kind {
	case tWord:
		s.Name = p.word()
	case tString:
		w := p.word()
		s.Path = &w
	default:
		return nil, p.fail(useForm, "expected the name of a profile, or its file in quotes")
	}
	if p.tok.kind == tWord && isDigits(p.tok.text) {
		w := p.word()
		s.Version = &w
	}
	for p.tok.kind == tWord && !p.is("as") {
		if p.tooMany(len(s.Args), p.tok.pos) {
			return nil, false
		}
		if p.tok.class&keyword != 0 && !p.is("port") || isDigits(p.tok.text) {
			return nil, p.fail(useForm, "expected the name of a parameter")
		}
		a := ast.Argument{Name: p.word()}
		var ok bool
		if a.Value, ok = p.argument(a.Name.Text); !ok {
			return nil, false
		}
		s.Args = append(s.Args, a)
	}
	if p.accept("as") {
		w, ok := p.text("a name for what the profile counts")
		if !ok {
			return nil, false
		}
		s.As = &w
	}
	return s, true
}

// argument parses the value of a parameter.
func (p *parser) argument(name string) (*ast.Value, bool) {
	v := p.values.One()
	v.Pos = p.tok.pos
	switch p.tok.kind {
	case tLBrace:
		if !p.braces(v) {
			return nil, false
		}
		if len(v.Elems) == 0 {
			p.errs.Errorf(v.Pos, "write a value, or leave the parameter out.", "this list is empty")
			return nil, false
		}
		return v, true
	case tWord:
		v.Elems = []ast.Elem{{Text: p.tok.text, Pos: p.tok.pos}}
		p.advance()
		return v, true
	}
	return nil, p.fail(useForm, "expected a value for %s", quote(name))
}

// bound returns the tokens that stand for a name, in its place; none where it has no value. Behind
// a brace or a comma the elements of a list stand without braces.
func (p *parser) bound(t token) []token {
	v, ok := p.binds(strings.TrimPrefix(t.text, "$"))
	if !ok {
		return nil
	}
	braces := v.List && p.last.kind != tLBrace && p.last.kind != tComma
	var out []token
	add := func(k kind, text string) {
		n := token{text: text, pos: t.pos, at: t.at, kind: k}
		if k == tWord {
			n.class = classOf(text)
		}
		if len(out) == 0 {
			n.first, n.blank = t.first, t.blank
		}
		out = append(out, n)
	}
	if braces {
		add(tLBrace, "{")
	}
	for i, e := range v.Elems {
		if i > 0 {
			add(tComma, ",")
		}
		add(tWord, e.Text)
	}
	if braces {
		add(tRBrace, "}")
	}
	return out
}

// Bounds on parts of a file.
const (
	MaxUses     = 64
	MaxPartSize = 1 << 18 // bytes of one, so that it has fewer lines than ast.PartLines
)

// Include parses the source of a part of f with values in the place of its names. The places of
// its statements, and what f.Diagnostics says about them, are of the part.
func Include(f *ast.File, part ast.Part, src []byte,
	binds func(name string) (*ast.Value, bool)) (*ast.File, diag.Diagnostics) {
	out, ds := parseBound(part.Title, src, binds, ast.PartBase(len(f.Parts)), f.Size)
	part.Src, f.Size = out.Src, out.Size
	f.Parts = append(f.Parts, part)
	return out, ds
}

// ParseBound is Parse with values in the place of names that begin with a dollar sign.
func ParseBound(file string, src []byte, binds func(name string) (*ast.Value, bool)) (*ast.File,
	diag.Diagnostics) {
	return parseBound(file, src, binds, 0, 0)
}

// parseBound parses a source whose lines count from base + 1; diagnostics count from 1. size is
// that of the policy before it: a list that each rule of a profile has counts for each use.
func parseBound(file string, src []byte, binds func(name string) (*ast.Value, bool),
	base int32, size int) (*ast.File, diag.Diagnostics) {
	errs := &diag.Collector{File: file}
	f := &ast.File{Name: file}
	var ok bool
	if f.Src, ok = readSource(src, errs, "policy"); !ok {
		f.Failed = true
		return f, errs.Diagnostics(f.Src)
	}
	p := &parser{lx: newLexer(f.Src, errs), file: f, errs: errs, binds: binds,
		parts: size}
	p.lx.line += base
	p.advance()
	p.statements()
	f.End = p.takeComments()
	f.Size, f.Failed = p.parts, errs.Errors() > 0
	if base > 0 {
		ds := errs.Part(file, base, base+ast.PartLines).Diagnostics(f.Src)
		return f, append(ds, errs.Diagnostics(f.Src)...)
	}
	return f, errs.Diagnostics(f.Src)
}
