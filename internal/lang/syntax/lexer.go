package syntax

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
)

// Bounds on what Parse takes.
const (
	MaxSource     = 64 << 20 // bytes of a policy file
	MaxLine       = 1 << 20  // bytes of one line
	MaxStatements = 1 << 18
	maxParts      = 1 << 22 // statements, terms, elements, steps and comments together
)

type kind uint8

const (
	tEOF kind = iota
	tNewline
	tComment
	tWord
	tString     // text is without the quotes
	tExpression // text is with its slashes: see expression
	tLBrace
	tRBrace
	tLParen
	tRParen
	tComma
	tSemi
	tOp  // = == < <= > >= ! !=
	tBad // reported already
)

type token struct {
	text  string
	pos   diag.Pos
	at    int32 // offset in the source of its first byte
	kind  kind
	class class
	first bool // first of its line
	blank bool // first of its line, and an empty line stands before it
}

// lexer cuts a source into tokens. It is a small value: a copy of it is a place to come back to.
type lexer struct {
	src   string
	off   int
	start int // offset of the first byte of the line, as if all characters up to off had one byte
	line  int32
	empty int32 // line ends since the last token
	fresh bool  // no token in this line yet
	errs  *diag.Collector
}

func newLexer(src string, errs *diag.Collector) lexer {
	src = strings.TrimPrefix(src, diag.BOM)
	return lexer{src: src, line: 1, fresh: true, errs: errs}
}

// col returns the column of off.
func (l *lexer) col() int32 { return int32(l.off - l.start + 1) }

// next returns the next token; at the end of the source tEOF, again and again.
func (l *lexer) next() token {
	if l.fresh && l.off == l.start {
		l.tooLong()
	}
	for l.off < len(l.src) {
		if c := l.src[l.off]; c != ' ' && c != '\t' && (c != '\r' || !l.lineEnd()) {
			break
		}
		l.off++
	}
	col := l.col()
	t := token{first: l.fresh, blank: l.fresh && l.empty > 1,
		pos: diag.Pos{Line: l.line, Col: col, EndCol: col},
		at:  int32(l.off)}
	if l.off >= len(l.src) {
		return t
	}
	c := l.src[l.off]
	if c == '\n' {
		t.kind = tNewline
		l.newline()
		return t
	}
	l.fresh, l.empty = false, 0
	start := l.off
	if plain[c] {
		t.kind = l.word()
	} else {
		t.kind = l.scan(c)
	}
	t.text = l.src[start:l.off]
	t.pos.EndCol = l.col()
	switch t.kind {
	case tWord:
		t.class = classOf(t.text)
	case tString:
		t.text = t.text[1 : len(t.text)-1]
	case tComment:
		t.text = strings.TrimRight(t.text, " \t\r")
	}
	return t
}

func (l *lexer) newline() {
	l.off++
	l.line++
	l.start = l.off
	l.empty++
	l.fresh = true
}

func (l *lexer) peek(n int) byte {
	if l.off+n < len(l.src) {
		return l.src[l.off+n]
	}
	return 0
}

// tooLong reports and steps over a line that is longer than MaxLine.
func (l *lexer) tooLong() {
	rest := l.src[l.off:]
	if len(rest) <= MaxLine || strings.IndexByte(rest[:MaxLine+1], '\n') >= 0 {
		return
	}
	n := strings.IndexByte(rest, '\n')
	if n < 0 {
		n = len(rest)
	}
	l.errs.Errorf(diag.Pos{Line: l.line, Col: 1, EndCol: 2},
		"break the list after its commas, or put the elements into "+
			"a file and use file(\"...\").",
		"this line is %d bytes long; a line may have %d", n, MaxLine)
	l.off += n
	l.start = l.off - 1 // not the start of a line any more
}

// single are the tokens of one character.
var single = [256]kind{'{': tLBrace, '}': tRBrace, '(': tLParen, ')': tRParen, ',': tComma,
	';': tSemi}

// scan steps over one token that starts with c.
func (l *lexer) scan(c byte) kind {
	if k := single[c]; k != tEOF {
		return l.one(k)
	}
	switch c {
	case '=', '<', '>', '!':
		l.one(tOp)
		if l.peek(0) == '=' {
			l.one(tOp)
		}
		return tOp
	case '#':
		return l.comment()
	case '"':
		return l.str()
	}
	return l.word()
}

func (l *lexer) one(k kind) kind {
	l.off++
	return k
}

// over steps over a character of n bytes.
func (l *lexer) over(n int) {
	l.off += n
	l.start += n - 1
}

// comment scans to the end of the line. What could hide or reorder text on a screen is refused.
func (l *lexer) comment() kind {
	k := tComment
	for l.off < len(l.src) && l.src[l.off] != '\n' {
		if c := l.src[l.off]; c >= ' ' && c < 0x7f {
			l.off++
			continue
		}
		r, n := l.rune()
		if r < 0x20 && r != '\t' && !l.lineEnd() || r == 0x7f || bidi(r) || r == utf8.RuneError &&
			n == 1 {
			l.bad(r, n)
			k = tBad
		}
		l.over(n)
	}
	return k
}

