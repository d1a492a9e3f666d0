package pf

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"levee/internal/lang/importer"
	"levee/internal/lang/importer/match"
	"levee/internal/lang/syntax"
)

// pfToken is one token of a pf.conf. A quoted one is a value, whatever it looks like.
type pfToken struct {
	text   string
	quoted bool
	line   int
}

// is tells whether the token is this word or sign of the grammar.
func (t pfToken) is(text string) bool { return !t.quoted && t.text == text }

// maxPFTokens bounds what the macros of a file may grow to.
const maxPFTokens = 1 << 20

// pfStatement is a statement, which may go over several lines.
type pfStatement struct {
	file   string
	line   int
	text   string
	tokens []pfToken
	body   []pfStatement // of an anchor, between its braces
	inline bool          // there is a body
}

// pfReader makes statements of a file.
type pfReader struct {
	name   string
	macros map[string][]pfToken
	tokens []pfToken // all of the file; a newline is a token of its own
	grown  int
}

func (r *pfReader) fail(line int, format string, args ...any) error {
	return &importer.Errors{Name: r.name, Lines: []importer.LineError{{Line: line,
		Text: fmt.Sprintf(format, args...)}}}
}

// read takes the file apart.
func (r *pfReader) read(in io.Reader) error {
	limited := &io.LimitedReader{R: in, N: syntax.MaxSource + 1}
	text, err := io.ReadAll(bufio.NewReader(limited))
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.name, err)
	}
	if len(text) > syntax.MaxSource {
		return r.fail(1, "the input is larger than %d MiB", syntax.MaxSource>>20)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if n++; importer.NoText(line) != "" {
			return r.fail(n, "%s", importer.NoText(line))
		}
	}
	r.tokens, err = r.lex(strings.TrimPrefix(string(text), "\ufeff"), 1)
	return err
}

// signs are tokens of one or two characters.
var pfSigns = []string{"<=", ">=", "!=", "<>", "><", "{", "}", "(", ")", ",", "=", "!", "<", ">"}

// lex splits text into tokens.
func (r *pfReader) lex(text string, line int) (out []pfToken, err error) {
	for i := 0; i < len(text); {
		if len(out) > maxPFTokens {
			return nil, r.fail(line, "more than %d words", maxPFTokens)
		}
		switch c := text[i]; {
		case c == '\n':
			out = append(out, pfToken{text: "\n", line: line})
			line++
			i++
		case c == '\\' && strings.HasPrefix(strings.TrimLeft(text[i+1:], " \t\r"), "\n"):
			i += strings.IndexByte(text[i:], '\n') + 1
			line++
		case c == ' ' || c == '\t' || c == '\r', c == '\\' && i+1 < len(text) && text[i+1] == ' ':
			i++
		case c == '#': // a comment goes on where its line does
			n := strings.IndexByte(text[i:], '\n')
			for n > 0 && text[i+n-1] == '\\' {
				line++
				i += n + 1
				n = strings.IndexByte(text[i:], '\n')
			}
			if i += n; n < 0 {
				i = len(text)
			}
		case c == '"' || c == '\'':
			n := strings.IndexByte(text[i+1:], c)
			if n < 0 || strings.Contains(strings.ReplaceAll(text[i+1:i+1+n], "\\\n", ""), "\n") {
				return nil, r.fail(line, "a quote is not closed")
			}
			word := text[i+1 : i+1+n]
			out = append(out, pfToken{strings.ReplaceAll(word, "\\\n", " "), true, line})
			line += strings.Count(word, "\n")
			i += n + 2
		default:
			word := pfSign(text[i:])
			if word == "" {
				word = pfWord(text[i:])
			}
			out = append(out, pfToken{text: word, line: line})
			i += len(word)
		}
	}
	return out, nil
}

func pfSign(text string) string {
	for _, s := range pfSigns {
		if strings.HasPrefix(text, s) {
			return s
		}
	}
	return ""
}

func pfWord(text string) string {
	rest := text
	if n := strings.IndexAny(text, " \t\r\n{}(),=!<>\"'#"); n >= 0 {
		text = text[:max(n, 1)]
		if strings.HasPrefix(rest[n:], "\n") { // the line goes on
			text = text[:max(len(strings.TrimSuffix(text, "\\")), 1)]
		}
	}
	return text
}

