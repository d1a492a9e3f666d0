package syntax

import (
	"fmt"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/listform"
)

// listWords are the first words of options of lists, and of what follows them.
const listWords = "header user key password cleartext every change shortest where add"

// ListWords returns the words of a source that is a list.
func ListWords() []string {
	all := strings.Fields("feed crowdsec file url " + listWords)
	for _, f := range listform.All() {
		if word := f.Info().Word; word != "" {
			all = append(all, word)
		}
	}
	return all
}

const (
	feedForm = `write: source "drop" feed url "https://..." every 1h add to abusers lease 3h.`
	csForm   = `write: source "crowdsec" crowdsec url "http://127.0.0.1:8080" ` +
		`key "/etc/levee/crowdsec.key" add to abusers.`
	headerForm = `write: header "Auth-Key" key "/etc/levee/feed.key".`
	userForm   = `write: user "me" password "/etc/levee/feed.password".`
)

// listStmt parses what stands behind the name of a source that is a list.
func (p *parser) listStmt(base ast.Common, name ast.Word) (ast.Stmt, bool) {
	l := &ast.List{Common: base, Name: name, CrowdSec: p.is("crowdsec")}
	p.advance()
	if !p.listPlace(l) || !p.listOptions(l) {
		return nil, false
	}
	if p.is("where") {
		if !l.CrowdSec {
			return nil, p.fail("a feed is taken whole.", "a feed has no conditions")
		}
		p.advance()
		var c ast.Source
		if !p.conditions(&c) {
			return nil, false
		}
		l.Where = c.Where
	}
	if !p.accept("add") {
		hint := feedForm
		if l.CrowdSec {
			hint = csForm
		}
		if p.tok.kind == tWord && oneOf(listWords, p.tok.text) {
			hint = "the order is: header or user, cleartext, every, change, shortest; each " +
				"stands once."
			if p.is("key") {
				hint = headerForm
			}
			if l.CrowdSec {
				hint = "the order is: key, cleartext, every; each stands once."
			}
		}
		return nil, p.fail(hint, "expected \"add\"")
	}
	if !p.listAdd(l) {
		return nil, false
	}
	if p.tok.kind != tWord || p.tok.class&keyword != 0 {
		return nil, p.fail("write the name of a dynamic set.", "expected the name of a set")
	}
	l.Set = p.word()
	if p.accept("lease") {
		return l, p.listWord(&l.Lease, "lease", "a duration", "3h")
	}
	return l, true
}

// listPlace parses where a list comes from.
func (p *parser) listPlace(l *ast.List) bool {
	form, what := feedForm, "expected \"url\" or \"file\", and where the list is"
	if l.CrowdSec {
		form, what = csForm, "expected \"url\" and that of the local API"
	}
	switch {
	case p.is("url"):
		p.advance()
		w, ok := p.text("a URL")
		l.URL = &w
		return ok
	case p.is("file") && !l.CrowdSec:
		p.advance()
		w, ok := p.text("a path")
		l.Path = &w
		return ok
	}
	return p.fail(form, "%s", what)
}

// listOptions parses what stands between the place of a list and its entries.
func (p *parser) listOptions(l *ast.List) bool {
	if l.CrowdSec && p.accept("key") {
		w, ok := p.text("the path of the file with the key")
		if l.Key = &w; !ok {
			return false
		}
	}
	if !l.CrowdSec && !p.listKey(l) {
		return false
	}
	if p.is("cleartext") {
		w := p.word()
		l.Cleartext = &w
	}
	if p.accept("every") && !p.listWord(&l.Every, "every", "a duration", "1h") {
		return false
	}
	if l.CrowdSec {
		return true
	}
	if p.accept("change") && !p.listWord(&l.Change, "change", "a part of the list", "30%") {
		return false
	}
	if !p.accept("shortest") {
		return true
	}
	if !p.listWord(&l.Shortest, "shortest", "the length of a prefix", "/8,16") {
		return false
	}
	if p.tok.kind == tComma {
		p.advance()
		if p.tok.kind != tWord || oneOf(listWords, p.tok.text) {
			return p.fail("write: shortest /8,16.", "expected the length for IPv6")
		}
		l.Shortest.Text += "," + p.tok.text
		l.Shortest.Pos = l.Shortest.Pos.To(p.tok.pos)
		p.advance()
	}
	return true
}

// listKey parses what a feed asks of whoever reads it.
func (p *parser) listKey(l *ast.List) bool {
	form, what, next := headerForm, "the name of a header", "key"
	into := &l.Header
	switch {
	case p.accept("header"):
	case p.accept("user"):
		form, what, next, into = userForm, "the name of a user", "password", &l.User
	default:
		return true
	}
	w, ok := p.text(what)
	if !ok {
		return false
	}
	*into = &w
	if !p.accept(next) {
		return p.fail(form, "expected %q and the path of the file that holds it", next)
	}
	path, ok := p.text("the path of the file with the " + next)
	l.Key = &path
	return ok
}

// listWord parses the value of an option.
func (p *parser) listWord(to **ast.Word, option, what, example string) bool {
	if p.tok.kind != tWord || oneOf(listWords, p.tok.text) {
		return p.fail("write: "+option+" "+example+".", "expected %s after %q", what, option)
	}
	w := p.word()
	*to = &w
	return true
}

// listForm parses what of a list is an entry, if that stands here.
func (p *parser) listForm(l *ast.List) bool {
	for _, f := range listform.All() {
		switch row := f.Info(); {
		case row.Word == "" && p.tok.kind == tString:
			w := p.word()
			l.Form, l.Value = f, &w
			return true
		case row.Word != "" && p.accept(row.Word):
			l.Form = f
			return p.listWord(&l.Value, row.Word, row.What, row.Example)
		}
	}
	return true
}

// listAdd parses `[FORM] to`.
func (p *parser) listAdd(l *ast.List) bool {
	switch {
	case p.accept("to"):
		return true
	case l.CrowdSec:
		return p.fail("write: add to SET.", "expected \"to\" and a set")
	}
	before := p.tok
	switch {
	case !p.listForm(l):
		return false
	case p.accept("to"):
		return true
	case l.Form == listform.Lines && before.kind == tWord:
		return p.fail(formsHint(before.text), "expected \"to\" and a set")
	}
	return p.fail("write: add to SET.", "expected \"to\" and a set")
}

// formsHint says what may stand where a word does.
func formsHint(word string) string {
	var all []string
	for _, form := range listform.All() {
		if f := form.Info(); f.Word == "" {
			all = append(all, fmt.Sprintf("%s in quotes: add %q to SET", f.What, diag.Clip(word)))
		} else {
			all = append(all, fmt.Sprintf("%s: add %s %s to SET", f.What, f.Word, f.Example))
		}
	}
	return "write " + strings.Join(all, "; or ") + "."
}
