package syntax

import (
	"strings"

	"levee/internal/lang/ast"
)

// ProfileWords begin the lines of a head.
func ProfileWords() []string { return strings.Fields(profileWords) }

const profileWords = "about takes misses costs tried parameter"

// ParameterTypes returns the types of parameters.
func ParameterTypes() []string { return strings.Fields(parameterTypes) }

const parameterTypes = "ports addresses rate number"

const profileForm = `write: profile my-game 1 { about "what it is for" }.`

// profileStmt parses what begins with `profile`.
func (p *parser) profileStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	s := &ast.Profile{Common: base}
	if p.tok.kind != tWord {
		return nil, p.fail(profileForm, "expected the name of the profile")
	}
	s.Name = p.word()
	if p.tok.kind != tWord || !isDigits(p.tok.text) {
		return nil, p.fail(profileForm, "expected its version, a number")
	}
	s.Version = p.word()
	if p.tok.kind != tLBrace {
		return nil, p.fail(profileForm, "expected { and what the profile says of itself")
	}
	open := p.tok
	p.depth++
	p.advance()
	for p.tok.kind != tRBrace {
		if p.tok.kind == tEOF {
			return nil, p.unclosed(open)
		}
		p.part()
		l := ast.ProfileLine{Comments: ast.Comments{Lead: p.takeComments(), Blank: p.tok.blank}}
		if !p.profileLine(&l) {
			return nil, false
		}
		p.attachStep(&l.Comments)
		s.Lines = append(s.Lines, l)
	}
	s.End = p.takeComments()
	p.depth--
	p.advance()
	return s, true
}

func (p *parser) profileLine(l *ast.ProfileLine) bool {
	if p.tok.kind != tWord || !oneOf(profileWords, p.tok.text) {
		hint := "a line of the head begins with " + strings.Join(ProfileWords(), ", ") + "."
		return p.fail(hint, "expected a line of the head")
	}
	l.Word = p.word()
	var ok bool
	if l.Word.Text == "parameter" {
		const form = `write: parameter port ports { 27015 } "where the servers listen".`
		if p.tok.kind != tWord {
			return p.fail(form, "expected the name of the parameter")
		}
		l.Name = p.word()
		if p.tok.kind != tWord || !oneOf(parameterTypes, p.tok.text) {
			return p.fail("types are "+strings.Join(ParameterTypes(), ", ")+".",
				"expected the type of the parameter")
		}
		l.Type = p.word()
		if l.Value, ok = p.argument(l.Name.Text); !ok {
			return false
		}
	}
	l.Text, ok = p.text("what " + l.Word.Text + " says")
	return ok
}
