package syntax

import (
	"slices"
	"strings"

	"levee/internal/agent/source"
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
)

const sourceForm = `write: source "ids" eve file "/var/log/suricata/eve.json" ` +
	`where event_type = "alert" add src_ip to abusers lease 1h.`

const (
	sourceFormats = "eve json lines"
	listFormats   = "feed crowdsec" // see listStmt
	sourceParts   = "where and not match after within add to lease"
	conditionHows = "contains begins ends matches in"
)

// SourceWords returns the words of a source.
func SourceWords() []string {
	all := strings.Fields(sourceFormats + " " + sourceInputs())
	for _, r := range source.Inputs {
		for _, o := range r.Options {
			all = append(all, o.Word)
		}
		all = append(all, r.At.Words...)
	}
	return append(all, strings.Fields(sourceParts+" "+conditionHows+" any case addr program")...)
}

// ownFormats returns words of places with a format of their own, which stand in the place of one.
func ownFormats() (all string) {
	for _, r := range source.Inputs {
		if r.Format != "" {
			all += " " + r.Name
		}
	}
	return all
}

// sourceInputs returns the words of places that events come from.
func sourceInputs() string {
	var all []string
	for _, r := range source.Inputs {
		all = append(all, r.Name)
	}
	return strings.Join(all, " ")
}

// sourceStmt parses what begins with `source`.
func (p *parser) sourceStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	s := &ast.Source{Common: base}
	var ok bool
	if s.Name, ok = p.text("a name for the source"); !ok {
		return nil, false
	}
	if p.is("feed") || p.is("crowdsec") {
		return p.listStmt(base, s.Name)
	}
	if row := source.Input(p.tok.text); p.tok.kind == tWord && row != nil && row.Format != "" {
		s.Format = ast.Word{Text: row.Format, Pos: p.tok.pos}
	} else if s.Format, ok = p.oneOfWords(sourceFormats+" "+listFormats+ownFormats(),
		"what the source reads"); !ok {
		return nil, false
	}
	if !p.sourceInput(s) {
		return nil, false
	}
	if p.accept("where") && !p.conditions(s) {
		return nil, false
	}
	if p.accept("match") {
		if s.Match, ok = p.patterns(); !ok {
			return nil, false
		}
	}
	if p.accept("after") && !p.after(s) {
		return nil, false
	}
	if !p.accept("add") {
		hint := "say which field of the event goes into which set: add src_ip to abusers."
		switch {
		case p.tok.kind == tWord && oneOf("or ||", p.tok.text):
			hint = "all conditions of a source must hold; write a list, or a second source."
		case p.tok.kind == tWord && oneOf("&& ,", p.tok.text):
			hint = didYouMean("and")
		case len(s.Where) == 0 && p.tok.kind == tWord && strings.Contains(p.tok.text, "_"):
			hint = "conditions stand behind \"where\"."
		}
		return nil, p.fail(hint, "expected \"add\"")
	}
	if !p.added(s) {
		return nil, false
	}
	if !p.accept("to") {
		return nil, p.fail("write: add "+diag.Clip(s.Add.Text)+" to SET.",
			"expected \"to\" and a set")
	}
	if p.tok.kind != tWord || p.tok.class&keyword != 0 {
		return nil, p.fail("write the name of a dynamic set.", "expected the name of a set")
	}
	s.Set = p.word()
	if p.accept("lease") {
		if p.tok.kind != tWord {
			return nil, p.fail("write a duration such as 30s, 10m, 12h or 7d.",
				"expected a duration after \"lease\"")
		}
		w := p.word()
		s.Lease = &w
	}
	return s, true
}

// added parses the field behind `add`, and the prefix lengths of its address.
func (p *parser) added(s *ast.Source) (ok bool) {
	if p.tok.kind == tWord {
		if field, _, has := strings.Cut(p.tok.text, "/"); has && isEventField(field) {
			s.Add = p.word()
			s.Bits = p.bits(&s.Add)
			return true
		}
	}
	s.Add, ok = p.eventField()
	return ok
}

