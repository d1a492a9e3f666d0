package ast

import (
	"strings"

	"levee/internal/agent/source"
)

// Source is `source "NAME" FORMAT INPUT [MATCH] [where CONDITION and ...] [match PATTERN]
// [after N within DURATION] add FIELD[/BITS,BITS] to SET [lease DURATION]`.
type Source struct {
	Common
	Name    Word
	Format  Word // eve, json or lines
	Input   Word // a row of package source
	At      Word // what stands behind it: a path, an address, a unit
	Options []InputOption
	Terms   []Term // of flows that are read
	Where   []Condition
	Match   *Value // names, and patterns with their quotes
	After   *Word
	Within  *Word
	Add     Word
	Bits    *Word // `32,64`
	Set     Word
	Lease   *Word
}

// InputOption is a text behind a word of its own, as the list of Redis'.
type InputOption struct{ Word, Value Word }

// Condition is one condition on a field of an event. The texts of its values have their quotes; an
// expression has its slashes.
type Condition struct {
	Not     bool
	Field   Word
	How     Word   // contains, begins, ends, matches or in; "" for a Value with an Op, or a list
	Value   *Value // a list, or one element with an Op; nil with in
	File    Word   // with in: the path of a list
	Feed    *List  // with in: a list of texts that is fetched; in place of File
	AnyCase bool   // capital letters and small ones are the same
}

func (p *printer) source(s *Source) {
	p.words("source", Quoted(s.Name))
	row := source.Input(s.Input.Text)
	if row.Format == "" {
		p.words(s.Format.Text)
	}
	p.words(s.Input.Text)
	if row.At.Words != nil {
		p.words(s.At.Text)
	} else {
		p.words(Quoted(s.At))
	}
	p.terms(s.Terms)
	for i := range s.Options {
		p.words(s.Options[i].Word.Text, Quoted(s.Options[i].Value))
	}
	p.where(s.Where)
	if s.Match != nil {
		p.words("match")
		p.value(s.Match)
	}
	if s.After != nil {
		p.words("after", s.After.Text, "within", s.Within.Text)
	}
	p.words("add", s.Add.Text)
	if s.Bits != nil {
		p.b = append(append(p.b, '/'), s.Bits.Text...)
	}
	p.words("to", s.Set.Text)
	if s.Lease != nil {
		p.words("lease", s.Lease.Text)
	}
}

// where prints conditions.
func (p *printer) where(all []Condition) {
	for i := range all {
		c := &all[i]
		if i == 0 {
			p.words("where")
		} else {
			p.words("and")
		}
		if c.Not {
			p.words("not")
		}
		p.words(c.Field.Text)
		switch {
		case c.How.Text == "in":
			if c.Feed != nil {
				p.words("in", "feed("+c.Feed.placeText()+")")
			} else {
				p.words("in", "file("+Quoted(c.File)+")")
			}
		case c.How.Text != "":
			p.words(c.How.Text)
			p.value(c.Value)
		case c.Value.Op == Equal:
			p.words("=")
			p.value(c.Value)
		default:
			p.value(c.Value)
		}
		if c.AnyCase {
			p.words("any", "case")
		}
	}
}

// Flows returns the match of the flows that are read, as it is printed.
func (s *Source) Flows() string {
	var p printer
	p.terms(s.Terms)
	return strings.TrimSpace(string(p.b))
}

// Text returns a source in one line, as it is printed.
func (s *Source) Text() string {
	var p printer
	p.source(s)
	return string(p.b)
}
