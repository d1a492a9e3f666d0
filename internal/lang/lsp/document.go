package lsp

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"levee/internal/filter/ir"
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
	"levee/internal/lang/resolve"
	"levee/internal/lang/setfile"
	"levee/internal/lang/syntax"
)

// document is a policy that an editor has open.
type document struct {
	uri     string
	version int
	text    string
	lines   []string // without their ends

	tree *ast.File // all statements that could be understood
	diag diag.Diagnostics
	// sets without errors; a set that is being typed is here in its last correct form
	known []*policy.Set
}

// set gives a document another text.
func (d *document) set(text string, version int) {
	d.text, d.version, d.tree = text, version, nil
	d.lines = strings.Split(text, "\n")
	for i, l := range d.lines {
		d.lines[i] = strings.TrimSuffix(l, "\r")
	}
}

// setNamed returns the set of that name, nil if none is known.
func (d *document) setNamed(name string) *policy.Set {
	i := slices.IndexFunc(d.known, func(s *policy.Set) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return d.known[i]
}

// path returns the file of a document; a text that was never saved stands in the current directory.
func path(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return "unsaved.levee"
	}
	return filepath.FromSlash(u.Path)
}

// check parses the text, unless that is done, and finds what `levee check` finds.
func (d *document) check() {
	if d.tree != nil {
		return
	}
	file := path(d.uri)
	tree, ds := syntax.Parse(file, []byte(d.text))
	files := setfile.In(filepath.Dir(file))
	var p *policy.Policy
	if ast.IsProfile(tree) {
		_, p, d.diag = resolve.ParseProfile(file, []byte(d.text), files)
		d.tree = tree
		if p != nil {
			d.known = p.Sets
		}
		return
	}
	p, more := resolve.Resolve(tree, files)
	d.tree, d.diag = tree, diag.Merge(ds, more)
	if d.diag.HasErrors() {
		before := d.known
		d.known = resolve.Sets(tree, files)
		for _, s := range before {
			if d.setNamed(s.Name) == nil {
				d.known = append(d.known, s)
			}
		}
		return
	}
	d.known = p.Sets
	d.diag = diag.Merge(d.diag, ir.Diagnostics(tree, ir.Build(p).Findings))
}

// diagnostics returns the diagnostics of check as editors have them. What is wrong in a set file
// stands in the first line, with its place.
func (d *document) diagnostics() []diagnostic {
	out := []diagnostic{}
	for _, found := range d.diag {
		at, message := found.Pos, found.Message
		if found.File != d.tree.Name {
			message = fmt.Sprintf("%s:%d: %s", found.File, found.Line, message)
			at = diag.Pos{}
		}
		if found.Hint != "" {
			message += "\nhint: " + found.Hint
		}
		severity := 1
		if found.Severity == diag.Warning {
			severity = 2
		}
		out = append(out, diagnostic{d.span(at), severity, "levee", message})
	}
	return out
}

// line returns a line of the text by its number from 0, "" if there is none.
func (d *document) line(n int) string {
	if n < 0 || n >= len(d.lines) {
		return ""
	}
	return d.lines[n]
}

// span returns a place in UTF-16 code units, from 0.
func (d *document) span(p diag.Pos) span {
	n := max(int(p.Line)-1, 0)
	line := d.line(n)
	return span{position{n, units(line, int(p.Col)-1)}, position{n, units(line, int(p.EndCol)-1)}}
}

// units returns how many UTF-16 code units the first characters of a line have.
func units(line string, characters int) (n int) {
	for _, r := range line {
		if characters--; characters < 0 {
			break
		}
		n += utf16.RuneLen(r)
	}
	return n
}

// offset returns the byte of a line where that many UTF-16 code units end.
func offset(line string, units int) int {
	for i, r := range line {
		if units -= utf16.RuneLen(r); units < 0 {
			return i
		}
	}
	return len(line)
}

// word is a word or a quoted text.
type word struct {
	text   string
	quoted bool
	pos    diag.Pos
}

// wordAt returns the word around a position. ok is false in comments and between words.
func (d *document) wordAt(at position) (w word, ok bool) {
	line := d.line(at.Line)
	to := offset(line, at.Character)
	for _, w := range wordsOf(line) {
		if w.from <= to && to <= w.end {
			col := int32(utf8.RuneCountInString(line[:w.from])) + 1
			return word{strings.Trim(line[w.from:w.end], `"`), line[w.from] == '"',
				diag.Pos{Line: int32(at.Line) + 1, Col: col,
					EndCol: col + int32(utf8.RuneCountInString(line[w.from:w.end]))}}, true
		}
	}
	return word{}, false
}

// piece is the place of a word in its line, in bytes.
type piece struct{ from, end int }

// wordsOf returns the words and quoted texts of a line, without its comment. A text that is not
// closed goes to the end.
func wordsOf(line string) (all []piece) {
	for i := 0; i < len(line); {
		switch c := line[i]; {
		case c == '#':
			return all
		case c == '"':
			end := strings.IndexByte(line[i+1:], '"')
			if end < 0 {
				return append(all, piece{i, len(line)})
			}
			all = append(all, piece{i, i + end + 2})
			i += end + 2
		case strings.IndexByte(" \t{}(),;=<>!", c) >= 0:
			i++
		default:
			end := strings.IndexAny(line[i:], " \t{}(),;=<>!#\"")
			if end < 0 {
				end = len(line) - i
			}
			all = append(all, piece{i, i + end})
			i += end
		}
	}
	return all
}