// oneOfWords parses one of some words.
func (p *parser) oneOfWords(words, what string) (ast.Word, bool) {
	if p.tok.kind == tWord && oneOf(words, p.tok.text) {
		return p.word(), true
	}
	hint := sourceForm
	if p.tok.kind == tWord {
		if m := diag.Nearest(p.tok.text, strings.Fields(words)); m != "" {
			hint = didYouMean(m)
		} else if m := otherWord(p.tok.text); m != "" && oneOf(words, m) {
			hint = didYouMean(m)
		}
	}
	return ast.Word{}, p.fail(hint, "expected %s: %s", what,
		strings.Join(strings.Fields(words), ", "))
}

// otherWord returns what others call what a source reads, by its word here; "": it is none of that.
func otherWord(word string) string {
	for _, r := range source.Inputs {
		if slices.Contains(r.Others, word) {
			return r.Name
		}
	}
	return otherFormats[word]
}

var otherFormats = map[string]string{"suricata": "eve", "EVE": "eve", "eve-log": "eve",
	"ndjson": "json", "text": "lines", "log": "lines", "syslog": "lines"}

// sourceInput parses where the events come from.
func (p *parser) sourceInput(s *ast.Source) (ok bool) {
	if s.Input, ok = p.oneOfWords(sourceInputs(), "where the events come from"); !ok {
		return false
	}
	row := source.Input(s.Input.Text)
	if row.Format != "" && row.Format != s.Format.Text {
		p.errs.Errorf(s.Format.Pos, "leave "+s.Format.Text+" out.", "what %s reads is no %s",
			row.Name, s.Format.Text)
		return false
	}
	if row.At.Words != nil {
		s.At, ok = p.oneOfWords(strings.Join(row.At.Words, " "), row.At.What)
	} else {
		s.At, ok = p.text(row.At.What)
	}
	if !ok || row.Flows != nil && !p.sourceFlows(s) {
		return false
	}
	for i := range row.Options {
		o := &row.Options[i]
		if !p.is(o.Word) {
			if o.Required {
				return p.fail("write: "+row.At.Form+".", "expected %q and %s", o.Word, o.What)
			}
			continue
		}
		word := ast.Word{Text: o.Word, Pos: p.tok.pos}
		p.advance()
		value, ok := p.text(o.What)
		if !ok {
			return false
		}
		s.Options = append(s.Options, ast.InputOption{Word: word, Value: value})
	}
	return true
}

// sourceFlows parses which flows are read: terms, as a rule has them.
func (p *parser) sourceFlows(s *ast.Source) bool {
	match := p.match[:0]
	for p.tok.kind == tWord && !oneOf(sourceParts, p.tok.text) || p.is("not") || p.is("to") {
		t, ok := p.term()
		if !ok || p.tooMany(len(match), t.Pos) {
			return false
		}
		if t.Kind != noTerm {
			match = append(match, t)
		}
	}
	s.Terms, p.match = p.terms.Keep(match), match
	return true
}

// patterns parses what stands behind `match`.
func (p *parser) patterns() (*ast.Value, bool) {
	v := p.values.One()
	v.Pos = p.tok.pos
	if p.tok.kind == tLBrace {
		if !p.bracesOf(v, p.patternElement) {
			return nil, false
		}
		if len(v.Elems) == 0 {
			p.errs.Errorf(v.Pos, "", "this list is empty: no line would match")
			return nil, false
		}
		return v, true
	}
	e, ok := p.patternElement()
	v.Elems = p.elems.Keep([]ast.Elem{e})
	v.Pos = v.Pos.To(p.last.pos)
	return v, ok
}

