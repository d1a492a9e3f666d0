package ast

import (
	"slices"

	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// printer prints statements without what stands around them. The zero value prints everything
// into one line.
type printer struct {
	b      []byte
	begin  int             // where in b the statement begins
	broken map[*Value]bool // lists to print one element a line
	in     string          // indentation of the statement
}

func (p *printer) words(ws ...string) {
	for _, w := range ws {
		if len(p.b) > p.begin {
			p.b = append(p.b, ' ')
		}
		p.b = append(p.b, w...)
	}
}

// line adds what ends a line.
func (p *printer) line(parts ...string) {
	for _, s := range parts {
		p.b = append(p.b, s...)
	}
	p.b = append(p.b, '\n')
}

func Quoted(w Word) string { return `"` + w.Text + `"` }

func (p *printer) stmt(s Stmt) {
	switch s := s.(type) {
	case *Interface:
		p.words("interface")
		p.value(s.Names)
	case *Set:
		p.set(s)
	case *Rule:
		p.rule(s)
	case *Default:
		if s.Out {
			p.words("out")
		}
		p.words("default", s.Action.Text)
	case *Essential:
		p.words("essential off")
	case *Connections:
		p.words("connections max", s.Max.Text)
	case *Prove:
		p.prove(s)
	case *OnError:
		p.words("on error", s.Action.Text)
	case *Source:
		p.source(s)
	case *List:
		p.list(s)
	case *Detect:
		p.detect(s)
	case *Use:
		p.use(s)
	}
}

func (p *printer) set(s *Set) {
	p.words("set", s.Name.Text, "=")
	switch {
	case s.List != nil:
		p.value(s.List)
	case s.Names != nil:
		p.names(s.Names)
	case s.MMDB != nil:
		p.mmdb(s.MMDB)
	case s.Path != nil && s.Of != nil:
		p.words("file(" + Quoted(*s.Path) + ", of " + s.Of.Text + ")")
	case s.Path != nil:
		p.words("file(" + Quoted(*s.Path) + ")")
	case s.Dynamic != nil:
		d := "dynamic("
		if s.Dynamic.Of != nil {
			d += "of " + s.Dynamic.Of.Text + ", "
		}
		d += "max " + s.Dynamic.Max.Text
		if s.Dynamic.Lease != nil {
			d += ", lease " + s.Dynamic.Lease.Text
		}
		if s.Dynamic.RollUp {
			d += ", rollup"
		}
		if s.Dynamic.Keep {
			d += ", keep"
		}
		switch {
		case s.Dynamic.From != nil:
			p.words(d + ", from")
			p.value(s.Dynamic.From)
			p.b = append(p.b, ')')
		case s.Dynamic.Path != nil:
			p.words(d + ", from file(" + Quoted(*s.Dynamic.Path) + "))")
		default:
			p.words(d + ")")
		}
	}
}

// terms prints terms in the order of the table of fields, negated ones behind the others of their
// kind.
func (p *printer) terms(ts []Term) {
	var few [MaxTerms]*Term
	for _, t := range appendOrdered(few[:0], ts) {
		p.term(t)
	}
}

// ordered returns terms in the order in which they are printed.
func ordered(ts []Term) []*Term { return appendOrdered(make([]*Term, 0, len(ts)), ts) }

func appendOrdered(order []*Term, ts []Term) []*Term {
	for i := range ts {
		order = append(order, &ts[i])
	}
	slices.SortStableFunc(order, func(a, b *Term) int { return a.Rank() - b.Rank() })
	return order
}

// Rank orders terms as they are printed: by the rows of the table of fields, negated ones behind
// the others. Fields and bytes of a packet are one row: options lie in the packet in the order of
// their words.
func (t *Term) Rank() int {
	n := 2 * int(rows[t.Kind][t.Field])
	if t.Not {
		n++
	}
	return n
}

// Phrase returns the row of the table of fields with the words of the term.
func (t *Term) Phrase() *field.Phrase { return &field.Phrases[rows[t.Kind][t.Field]] }

// rows are the rows of the table of fields, by kind and field of a term.
var rows = func() (out [numKinds][field.NumFields]uint8) {
	for i := range field.Phrases {
		for _, k := range KindsOf(&field.Phrases[i]) {
			out[k][field.Phrases[i].Field] = uint8(i)
		}
	}
	return out
}()

// KindsOf returns the kinds of terms that a row is about: of several, only those of packets.
func KindsOf(ph *field.Phrase) []TermKind {
	switch ph.Form {
	case field.FormAlone:
		if ph.Field == field.None {
			return []TermKind{Malformed}
		}
		return []TermKind{Alone}
	case field.FormWord:
		if ph.Field == field.Proto {
			return []TermKind{ProtoName}
		}
		return []TermKind{Family}
	case field.FormNumber:
		return []TermKind{Number}
	case field.FormMAC:
		return []TermKind{EtherAddr}
	case field.FormSuffix:
		return []TermKind{Suffix}
	case field.FormBytes:
		return []TermKind{Bytes}
	case field.FormPattern:
		return []TermKind{Pattern}
	case field.FormInner:
		return []TermKind{Inner}
	case field.FormName:
		return []TermKind{DNSName}
	case field.FormSender:
		return []TermKind{Sender}
	case field.FormICMP:
		return []TermKind{ICMPType}
	case field.FormFlags:
		return []TermKind{Flags}
	case field.FormAddress:
		if ph.Field == field.SrcAddr {
			return []TermKind{From}
		}
		return []TermKind{To}
	}
	if only, ok := PacketOnly[ph.Word]; ok {
		return []TermKind{only.Kind}
	}
	return []TermKind{PacketField, PacketBytes}
}

func (p *printer) term(t *Term) {
	if t.Not {
		p.words("not")
	}
	if t.Name != "" {
		p.words(t.Name)
	} else {
		p.words(t.Phrase().Word)
	}
	if t.Kind == ICMPType {
		p.words("type")
	}
	if t.Kind == Inner {
		p.b = append(p.b, '(')
		p.terms(t.Terms)
		p.words(")")
	}
	if t.Kind == DNSName && t.Value != nil && (t.Value.List || !IsQuoted(t.Value.Elems[0].Text)) {
		p.words("in")
	}
	if t.Value != nil {
		p.value(t.Value)
		if t.Value.Walk != nil {
			p.walk(t.Value.Walk)
		}
	}
}

func (p *printer) value(v *Value) {
	switch {
	case v.Hex:
		p.words("hex", Quoted(Word{Text: v.Elems[0].Text}))
	case v.Text:
		p.words(Quoted(Word{Text: v.Elems[0].Text}))
	case v.List && p.broken[v]:
		p.brokenList(v)
	case v.List:
		p.words("{")
		for i := range v.Elems {
			if i > 0 {
				p.b = append(p.b, ',')
			}
			p.words(v.Elems[i].Text)
		}
		p.words("}")
	default:
		if v.Op != NoOp && v.Op != Equal { // "= 80" is 80
			p.words(v.Op.String())
		}
		p.words(v.Elems[0].Text)
	}
	if v.AnyCase {
		p.words("any case")
	}
	if v.Within != nil {
		p.words("within", v.Within.Text, "bytes")
	}
	if v.Unknown {
		p.words("or unknown")
	}
}

// walk prints how a value varies.
func (p *printer) walk(w *Walk) {
	p.words(w.Mode.Text)
	if w.Down {
		p.words("down")
	}
	if w.Step != nil {
		p.words("step", w.Step.Text)
	}
	if w.Every != nil {
		p.words("every", w.Every.Text)
	}
}

// brokenList prints one element a line, with the comments.
func (p *printer) brokenList(v *Value) {
	p.words("{")
	p.line()
	in := p.in + indent
	for i := range v.Elems {
		e := &v.Elems[i]
		if e.Comments != nil {
			c := *e.Comments
			if i == 0 {
				c = dropFirstBlank(c)
			}
			p.lead(in, &c)
		}
		if e.Comments != nil && e.Comments.Trail != "" {
			p.line(in, e.Text, ", ", e.Comments.Trail)
		} else {
			p.line(in, e.Text, ",")
		}
	}
	if v.End != nil {
		p.comments(in, v.End.Lead)
	}
	p.b = append(append(p.b, p.in...), '}')
}

// lead prints what stands in the lines before a thing.
func (p *printer) lead(in string, c *Comments) {
	p.comments(in, c.Lead)
	if c.Blank {
		p.blankLine()
	}
}

func (p *printer) comments(in string, cs []Comment) {
	for _, c := range cs {
		if c.Blank {
			p.blankLine()
		}
		p.line(in, c.Text)
	}
}

// blankLine separates by one empty line, except at the top of the file.
func (p *printer) blankLine() {
	if len(p.b) > 0 {
		p.line()
	}
}

func (p *printer) step(s *Step) {
	p.stepWhat(s)
	if s.Leaves {
		p.words("leaves")
	}
	if s.Set != nil || s.Expect.Text == "" {
		return
	}
	p.words("expect", s.Expect.Text)
	switch {
	case s.Label != nil:
		p.words("by", Quoted(*s.Label))
	case s.By != nil:
		p.words("by", s.By.Text)
	}
}

func (p *printer) stepWhat(s *Step) {
	switch {
	case s.Set != nil:
		p.words("set", s.Set.Text, "has", s.Entry.Text)
	case s.Hex != nil:
		p.words("packet hex", Quoted(*s.Hex))
	default:
		p.words("packet")
		p.terms(s.Spec)
	}
}

// Words returns the words of a term without its value: "not from port".
func (t *Term) Words() string {
	bare := *t
	bare.Value = nil
	return bare.Text()
}

// Text returns the term as it is printed, in one line; a long value is cut short.
func (t *Term) Text() string {
	if v := t.Value; v != nil && len(v.Elems) > 3 {
		few := *t
		cut := *v
		cut.Elems = append(append([]Elem(nil), v.Elems[:3]...), Elem{Text: "..."})
		few.Value = &cut
		t = &few
	}
	return diag.Clip(t.Whole())
}

// Whole returns the term as it is printed, in one line.
func (t *Term) Whole() string {
	var pr printer
	pr.term(t)
	return string(pr.b)
}