// statements takes statements from the tokens until a closing brace or the end. Macros are kept,
// and put in where they are used.
func (r *pfReader) statements(depth int) (out []pfStatement, err error) {
	for len(r.tokens) > 0 {
		t := r.tokens[0]
		switch {
		case t.is("\n"):
			r.tokens = r.tokens[1:]
			continue
		case t.is("}") && depth > 0:
			return out, nil
		}
		s, err := r.statement(depth)
		if err != nil {
			return nil, err
		}
		if len(s.tokens) == 0 {
			continue
		}
		if len(out) > importer.MaxRules {
			return nil, r.fail(t.line, "more than %d statements", importer.MaxRules)
		}
		out = append(out, s)
	}
	if depth > 0 {
		return nil, r.fail(0, "a brace is not closed")
	}
	return out, nil
}

// statement takes one statement to the end of its line; lists between braces go over lines. The
// braces behind an anchor hold statements.
func (r *pfReader) statement(depth int) (s pfStatement, err error) {
	s.file, s.line = r.name, r.tokens[0].line
	anchor := r.tokens[0].is("anchor")
	macro := len(r.tokens) > 1 && r.tokens[1].is("=") && !r.tokens[0].quoted
	var words []string
	open := 0
	for len(r.tokens) > 0 {
		t := r.tokens[0]
		switch {
		case t.is("\n"):
			r.tokens = r.tokens[1:]
			if open > 0 {
				continue
			}
			return r.end(s, words, macro)
		case t.is("{") && anchor && open == 0 && r.opensBody():
			if depth > 8 {
				return s, r.fail(t.line, "anchors are nested too deep")
			}
			r.tokens = r.tokens[1:]
			if s.body, err = r.statements(depth + 1); err != nil {
				return s, err
			}
			r.tokens = r.tokens[1:] // the closing brace
			s.inline = true
			continue
		case t.is("{"):
			open++
		case t.is("}") && open == 0 && depth > 0:
			return r.end(s, words, macro)
		case t.is("}"):
			open = max(open-1, 0)
		}
		r.tokens = r.tokens[1:]
		words = append(words, t.text)
		more := []pfToken{t}
		if name, has := strings.CutPrefix(t.text, "$"); has && !t.quoted {
			if more, err = r.expand(name, t); err != nil {
				return s, err
			}
		}
		if r.grown += len(more); r.grown > maxPFTokens {
			return s, r.fail(t.line, "macros make it more than %d words", maxPFTokens)
		}
		s.tokens = append(s.tokens, more...)
	}
	if open > 0 {
		return s, r.fail(s.line, "a brace is not closed")
	}
	return r.end(s, words, macro)
}

// opensBody tells whether the brace that comes ends its line, as the one of an anchor's rules does.
func (r *pfReader) opensBody() bool { return len(r.tokens) > 1 && r.tokens[1].is("\n") }

// end finishes a statement; a macro is remembered and is none.
func (r *pfReader) end(s pfStatement, words []string, macro bool) (pfStatement, error) {
	s.text = importer.Printable(strings.Join(words, " "), 160)
	if !macro {
		return s, nil
	}
	var value []pfToken
	for _, t := range s.tokens[2:] {
		if !t.quoted {
			value = append(value, t)
			continue
		}
		inner, err := r.lex(t.text, t.line) // what is between quotes is read when it is used
		if err != nil {
			return s, err
		}
		value = append(value, inner...)
	}
	r.macros[s.tokens[0].text] = value
	return pfStatement{}, nil
}

// expand puts in a macro. Of `$ext_if:network` the macro is what stands before the colon.
func (r *pfReader) expand(name string, t pfToken) ([]pfToken, error) {
	name, suffix, has := strings.Cut(name, ":")
	value, ok := r.macros[name]
	if !ok {
		return nil, r.fail(t.line, "there is no macro %s before this line", match.Quote("$"+name))
	}
	out := append([]pfToken{}, value...)
	for i := range out {
		out[i].line = t.line
	}
	if has && len(out) > 0 {
		out[len(out)-1].text += ":" + suffix
	}
	return out, nil
}
