package diag

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Colours of a terminal (ECMA-48 SGR).
const (
	colorRed    = "\x1b[1;31m"
	colorYellow = "\x1b[1;33m"
	colorGreen  = "\x1b[1;32m"
	colorBold   = "\x1b[1m"
	colorOff    = "\x1b[0m"
)

// Render writes the diagnostics for people: place and message, the line, a caret, the hint. Bytes
// that could act on a terminal are not passed through.
func (ds Diagnostics) Render(w io.Writer, color bool) error {
	b := bufio.NewWriter(w)
	for i := range ds {
		ds[i].render(b, color)
	}
	return b.Flush()
}

// String returns the diagnostic as Render prints it, without colour.
func (d Diagnostic) String() string {
	var s strings.Builder
	b := bufio.NewWriter(&s)
	d.render(b, false)
	b.Flush() // a strings.Builder does not fail
	return strings.TrimSuffix(s.String(), "\n")
}

func (d *Diagnostic) render(b *bufio.Writer, color bool) {
	paint := func(c, s string) string {
		if !color {
			return s
		}
		return c + s + colorOff
	}
	mark := colorRed
	if d.Severity == Warning {
		mark = colorYellow
	}
	fmt.Fprintf(b, "%s %s %s\n", paint(colorBold, printable(d.where())+":"),
		paint(mark, d.Severity.String()+":"), printable(d.Message))
	if d.Line > 0 && d.Source != "" {
		line, before, width := d.caret()
		fmt.Fprintf(b, "    %s\n", line)
		fmt.Fprintf(b, "    %s%s\n", strings.Repeat(" ", before),
			paint(colorGreen, "^"+strings.Repeat("~", width-1)))
	}
	if d.Hint != "" {
		fmt.Fprintf(b, "    %s %s\n", paint(colorBold, "hint:"), printable(d.Hint))
	}
}

// shownWidth is the width of what is shown of a source line, in columns.
const shownWidth = 100

// caret prepares the source line for a terminal: tabs widened to stops of 8, characters that do
// not print replaced, and at most shownWidth columns around the place. It returns also the columns
// before the caret and the width of what it marks.
func (d *Diagnostic) caret() (line string, before, width int) {
	var cells []rune
	col, start, end := d.SourceSkip+1, -1, -1
	for _, r := range d.Source {
		if col == int(d.Col) {
			start = len(cells)
		}
		if col == int(d.EndCol) {
			end = len(cells)
		}
		switch {
		case r == '\t':
			for cells = append(cells, ' '); len(cells)%8 != 0; {
				cells = append(cells, ' ')
			}
		case unicode.IsPrint(r):
			cells = append(cells, r)
		default:
			cells = append(cells, utf8.RuneError)
		}
		col++
	}
	if start < 0 {
		start = len(cells)
	}
	if end < 0 {
		end = max(start+1, len(cells))
	}
	end = max(end, start+1)
	from, to := 0, len(cells)
	if to > shownWidth {
		from = max(0, min(start-shownWidth*2/3, to-shownWidth))
		to = min(to, from+shownWidth)
	}
	line = string(cells[from:to])
	before, width = start-from, min(end, max(to, start+1))-start
	if from > 0 || d.SourceSkip > 0 {
		line, before = "..."+line, before+3
	}
	if to < len(cells) || utf8.RuneCountInString(d.Source) >= windowWidth {
		line += "..."
	}
	return strings.TrimRight(line, " "), before, width
}

// printable replaces what a terminal could take for a command.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, s)
}

// Shown is a name, or a place in a file, as a line of text has it (Quoted). JSON, which escapes by
// itself, has it as it is.
type Shown string

// MarshalText implements encoding.TextMarshaler.
func (s Shown) MarshalText() ([]byte, error) { return []byte(Unquoted(string(s))), nil }

// ShownAll returns a list of them, which JSON shows as [] where it is empty.
func ShownAll(names []string) []Shown {
	out := []Shown{}
	for _, n := range names {
		out = append(out, Shown(n))
	}
	return out
}

// Quoted returns a name as it may be shown in a line of text: unchanged when all of it prints, else
// in double quotes with Go's escapes. Names of files and devices may hold what a terminal takes for
// a command. A name that begins with a double quote is quoted too, so that Unquoted finds each
// name.
func Quoted(name string) string {
	if utf8.ValidString(name) && !strings.HasPrefix(name, `"`) && !strings.ContainsFunc(name,
		func(r rune) bool { return !unicode.IsPrint(r) }) {
		return name
	}
	return strconv.Quote(name)
}

// Unquoted returns what a text that begins with a name as Quoted shows it, such as a place in a
// file, has with the name as it is.
func Unquoted(text string) string {
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil || text[0] != '"' {
		return text
	}
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return text
	}
	return name + text[len(quoted):]
}

// Base returns the last element of a path that is shown as Quoted does, shown in the same way.
func Base(path string) string { return Quoted(filepath.Base(Unquoted(path))) }

// Escaped returns a text of one or more lines, as it may be shown: what does not print, other than
// the ends of lines, is in Go's escapes.
func Escaped(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r == '\n' || unicode.IsPrint(r):
			b.WriteString(text[:n])
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		text = text[n:]
	}
	return b.String()
}

// EscapedJSON is JSON with an escape for each character that a terminal may obey: encoding/json
// leaves those above ASCII as they are, and DEL.
func EscapedJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if unicode.IsPrint(r) {
			out = append(out, text[:n]...)
		} else {
			for _, unit := range utf16.AppendRune(nil, r) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
		text = text[n:]
	}
	return out
}
