package ast

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
	Change    *Word       // Feed: percent
	Shortest  *Word       // Feed: the lengths for IPv4 and IPv6, "/8,16"
	Where     []Condition // CrowdSec
	Field     *Word       // Feed: of JSON
	Column    *Word       // Feed: of CSV
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
	option := func(word string, w *Word, quote bool) {
		switch {
		case w == nil:
		case quote:
			p.words(word, Quoted(*w))
		default:
			p.words(word, w.Text)
		}
	}
	option("file", l.Path, true)
	option("url", l.URL, true)
	option("header", l.Header, true)
	option("user", l.User, true)
	if l.User != nil {
		option("password", l.Key, true)
	} else {
		option("key", l.Key, true)
	}
	if l.Cleartext != nil {
		p.words("cleartext")
	}
	option("every", l.Every, false)
	option("change", l.Change, false)
	option("shortest", l.Shortest, false)
	p.where(l.Where)
	p.words("add")
	if l.Field != nil {
		p.words(Quoted(*l.Field))
	}
	option("column", l.Column, false)
	p.words("to", l.Set.Text)
	option("lease", l.Lease, false)
}

// Text is a list in one line, as it is printed.
func (l *List) Text() string {
	var p printer
	p.list(l)
	return string(p.b)
}
