package syntax

import (
	"bytes"
	"sort"
	"strings"
	"unicode/utf8"
)

// lineWidth is the number of columns beyond which lists are broken into lines.
const lineWidth = 100

const indent = "    "

// Format prints a file in the one layout of docs/language.md "Layout". Statements that Parse could
// not understand are missing from it, so it is of use only when there were no errors. Formatting
// what Format printed changes nothing.
func Format(f *File) []byte {
	var b bytes.Buffer
	for _, s := range f.Stmts {
		if _, bad := s.(*Bad); bad {
			continue
		}
		c := s.comments()
		printLead(&b, "", c)
		b.WriteString(layout(s))
		if c.Trail != "" {
			b.WriteString(" " + c.Trail)
		}
		b.WriteByte('\n')
	}
	printComments(&b, "", f.End)
	return b.Bytes()
}

// String is the canonical text of a rule: one line, without comments.
func (r *Rule) String() string {
	var pr printer
	pr.rule(r)
	return pr.b.String()
}

// String is the packet of a test step as words, or the entry that it puts into a set.
func (s *Step) String() string {
	var pr printer
	pr.stepWhat(s)
	return pr.b.String()
}

func printLead(b *bytes.Buffer, in string, c *Comments) {
	printComments(b, in, c.Lead)
	if c.Blank {
		blankLine(b)
	}
}

func printComments(b *bytes.Buffer, in string, cs []Comment) {
	for _, c := range cs {
		if c.Blank {
			blankLine(b)
		}
		b.WriteString(in + c.Text + "\n")
	}
}

// blankLine separates by one empty line, except at the top of the file.
func blankLine(b *bytes.Buffer) {
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
}

