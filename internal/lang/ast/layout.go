package ast

import (
	"sort"
	"strings"
	"unicode/utf8"
)

// lineWidth is the number of columns beyond which lists are broken into lines.
const lineWidth = 100

const indent = "    "

// Format prints a file in the one layout of docs/reference/language.md "Layout". Statements that
// Parse could not understand are missing from it, so it is of use only when there were no errors.
// Formatting what Format printed changes nothing.
func Format(f *File) []byte {
	var p printer
	for _, s := range f.Stmts {
		if _, bad := s.(*Bad); bad {
			continue
		}
		c := s.Remarks()
		p.lead("", c)
		if c.Trail != "" {
			p.line(layout(s), " ", c.Trail)
		} else {
			p.line(layout(s))
		}
	}
	p.comments("", f.End)
	return p.b
}

// String returns the canonical text of a rule: one line, without comments.
func (r *Rule) String() string { return string(r.AppendText(nil)) }

// AppendText appends the canonical text of a rule to b, like String.
func (r *Rule) AppendText(b []byte) []byte {
	p := printer{b: b, begin: len(b)}
	p.rule(r)
	return p.b
}

// String returns the packet of a test step as words, or the entry that it puts into a set.
func (s *Step) String() string {
	var p printer
	p.stepWhat(s)
	return string(p.b)
}

// layout prints a statement: in one line where it fits and has no comments inside, else with its
// widest lists broken, one after the other, until it fits.
func layout(s Stmt) string {
	if t, ok := s.(*Test); ok {
		return layoutTest(t)
	}
	if pr, ok := s.(*Profile); ok {
		return layoutProfile(pr)
	}
	return fit("", lists(s), func(pr *printer) { pr.stmt(s) })
}

// fit prints by out with as few of the lists broken as the width allows. The lists that hold
// comments are always broken.
func fit(in string, ls []*Value, out func(*printer)) string {
	broken := make(map[*Value]bool)
	for _, v := range ls {
		broken[v] = v.hasComments()
	}
	sort.SliceStable(ls, func(i, j int) bool { return ls[i].width() > ls[j].width() })
	for {
		pr := printer{broken: broken, in: in}
		out(&pr)
		text := string(pr.b)
		if widest(text)+len(in) <= lineWidth {
			return text
		}
		next := (*Value)(nil)
		for _, v := range ls {
			if !broken[v] {
				next = v
				break
			}
		}
		if next == nil {
			return text
		}
		broken[next] = true
	}
}

// lists returns the lists in a statement, in the order in which they are printed.
func lists(s Stmt) []*Value {
	var ls []*Value
	switch s := s.(type) {
	case *Interface:
		if s.Names.List {
			ls = append(ls, s.Names)
		}
	case *Set:
		if s.List != nil {
			ls = append(ls, s.List)
		}
		if s.Dynamic != nil && s.Dynamic.From != nil {
			ls = append(ls, s.Dynamic.From)
		}
		if s.MMDB != nil && s.MMDB.Values.List {
			ls = append(ls, s.MMDB.Values)
		}
	case *Detect:
		for _, v := range []*Value{s.To, s.Keep} {
			if v != nil && v.List {
				ls = append(ls, v)
			}
		}
	case *Use:
		for _, a := range s.Args {
			if a.Value.List {
				ls = append(ls, a.Value)
			}
		}
	case *Source:
		for i := range s.Where {
			if v := s.Where[i].Value; v != nil && v.List {
				ls = append(ls, v)
			}
		}
		if s.Match != nil && s.Match.List {
			ls = append(ls, s.Match)
		}
	case *List:
		for i := range s.Where {
			if v := s.Where[i].Value; v != nil && v.List {
				ls = append(ls, v)
			}
		}
	case *Rule:
		for _, t := range ordered(s.Terms) {
			if t.Value != nil && t.Value.List {
				ls = append(ls, t.Value)
			}
		}
		if s.Limit != nil && s.Limit.Rates != nil && s.Limit.Rates.List != nil {
			ls = append(ls, s.Limit.Rates.List)
		}
	}
	return ls
}

func (v *Value) hasComments() bool {
	if v.End != nil {
		return true
	}
	for i := range v.Elems {
		if c := v.Elems[i].Comments; c != nil && (len(c.Lead) > 0 || c.Trail != "") {
			return true
		}
	}
	return false
}

// width returns the number of columns of the list in one line, near enough to compare lists.
func (v *Value) width() int {
	n := 2
	for i := range v.Elems {
		n += 2 + len(v.Elems[i].Text)
	}
	return n
}

// widest returns the width of the widest line, in characters, without a comment at its end.
func widest(text string) int {
	most := 0
	for line := range strings.SplitSeq(text, "\n") {
		if len(line) > most {
			if i := strings.Index(line, " #"); i >= 0 {
				line = line[:i]
			}
			most = max(most, utf8.RuneCountInString(line))
		}
	}
	return most
}

// layoutTest prints a test in one line when it has one step that fits, else one step a line.
func layoutTest(t *Test) string {
	head := "test \"" + t.Name.Text + "\" {"
	if len(t.Steps) == 1 && len(t.End) == 0 && len(t.Steps[0].Lead) == 0 && t.Steps[0].Trail == "" {
		one := head + " " + t.Steps[0].text() + " }"
		if utf8.RuneCountInString(one) <= lineWidth {
			return one
		}
	}
	if len(t.Steps) == 0 && len(t.End) == 0 {
		return head + " }"
	}
	var p printer
	p.line(head)
	for i := range t.Steps {
		s := &t.Steps[i]
		c := s.Comments
		if i == 0 {
			c = dropFirstBlank(c)
		}
		p.lead(indent, &c)
		if s.Trail != "" {
			p.line(indent, s.text(), " ", s.Trail)
		} else {
			p.line(indent, s.text())
		}
	}
	p.comments(indent, t.End)
	return string(append(p.b, '}'))
}

// text returns a step in one line, without comments.
func (s *Step) text() string {
	var p printer
	p.step(s)
	return string(p.b)
}

// dropFirstBlank removes the empty line right behind an opening brace.
func dropFirstBlank(c Comments) Comments {
	if len(c.Lead) == 0 {
		c.Blank = false
		return c
	}
	lead := append([]Comment(nil), c.Lead...)
	lead[0].Blank = false
	c.Lead = lead
	return c
}
