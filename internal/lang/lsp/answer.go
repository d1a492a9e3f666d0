package lsp

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/eve"
	"levee/internal/lang/logline"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
)

// hover says what a word means, what a set holds, or which rule has a label.
func (d *document) hover(at position) *hover {
	w, ok := d.wordAt(at)
	if !ok {
		return nil
	}
	text := d.aboutLabel(w)
	if !w.quoted {
		if text = d.aboutSet(w.text); text == "" {
			text = meaning(w.text)
		}
	}
	if text == "" {
		return nil
	}
	return &hover{markup{"markdown", text}, d.span(w.pos)}
}

// aboutLabel returns the rule of a label.
func (d *document) aboutLabel(w word) string {
	r := d.labelled(w)
	if r == nil {
		return ""
	}
	return fmt.Sprintf("The label of the rule in line %d, and of its counter:\n\n%s",
		r.Place().Line, code(string(r.AppendText(nil))))
}

// labelled returns the first rule with a label.
func (d *document) labelled(w word) *ast.Rule {
	if !w.quoted {
		return nil
	}
	for _, s := range d.tree.Stmts {
		if r, ok := s.(*ast.Rule); ok && r.Label != nil && r.Label.Text == w.text {
			return r
		}
	}
	return nil
}

// code returns a text in a block of its own, which none of its characters ends.
func code(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}

// aboutSet returns what a set holds.
func (d *document) aboutSet(name string) string {
	s := d.setNamed(name)
	if s == nil {
		return ""
	}
	if s.Kind == policy.Dynamic {
		lease := "until deleted"
		if s.Lease > 0 {
			lease = "for " + s.Lease.String()
		}
		return fmt.Sprintf("Dynamic set of %s: at most %d entries, each %s. "+
			"`levee set list %s` shows them.", s.Type, s.Max, lease, s.Name)
	}
	first, n := elements(s)
	more := ""
	if n > len(first) {
		more = fmt.Sprintf("\n... and %d more", n-len(first))
	}
	return fmt.Sprintf("Set of %d %s:\n\n%s", n, s.Type,
		code(strings.Join(first, "\n")+more))
}

// elements returns the first elements of a set, and how many there are.
func elements(s *policy.Set) (first []string, n int) {
	const most = 12
	for text := range s.Texts() {
		if n++; n <= most {
			first = append(first, text)
		}
	}
	return first, n
}

// definition returns where a set is defined, or the rule of a label that a test names.
func (d *document) definition(at position) *location {
	w, ok := d.wordAt(at)
	if !ok {
		return nil
	}
	if r := d.labelled(w); r != nil {
		return &location{d.uri, d.span(r.Label.Pos)}
	}
	for _, s := range d.tree.Stmts {
		if s, ok := s.(*ast.Set); ok && !w.quoted && s.Name.Text == w.text {
			return &location{d.uri, d.span(s.Name.Pos)}
		}
	}
	return nil
}

// format returns the edits that lay the text out; none where it has errors, as for `levee fmt`.
func (d *document) format() []textEdit {
	if d.tree.Failed {
		return []textEdit{}
	}
	text := string(ast.Format(d.tree))
	if text == d.text {
		return []textEdit{}
	}
	return []textEdit{{span{End: position{Line: len(d.lines)}}, text}}
}

