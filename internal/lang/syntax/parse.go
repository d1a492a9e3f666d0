// Package syntax is the text of a policy: lexer and parser.
//
// In goes the source of one policy file, out comes a tree (package ast): every statement with its
// words, values, comments and positions, but without meaning. Whether a word is an address, a set
// or nonsense is decided by package policy. Parse never panics, its work and memory are bounded by
// the size of the source, and it reports all errors of a file at once. Nothing here opens files,
// looks at the machine, or changes what a policy means.
package syntax

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/bump"
	"levee/internal/lang/diag"
	"levee/internal/lang/foreign"
)

// Parse reads one policy. It always returns a File; when the diagnostics have errors, only with
// those statements that could be understood. The source is copied.
func Parse(file string, src []byte) (*ast.File, diag.Diagnostics) {
	return parseBound(file, src, nil, 0, 0)
}

// readSource takes a copy of a source, unless it is none; what says what it should be. The copy is
// empty where there are no lines to show.
func readSource(src []byte, errs *diag.Collector, what string) (text string, ok bool) {
	if len(src) > MaxSource {
		hint := ""
		if what == "policy" {
			hint = "put prefixes into a set file and use file(\"...\")."
		}
		errs.Errorf(diag.Pos{}, hint, "the %s is longer than %d MiB; at most %[2]d MiB are read",
			what,
			MaxSource>>20)
		return "", false
	}
	text = string(src)
	if strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
		errs.Errorf(diag.Pos{}, "save the file as UTF-8.", "the %s is UTF-16 text", what)
		return "", false
	}
	if i := strings.IndexByte(text, 0); i >= 0 {
		line, col := place(text, i)
		errs.Errorf(diag.Pos{Line: line, Col: col, EndCol: col + 1},
			"a "+what+" is UTF-8 text; is this the right file?",
			"a NUL byte: this is no text file")
		return text, false
	}
	return text, true
}

// place returns the line and column of byte i.
func place(src string, i int) (line, col int32) {
	src = strings.TrimPrefix(src[:i], diag.BOM)
	start := strings.LastIndexByte(src, '\n') + 1
	return int32(strings.Count(src, "\n") + 1), int32(utf8.RuneCountInString(src[start:]) + 1)
}

// parser is a recursive-descent parser with one token of look-ahead. Its methods report what is
// wrong themselves and return false where the rest of the statement cannot be understood.
type parser struct {
	lx       lexer
	tok      token
	last     token // the one before tok
	depth    int   // > 0 inside braces or parentheses, where a line end is white space
	pending  []ast.Comment
	file     *ast.File
	errs     *diag.Collector
	setName  string // of the set statement that is being parsed, once it was read
	parts    int    // of maxParts
	template bool   // values of packets may vary
	slashes  bool   // expressions between slashes may stand here
	stopped  bool   // the policy is too large; the rest of it is not read

	binds func(name string) (*ast.Value, bool) // of names that begin with $; nil: they are words
	queue []token                              // that stand in the place of such a name

	values bump.Allocator[ast.Value]
	elems  bump.Allocator[ast.Elem]
	terms  bump.Allocator[ast.Term]
	list   []ast.Elem // scratch: the list that is being parsed
	match  []ast.Term // scratch: the terms of the rule that is being parsed
}

// part counts one more part of the tree. Beyond the bound it says so, and the source ends there.
func (p *parser) part() {
	if p.parts++; p.parts > maxParts && !p.stopped {
		p.stop(p.lx.pos(), "put prefixes into a set file and use file(\"...\").",
			"the policy has more than %d statements, terms, elements and comments", maxParts)
	}
}

// stop reports that the policy is too large and ends the source here.
func (p *parser) stop(at diag.Pos, hint, format string, args ...any) {
	p.errs.Errorf(at, hint, format, args...)
	p.stopped = true
	p.lx.src = p.lx.src[:p.lx.off]
}

// advance goes to the next token; comments on the way are kept in pending.
func (p *parser) advance() {
	p.last = p.tok
	for {
		if p.slashes {
			if t, ok := p.lx.expression(); ok {
				p.tok = t
				return
			}
		}
		t := p.next()
		switch {
		case t.kind == tComment:
			p.pending = append(p.pending, ast.Comment{Text: t.text, Blank: t.blank, Pos: t.pos,
				Own: t.first})
			p.part()
		case t.kind == tNewline && p.depth > 0:
		default:
			p.tok = t
			return
		}
	}
}