// patternElement parses a pattern, which keeps its quotes, or the name of one.
func (p *parser) patternElement() (ast.Elem, bool) {
	if p.tok.kind == tWord && p.tok.class&keyword == 0 && !isDigits(p.tok.text) &&
		!(p.depth > 0 && p.last.kind != tComma && p.last.kind != tLBrace) {
		e := ast.Elem{Text: p.tok.text, Pos: p.tok.pos}
		p.endElement(&e)
		return e, true
	}
	if p.tok.kind != tString {
		return ast.Elem{Text: p.tok.text, Pos: p.tok.pos}, p.fail(`write a pattern in quotes, such as `+
			`"login of <text> from <addr> failed", or the name of one, such as sshd-failed.`,
			"expected a pattern")
	}
	return p.eventElement()
}

// endElement steps over an element.
func (p *parser) endElement(e *ast.Elem) {
	p.part()
	if p.depth > 0 && (len(p.pending) > 0 || p.tok.blank) {
		e.Comments = &ast.Comments{Lead: p.takeComments(), Blank: p.tok.blank}
	}
	p.advance()
}

// after parses what stands behind `after`.
func (p *parser) after(s *ast.Source) bool {
	const form = "write: after 5 within 10m."
	if p.tok.kind != tWord || !isDigits(p.tok.text) {
		return p.fail(form, "expected a number of events")
	}
	n := p.word()
	s.After = &n
	if !p.accept("within") {
		return p.fail(form, "expected \"within\" and a duration")
	}
	if p.tok.kind != tWord {
		return p.fail("write a duration such as 30s, 10m or 12h.",
			"expected a duration after \"within\"")
	}
	w := p.word()
	s.Within = &w
	return true
}

// conditions parses what stands behind `where`.
func (p *parser) conditions(s *ast.Source) bool {
	for {
		if p.tooMany(len(s.Where), p.tok.pos) {
			return false
		}
		c := ast.Condition{Not: p.accept("not")}
		var ok bool
		if c.Field, ok = p.eventField(); !ok {
			return false
		}
		if !p.comparison(&c) {
			return false
		}
		if p.accept("any") {
			if !p.accept("case") {
				return p.fail("write: any case.", "expected \"case\" after \"any\"")
			}
			c.AnyCase = true
		}
		s.Where = append(s.Where, c)
		if !p.accept("and") {
			return true
		}
	}
}

// comparison parses what stands behind the field of a condition.
func (p *parser) comparison(c *ast.Condition) (ok bool) {
	if p.tok.kind != tWord || !oneOf(conditionHows, p.tok.text) {
		c.Value, ok = p.eventValue(c.Field.Text)
		return ok
	}
	if p.is("matches") {
		c.How = ast.Word{Text: p.tok.text, Pos: p.tok.pos}
		p.expression()
		if p.tok.kind != tExpression {
			return p.tok.kind != tBad && p.fail("write: "+diag.Clip(c.Field.Text)+
				" matches /libssh[-_][0-9]/.", "expected an expression between slashes")
		}
		c.Value = p.values.One()
		c.Value.Pos = p.tok.pos
		c.Value.Elems = p.elems.Keep([]ast.Elem{{Text: p.tok.text, Pos: p.tok.pos}})
		p.advance()
		return true
	}
	c.How = p.word()
	if c.How.Text == "in" {
		return p.listFile(c)
	}
	if p.tok.kind == tLBrace {
		c.Value, ok = p.eventValue(c.Field.Text)
		return ok
	}
	c.Value = p.values.One()
	c.Value.Pos = p.tok.pos
	e, ok := p.eventElement()
	c.Value.Elems = p.elems.Keep([]ast.Elem{e})
	return ok
}

// listFile parses file("PATH").
func (p *parser) listFile(c *ast.Condition) (ok bool) {
	form := "write: " + diag.Clip(c.Field.Text) + ` in file("/etc/levee/names.txt").`
	if p.tok.kind == tLBrace {
		return p.fail("a list stands directly behind the field: "+diag.Clip(c.Field.Text)+
			" { ... }.", "expected a file")
	}
	if p.is("feed") {
		return p.listFeed(c)
	}
	if !p.accept("file") {
		return p.fail(form, "expected a file, or a feed")
	}
	if p.tok.kind != tLParen {
		return p.fail(form, "expected (")
	}
	p.advance()
	if c.File, ok = p.text("the path of a list, one value a line"); !ok {
		return false
	}
	if p.tok.kind != tRParen {
		return p.fail(form, "expected )")
	}
	p.advance()
	return true
}