// complete returns the words that may stand at a position, by the words before it in the line.
func (d *document) complete(at position) []item {
	line := d.line(at.Line)
	line = line[:offset(line, at.Character)]
	var before []string
	for _, w := range wordsOf(line) {
		before = append(before, line[w.from:w.end])
	}
	if n := len(before); n > 0 && !strings.HasSuffix(line, " ") {
		if strings.ContainsAny(line[len(line)-1:], `{(,`) {
			before = append(before, "") // a new element
		}
		if last := before[len(before)-1]; strings.HasPrefix(last, `"`) {
			return d.labels()
		}
		before = before[:len(before)-1] // the word that is being typed
	}
	words := func(ws ...string) (all []item) {
		for _, w := range ws {
			all = append(all, keyword(w))
		}
		return all
	}
	if len(before) == 0 {
		return words(append(syntax.Statements(), "packet")...)
	}
	if before[0] == "out" {
		if before = before[1:]; len(before) == 0 {
			return words(leavingStatements()...)
		}
	}
	switch last := before[len(before)-1]; last {
	case "essential":
		return words("off")
	case "connections":
		return words("max")
	case "on":
		return words("error")
	case "default", "error", "else":
		return words("pass", "drop")
	case "expect":
		return words("pass", "drop", "redirect")
	case "ring":
		return []item{}
	case "by":
		if limits(before[0]) {
			return words("source", "destination", "from", "port", "flow", "dns-name")
		}
		return append(words("protect", "malformed", "essential", "default"), d.labels()...)
	case "as":
		return d.labels()
	case "from", "to", "port":
		all := words("any", "port")
		if last == "to" && before[0] == action.Redirect.String() {
			all = words("ring")
		}
		return append(all, d.sets()...)
	}
	switch first := before[0]; first {
	case "set":
		return append(words("file", "dynamic", "max", "lease", "of", "rollup", "keep", "from",
			"names", "stale", "mmdb", "country", "as", "has"), d.sets()...)
	case "packet", "test":
		return words(append(syntax.PacketWords(), "packet", "set")...)
	case "source":
		return append(words(slices.Concat(eventFields(), syntax.SourceWords(),
			syntax.ListWords())...), d.sets()...)
	case "detect":
		return append(words("to", "above", "observe", "propose", "enforce", "collateral", "keep",
			"lease", "quiet"), d.sets()...)
	case "prove":
		return words("udp", "port", "reply", "payload", "at", "echo", "bytes", "in", "request")
	case "use":
		if len(before) == 1 {
			return profileNames()
		}
		return append(parameters(before[1]), d.sets()...)
	case "interface", "default", "essential", "connections", "on":
		return []item{}
	}
	return append(words(append(ruleWords(before[0]), syntax.TermWords()...)...), d.sets()...)
}

// ruleWords returns the words that an action has beside the terms of its rules.
func ruleWords(word string) (all []string) {
	does, ok := action.Named(word)
	if !ok {
		return nil
	}
	all = strings.Fields(does.Info().Behind)
	switch does {
	case action.Cookie:
		for a := action.SYNs + 1; a < action.NumAnswered; a++ {
			all = append(all, a.Info().Word)
		}
	case action.Track:
		all = append(all, "track")
	case action.Redirect:
		all = append(all, "else")
	}
	return all
}

// limits says whether a rule that begins so has keys behind "by", where tests have who decided.
func limits(word string) bool {
	does, ok := action.Named(word)
	return ok && does == action.Limit
}

// leavingStatements returns the words that may stand behind "out".
func leavingStatements() []string {
	all := []string{"default"}
	for _, row := range action.Table() {
		if row.NoOut == nil {
			all = append(all, row.Word)
		}
	}
	return all
}

// eventFields returns the fields that conditions of sources name, and the names of patterns.
func eventFields() (all []string) {
	for _, f := range eve.Fields() {
		all = append(all, f.Name)
	}
	for _, k := range logline.Library() {
		all = append(all, k.Name)
	}
	return all
}

// keyword returns a word of the language with its meaning.
func keyword(w string) item {
	it := item{Label: w, Kind: kindKeyword}
	if text := meaning(w); text != "" {
		it.Documentation = &markup{"markdown", text}
	}
	return it
}

// sets returns the names of the sets of a document.
func (d *document) sets() (all []item) {
	for _, s := range d.tree.Stmts {
		if s, ok := s.(*ast.Set); ok {
			all = append(all, item{Label: s.Name.Text, Kind: kindVariable})
		}
	}
	return all
}

// labels returns the labels of a document's rules.
func (d *document) labels() []item {
	all := []item{}
	for _, s := range d.tree.Stmts {
		if r, ok := s.(*ast.Rule); ok && r.Label != nil {
			all = append(all, item{Label: r.Label.Text, Kind: kindText})
		}
	}
	return all
}
