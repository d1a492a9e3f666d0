package ast

import "levee/internal/lang/listform"

// List is a source that says at any time what all its entries are: `source "NAME" feed ...`, a list
// that others publish, or `source "NAME" crowdsec ...`, the decisions of CrowdSec's local API.
type List struct {
	Common
	Name      Word
	CrowdSec  bool
	Path      *Word // of a file; else URL
	URL       *Word
	Header    *Word // Feed: in which Key is sent
	User      *Word // Feed: whose password Key is
	Key       *Word // the path of the file that holds the key or the password
	Cleartext *Word
	Every     *Word
	Change    *Word         // Feed: percent
	Shortest  *Word         // Feed: the lengths for IPv4 and IPv6, "/8,16"
	Where     []Condition   // CrowdSec
	Form      listform.Form // Feed: what of it is an entry
	Value     *Word         // of Form
	Set       Word
	Lease     *Word
}

func (p *printer) list(l *List) {
	p.words("source", Quoted(l.Name))
	if l.CrowdSec {
		p.words("crowdsec")
	} else {
		p.words("feed")
	}
	p.place(l)
	p.where(l.Where)
	p.words("add")
	p.entries(l)
	p.words("to", l.Set.Text)
	p.option("lease", l.Lease, false)
}

// option prints an option of a list, if it is given.
func (p *printer) option(word string, w *Word, quote bool) {
	switch {
	case w == nil:
	case quote:
		p.words(word, Quoted(*w))
	default:
		p.words(word, w.Text)
	}
}

// place prints where a list comes from, and how it is read.
func (p *printer) place(l *List) {
	p.option("file", l.Path, true)
	p.option("url", l.URL, true)
	p.option("header", l.Header, true)
	p.option("user", l.User, true)
	if l.User != nil {
		p.option("password", l.Key, true)
	} else {
		p.option("key", l.Key, true)
	}
	if l.Cleartext != nil {
		p.words("cleartext")
	}
	p.option("every", l.Every, false)
	p.option("change", l.Change, false)
	p.option("shortest", l.Shortest, false)
}

// entries prints what of a list is an entry.
func (p *printer) entries(l *List) {
	switch word := l.Form.Info().Word; {
	case l.Form == listform.Lines:
	case word == "":
		p.words(Quoted(*l.Value))
	default:
		p.option(word, l.Value, false)
	}
}

// placeText returns what stands in the parentheses of a condition that asks for a list.
func (l *List) placeText() string {
	var p printer
	p.place(l)
	p.entries(l)
	return string(p.b)
}

// Text returns a list in one line, as it is printed.
func (l *List) Text() string {
	var p printer
	p.list(l)
	return string(p.b)
}