// listFeed parses feed(url "URL" ... [column N | "NAME"]).
func (p *parser) listFeed(c *ast.Condition) bool {
	form := "write: " + diag.Clip(c.Field.Text) + ` in feed(url "https://..." every 1h column 2).`
	l := &ast.List{}
	l.Pos = p.tok.pos
	p.advance()
	if p.tok.kind != tLParen {
		return p.fail(form, "expected (")
	}
	p.advance()
	if !p.is("url") && !p.is("file") {
		return p.fail(form, "expected \"url\" or \"file\", and where the list is")
	}
	if !p.listPlace(l) || !p.listOptions(l) {
		return false
	}
	if l.Change != nil || l.Shortest != nil {
		return p.fail("leave it out.", "change and shortest are of lists of addresses")
	}
	if !p.listForm(l) {
		return false
	}
	if p.tok.kind != tRParen {
		return p.fail(form, "expected )")
	}
	c.Feed = l
	p.advance()
	return true
}

// eventField parses the name of a field of an event.
func (p *parser) eventField() (ast.Word, bool) {
	if p.tok.kind == tWord && isEventField(p.tok.text) {
		return p.word(), true
	}
	hint := "a field is a name such as src_ip or alert.severity."
	if p.tok.kind == tString {
		hint = "write the name of a field without quotes, its value with them."
	}
	return ast.Word{}, p.fail(hint, "expected a field of the event")
}

func isEventField(word string) bool {
	for i, c := range word {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '@'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '-' || c == '.')) {
			return false
		}
	}
	return word != "" && word != "not"
}

// eventValue parses the value beside a field.
func (p *parser) eventValue(field string) (*ast.Value, bool) {
	v := p.values.One()
	v.Pos = p.tok.pos
	if p.tok.kind == tLBrace {
		if !p.bracesOf(v, p.eventElement) {
			return nil, false
		}
		if len(v.Elems) == 0 {
			p.errs.Errorf(v.Pos, "", "this list is empty: no event would have one of its values")
			return nil, false
		}
		return v, true
	}
	if p.tok.kind == tOp {
		v.Op = opOf(p.tok.text)
	}
	if v.Op == ast.NoOp {
		hint := "write: " + diag.Clip(field) + " = ..., or a list in braces."
		switch {
		case p.tok.kind == tOp && p.tok.text == "==", p.is("is"):
			hint = didYouMean("=")
		}
		return nil, p.fail(hint, "expected a comparison after %s", quote(field))
	}
	p.advance()
	if p.tok.kind == tLBrace {
		return nil, p.fail(hintCompareList(v.Op.String(), diag.Clip(field)), "expected one value")
	}
	e, ok := p.eventElement()
	v.Elems = p.elems.Keep([]ast.Elem{e})
	v.Pos = v.Pos.To(p.last.pos)
	return v, ok
}

// eventElement parses one value of a field: a number, or a text, which keeps its quotes.
func (p *parser) eventElement() (ast.Elem, bool) {
	e := ast.Elem{Text: p.tok.text, Pos: p.tok.pos}
	switch {
	case p.tok.kind == tString:
		e.Text = `"` + e.Text + `"`
	case p.tok.kind == tWord && (isDigits(e.Text) || oneOf("true false", e.Text)):
	default:
		hint := "write a number, or a text in quotes: \"...\"."
		if p.tok.kind == tWord {
			hint = "write \"" + strings.Trim(diag.Clip(e.Text), "'") + "\" in quotes."
		}
		return e, p.fail(hint, "expected a value")
	}
	p.endElement(&e)
	return e, true
}