// next returns the next token, of those that stand for a name where there are any.
func (p *parser) next() token {
	if p.binds == nil {
		return p.lx.next()
	}
	if len(p.queue) == 0 {
		t := p.lx.next()
		if t.kind != tWord || t.text[0] != '$' {
			return t
		}
		if p.queue = p.bound(t); len(p.queue) == 0 {
			p.errs.Errorf(t.pos, "name it in the head: parameter "+diag.Clip(t.text[1:])+" ...",
				"the profile has no parameter and no set %s", quote(t.text))
			t.kind = tBad
			return t
		}
	}
	t := p.queue[0]
	p.queue = p.queue[1:]
	return t
}

// expression is advance to where an expression between slashes may stand.
func (p *parser) expression() {
	if t, ok := p.lx.expression(); ok {
		p.last, p.tok = p.tok, t
		return
	}
	p.advance()
}

func (p *parser) takeComments() []ast.Comment {
	c := p.pending
	p.pending = nil
	return c
}

// is tells whether the current token is this word.
func (p *parser) is(word string) bool { return p.tok.kind == tWord && p.tok.text == word }

// read goes on as if word stood where the current token does.
func (p *parser) read(word string) { p.tok.text, p.tok.class = word, classOf(word) }

// accept steps over this word if it is the current token.
func (p *parser) accept(word string) bool {
	if p.is(word) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) atEnd() bool { return p.tok.kind == tNewline || p.tok.kind == tEOF }

// fail reports that the current token is not what was expected.
func (p *parser) fail(hint, format string, args ...any) bool {
	if p.tok.kind == tBad || p.stopped { // reported already
		return false
	}
	p.errs.Errorf(p.here(), hint, "%s, found %s", fmt.Sprintf(format, args...), p.tok)
	return false
}

// here returns the place of the current token; of a line end, just behind the last word.
func (p *parser) here() diag.Pos {
	if p.atEnd() && p.last.pos.Line > 0 {
		pos := p.last.pos
		pos.Col = pos.EndCol
		pos.EndCol++
		return pos
	}
	return p.tok.pos
}

func (t token) String() string {
	switch t.kind {
	case tEOF:
		return "the end of the file"
	case tNewline:
		return "the end of the line"
	case tString:
		return fmt.Sprintf("the text %q", diag.Clip(t.text))
	}
	return quote(t.text)
}

// quote puts a piece of source into a message.
func quote(s string) string { return `"` + diag.Clip(s) + `"` }

// statements parses the whole file.
func (p *parser) statements() {
	for {
		for p.tok.kind == tNewline {
			p.advance()
		}
		if p.tok.kind == tEOF {
			return
		}
		if len(p.file.Stmts) >= MaxStatements {
			p.stop(p.tok.pos, "put prefixes that are treated alike into one set.",
				"a policy has at most %d statements", MaxStatements)
			return
		}
		p.part()
		p.statement()
	}
}

// statement parses one statement and the end of its line; after an error it goes to the next.
func (p *parser) statement() {
	base := ast.Common{Pos: p.tok.pos,
		Comments: ast.Comments{Lead: p.takeComments(), Blank: p.tok.blank}}
	word := ""
	if p.tok.kind == tWord {
		word = p.tok.text
	}
	keyword := word
	p.setName = ""
	if p.tok.class&statementWord == 0 {
		assigned := p.tok.kind == tWord && p.ahead().text == "="
		if word = p.unknownStatement(assigned); assigned {
			p.namedSet(base)
		}
	}
	s, ok := p.parseStatement(word, base)
	if ok {
		ok = p.endOfStatement(word)
	}
	if !ok {
		p.sync()
		s = &ast.Bad{Common: base, Keyword: keyword, Name: p.setName}
	}
	p.depth = 0
	p.attach(s.Remarks())
	p.file.Stmts = append(p.file.Stmts, s)
}

// parseStatement parses a statement by its first word.
func (p *parser) parseStatement(word string, base ast.Common) (ast.Stmt, bool) {
	p.read(word)
	if isAction(word) {
		return p.ruleStmt(base)
	}
	switch word {
	case "out":
		return p.outStmt(base)
	case "interface":
		return p.interfaceStmt(base)
	case "set":
		return p.setStmt(base)
	case "default":
		return p.defaultStmt(base)
	case "essential":
		return p.essentialStmt(base)
	case "connections":
		return p.connectionsStmt(base)
	case "prove":
		return p.proveStmt(base)
	case "on":
		return p.onErrorStmt(base)
	case "source":
		return p.sourceStmt(base)
	case "detect":
		return p.detectStmt(base)
	case "use":
		return p.useStmt(base)
	case "profile":
		return p.profileStmt(base)
	case "test":
		return p.testStmt(base)
	}
	return nil, false
}