// layout prints a statement: in one line where it fits and has no comments inside, else with its
// widest lists broken, one after the other, until it fits.
func layout(s Stmt) string {
	if t, ok := s.(*Test); ok {
		return layoutTest(t)
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
		text := pr.b.String()
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

// lists are the lists in a statement, in the order in which they are printed.
func lists(s Stmt) []*Value {
	var ls []*Value
	switch s := s.(type) {
	case *Set:
		if s.List != nil {
			ls = append(ls, s.List)
		}
	case *Rule:
		for _, t := range Ordered(s.Terms) {
			if t.Value != nil && t.Value.List {
				ls = append(ls, t.Value)
			}
		}
	}
	return ls
}

func (v *Value) hasComments() bool {
	if len(v.End) > 0 {
		return true
	}
	for i := range v.Elems {
		if c := v.Elems[i].Comments; c != nil && (len(c.Lead) > 0 || c.Trail != "") {
			return true
		}
	}
	return false
}

// width is the number of columns of the list in one line, near enough to compare lists.
func (v *Value) width() int {
	n := 2
	for i := range v.Elems {
		n += 2 + len(v.Elems[i].Text)
	}
	return n
}

// widest is the width of the widest line, in characters, without a comment at its end.
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
		var pr printer
		pr.step(&t.Steps[0])
		one := head + " " + pr.b.String() + " }"
		if utf8.RuneCountInString(one) <= lineWidth {
			return one
		}
	}
	if len(t.Steps) == 0 && len(t.End) == 0 {
		return head + " }"
	}
	var b bytes.Buffer
	b.WriteString(head + "\n")
	for i := range t.Steps {
		s := &t.Steps[i]
		c := s.Comments
		if i == 0 {
			c = dropFirstBlank(c)
		}
		printLead(&b, indent, &c)
		var pr printer
		pr.step(s)
		b.WriteString(indent + pr.b.String())
		if s.Trail != "" {
			b.WriteString(" " + s.Trail)
		}
		b.WriteByte('\n')
	}
	printComments(&b, indent, t.End)
	b.WriteByte('}')
	return b.String()
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

// printer prints statements without what stands around them. The zero value prints everything
// into one line.
type printer struct {
	b      bytes.Buffer
	broken map[*Value]bool // lists to print one element a line
	in     string          // indentation of the statement
}

func (p *printer) words(ws ...string) {
	for _, w := range ws {
		if n := p.b.Len(); n > 0 {
			p.b.WriteByte(' ')
		}
		p.b.WriteString(w)
	}
}

func quoted(w Word) string { return `"` + w.Text + `"` }

func (p *printer) stmt(s Stmt) {
	switch s := s.(type) {
	case *Interface:
		p.words("interface", s.Name.Text)
	case *Set:
		p.set(s)
	case *Rule:
		p.rule(s)
	case *Default:
		p.words("default", s.Action.Text)
	case *Essential:
		p.words("essential off")
	case *OnError:
		p.words("on error", s.Action.Text)
	}
}

func (p *printer) set(s *Set) {
	p.words("set", s.Name.Text, "=")
	switch {
	case s.List != nil:
		p.value(s.List)
	case s.Path != nil:
		p.words("file(" + quoted(*s.Path) + ")")
	case s.Dynamic != nil:
		d := "dynamic(max " + s.Dynamic.Max.Text
		if s.Dynamic.Lease != nil {
			d += ", lease " + s.Dynamic.Lease.Text
		}
		p.words(d + ")")
	}
}

func (p *printer) rule(r *Rule) {
	p.words(r.Action)
	p.terms(r.Terms)
	if r.Label != nil {
		p.words("as", quoted(*r.Label))
	}
}

// terms prints terms in the order of their kinds, negated ones behind the others of their kind.
func (p *printer) terms(ts []Term) {
	for _, t := range Ordered(ts) {
		p.term(t)
	}
}

// Ordered returns terms in the order in which they are printed.
func Ordered(ts []Term) []*Term {
	order := make([]*Term, len(ts))
	for i := range ts {
		order[i] = &ts[i]
	}
	sort.SliceStable(order, func(i, j int) bool {
		if a, b := order[i], order[j]; a.Kind != b.Kind {
			return a.Kind < b.Kind
		} else {
			return !a.Not && b.Not
		}
	})
	return order
}

// kindWords are the words a term starts with; those with a Name are printed by it.
var kindWords = map[TermKind]string{
	VLAN: "vlan", InnerVLAN: "inner-vlan", Untagged: "untagged",
	Ether: "ether", EtherFrom: "ether from", EtherTo: "ether to",
	Proto: "proto", PacketType: "type", Syn: "syn", Flags: "flags",
	From: "from", FromPort: "from port", To: "to", Port: "port",
	Len: "len", TTL: "ttl", DSCP: "dscp", Frag: "frag", Options: "options",
	Fragments: "fragments", Malformed: "malformed",
}

func (p *printer) term(t *Term) {
	if t.Not {
		p.words("not")
	}
	if t.Name != "" {
		p.words(t.Name)
	} else {
		p.words(kindWords[t.Kind])
	}
	if t.Kind == ICMPType {
		p.words("type")
	}
	if t.Value != nil {
		p.value(t.Value)
	}
}

func (p *printer) value(v *Value) {
	switch {
	case v.List && p.broken[v]:
		p.brokenList(v)
	case v.List:
		elems := make([]string, len(v.Elems))
		for i := range v.Elems {
			elems[i] = v.Elems[i].Text
		}
		if len(elems) == 0 {
			p.words("{ }")
			return
		}
		p.words("{", strings.Join(elems, ", "), "}")
	default:
		if v.Op != "" && v.Op != "=" { // "= 80" is 80
			p.words(v.Op)
		}
		p.words(v.Elems[0].Text)
	}
}

// brokenList prints one element a line, with the comments.
func (p *printer) brokenList(v *Value) {
	p.words("{")
	p.b.WriteByte('\n')
	in := p.in + indent
	for i := range v.Elems {
		e := &v.Elems[i]
		if e.Comments != nil {
			c := *e.Comments
			if i == 0 {
				c = dropFirstBlank(c)
			}
			printLead(&p.b, in, &c)
		}
		p.b.WriteString(in + e.Text + ",")
		if e.Comments != nil && e.Comments.Trail != "" {
			p.b.WriteString(" " + e.Comments.Trail)
		}
		p.b.WriteByte('\n')
	}
	printComments(&p.b, in, v.End)
	p.b.WriteString(p.in + "}")
}

func (p *printer) step(s *Step) {
	p.stepWhat(s)
	if s.Set != nil {
		return
	}
	p.words("expect", s.Expect.Text)
	switch {
	case s.Label != nil:
		p.words("by", quoted(*s.Label))
	case s.By != nil:
		p.words("by", s.By.Text)
	}
}

func (p *printer) stepWhat(s *Step) {
	switch {
	case s.Set != nil:
		p.words("set", s.Set.Text, "has", s.Entry.Text)
	case s.Hex != nil:
		p.words("packet hex", quoted(*s.Hex))
	default:
		p.words("packet")
		p.terms(s.Spec)
	}
}

// Words are the words of a term without its value: "not from port".
func (t *Term) Words() string {
	bare := *t
	bare.Value = nil
	return bare.Text()
}

// Text is the term as it is printed, in one line; a long value is cut short.
func (t *Term) Text() string {
	var pr printer
	if v := t.Value; v != nil && len(v.Elems) > 3 {
		few := *t
		cut := *v
		cut.Elems = append(append([]Elem(nil), v.Elems[:3]...), Elem{Text: "..."})
		few.Value = &cut
		t = &few
	}
	pr.term(t)
	return clip(pr.b.String())
}