// str scans a quoted text, which ends in the same line and knows no escapes.
func (l *lexer) str() kind {
	start := l.col()
	k := tString
	l.one(k)
	for l.off < len(l.src) && l.src[l.off] != '\n' && !l.lineEnd() {
		if c := l.src[l.off]; c >= ' ' && c < 0x7f && c != '"' {
			l.off++
			continue
		}
		r, n := l.rune()
		if r == '"' {
			l.one(k)
			return k
		}
		if !unicode.IsPrint(r) || r == utf8.RuneError && n == 1 {
			l.bad(r, n)
			k = tBad
		}
		l.over(n)
	}
	if k != tBad {
		l.errs.Errorf(diag.Pos{Line: l.line, Col: start, EndCol: l.col()},
			"end the text with \" in the same line.",
			"this quoted text is not closed")
	}
	return tBad
}

// expression returns the next token where an expression between slashes may stand, in one line; a
// slash within it has a backslash before it.
func (l *lexer) expression() (t token, ok bool) {
	for l.off < len(l.src) && (l.src[l.off] == ' ' || l.src[l.off] == '\t') {
		l.off++
	}
	if l.peek(0) != '/' {
		return t, false
	}
	start, col := l.off, l.col()
	t = token{kind: tExpression, first: l.fresh, blank: l.fresh && l.empty > 1,
		pos: diag.Pos{Line: l.line, Col: col, EndCol: col}, at: int32(start)}
	l.fresh, l.empty = false, 0
	l.one(tExpression)
	for l.off < len(l.src) && l.src[l.off] != '\n' && !l.lineEnd() {
		r, n := l.rune()
		switch {
		case r == '/':
			l.one(tExpression)
			t.text, t.pos.EndCol = l.src[start:l.off], l.col()
			return t, true
		case r == '\\' && l.peek(1) == '/':
			l.off++
		case !unicode.IsPrint(r) || r == utf8.RuneError && n == 1:
			l.bad(r, n)
			t.kind = tBad
		}
		l.over(n)
	}
	if t.kind != tBad {
		l.errs.Errorf(diag.Pos{Line: l.line, Col: col, EndCol: l.col()},
			"end the expression with / in the same line; a / "+
				"within it is written \\/.", "this expression is not closed")
	}
	t.kind, t.pos.EndCol = tBad, l.col()
	return t, true
}

// word scans a run of characters that have no meaning of their own.
func (l *lexer) word() kind {
	k := tWord
	for {
		for l.off < len(l.src) && plain[l.src[l.off]] {
			l.off++
		}
		if l.off == len(l.src) || ends[l.src[l.off]] || l.lineEnd() {
			return k
		}
		r, n := l.rune()
		if !unicode.IsLetter(r) || r == utf8.RuneError && n == 1 {
			if k != tBad { // once a word: a binary file has many
				l.bad(r, n)
			}
			k = tBad
		}
		l.over(n)
	}
}

// plain are the bytes of words; ends are those that end one.
var plain, ends = func() (plain, ends [256]bool) {
	for c := '!'; c < 0x7f; c++ {
		plain[c] = true
	}
	for _, c := range " \t\n{}(),;=<>!#\"" {
		plain[c], ends[c] = false, true
	}
	return plain, ends
}()

// pos returns the place where the lexer stands.
func (l *lexer) pos() diag.Pos { return diag.Pos{Line: l.line, Col: l.col(), EndCol: l.col() + 1} }

func (l *lexer) rune() (rune, int) { return utf8.DecodeRuneInString(l.src[l.off:]) }

// lineEnd tells whether a carriage return that belongs to a line end stands here.
func (l *lexer) lineEnd() bool {
	return l.src[l.off] == '\r' && (l.peek(1) == '\n' || l.off+1 == len(l.src))
}

func bidi(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }

// bad reports a character that may not stand in a policy.
func (l *lexer) bad(r rune, n int) {
	pos := l.pos()
	switch {
	case r == utf8.RuneError && n == 1:
		l.errs.Errorf(pos, "save the file as UTF-8.", "byte 0x%02x is not UTF-8 text", l.src[l.off])
	case r == '\r':
		l.errs.Errorf(pos, "end lines with LF or CR LF.", "a carriage return inside the line")
	case strings.ContainsRune("“”„‟«»", r):
		l.errs.Errorf(pos, `write "..." with plain quotes.`, "typographic quote %q", r)
	case r == '\u00a0':
		l.errs.Errorf(pos, "replace it by a plain blank.", "a no-break space (U+00A0)")
	case r == '\ufeff':
		l.errs.Errorf(pos, "remove it.", "a byte order mark inside the text")
	case unicode.IsPrint(r):
		l.errs.Errorf(pos, "", "unexpected character %q", r)
	default:
		l.errs.Errorf(pos, "remove it.", "an invisible character (%s)", fmt.Sprintf("U+%04X", r))
	}
}

// opOf returns the comparison that a sign stands for, or NoOp.
func opOf(sign string) ast.Op {
	switch sign {
	case "<":
		return ast.Less
	case "<=":
		return ast.LessEqual
	case ">":
		return ast.Greater
	case ">=":
		return ast.GreaterEqual
	case "=":
		return ast.Equal
	case "!=":
		return ast.NotEqual
	}
	return ast.NoOp
}