// attach gives the comments that were met inside a statement, and belong to no part of it, to the
// statement as a whole.
func (p *parser) attach(c *ast.Comments) {
	for _, m := range p.takeComments() {
		if m.Own || c.Trail != "" {
			c.Lead = append(c.Lead, ast.Comment{Text: m.Text, Pos: m.Pos})
		} else {
			c.Trail = m.Text
		}
	}
}

// endOfStatement checks that nothing follows in the line.
func (p *parser) endOfStatement(keyword string) bool {
	switch p.tok.kind {
	case tNewline, tEOF:
		return true
	case tSemi:
		return p.fail("write one statement a line, without \";\".", "expected the end of the line")
	case tRBrace:
		return p.fail("there is no { that it closes.", "expected the end of the line")
	}
	return p.fail(hintStray(p.tok, keyword), "expected the end of the line after %s",
		quote(p.last.text))
}

// sync goes to where the next statement probably begins: the next line, or, when the error was
// inside braces that may lack their end, the next line that starts like a statement.
func (p *parser) sync() {
	for {
		switch p.tok.kind {
		case tEOF:
			return
		case tNewline:
			return
		case tLBrace, tLParen:
			p.depth++
		case tRBrace, tRParen:
			if p.depth > 0 {
				p.depth--
			}
		case tWord:
			if p.depth > 0 && p.startsStatement() {
				p.depth = 0
				return
			}
		}
		p.advance()
	}
}

// startsStatement tells whether the current token begins a line with the word of a statement.
func (p *parser) startsStatement() bool {
	return p.tok.first && p.tok.class&statementWord != 0 &&
		p.tok.text != action.Redirect.String() // which may be a type of ICMP in a list
}

var isStatement = wordSet(actionWords + " " + otherStatements)

// otherStatements begin with no action.
const otherStatements = "interface set out default essential connections prove on source " +
	"detect use profile test"

func wordSet(words string) map[string]bool {
	m := make(map[string]bool)
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// ahead returns the token behind the current one.
func (p *parser) ahead() token {
	lx := p.lx
	lx.errs = &diag.Collector{}
	return lx.next()
}

// word steps over a bare word and returns it.
func (p *parser) word() ast.Word {
	w := ast.Word{Text: p.tok.text, Pos: p.tok.pos}
	p.advance()
	return w
}

// text parses a quoted text; what says its purpose.
func (p *parser) text(what string) (ast.Word, bool) {
	if p.tok.kind == tString {
		return p.word(), true
	}
	hint := "write it in quotes: \"...\"."
	if p.tok.kind == tWord {
		hint = fmt.Sprintf("write \"%s\" in quotes.", strings.Trim(diag.Clip(p.tok.text), "'"))
	}
	return ast.Word{}, p.fail(hint, "expected %s in quotes", what)
}

// tooMany counts a term, and reports one more than a rule or packet may have.
func (p *parser) tooMany(have int, at diag.Pos) bool {
	p.part()
	if have < ast.MaxTerms {
		return false
	}
	p.errs.Errorf(at, "", "more than %d terms in one statement", ast.MaxTerms)
	return true
}

// unknownStatement reports a line that does not start with the word of a statement. Where it is
// clear what was meant, that word is returned, so that the rest of the line can be checked.
// assigned is for NAME = ..., a set without its first word.
func (p *parser) unknownStatement(assigned bool) string {
	switch {
	case p.errs.Full():
		p.fail("", "expected a statement")
	case p.tok.kind == tWord:
		msg, r := statementRemedy(p.tok.text)
		if assigned {
			msg, r = "", foreign.Advice("write: set "+diag.Clip(p.tok.text)+" = ...")
		}
		if msg != "" {
			p.errs.Errorf(p.tok.pos, r.Hint, "%s", msg)
		} else {
			p.fail(r.Hint, "expected a statement (%s, set, default, ...)", actionList)
		}
		return r.Term
	case p.tok.kind == tRBrace:
		p.fail("there is no { that it closes; remove it.", "expected a statement")
	case p.tok.kind == tSemi:
		p.fail("write one statement a line, without \";\".", "expected a statement")
	default:
		p.fail("a line starts with "+actionList+", out, set, default, interface, essential, "+
			"connections, prove, on, source, detect, use or test.", "expected a statement")
	}
	return ""
}
