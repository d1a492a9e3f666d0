package syntax

import (
	"bytes"
	"sort"
	"strings"
)

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
		if a, b := order[i], order[j]; a.rank() != b.rank() {
			return a.rank() < b.rank()
		} else {
			return !a.Not && b.Not
		}
	})
	return order
}

// rank is the kind, but one for all fields and bytes of a packet: options lie in the packet in the order of their words.
func (t *Term) rank() TermKind {
	if t.Kind == PacketBytes {
		return PacketField
	}
	return t.Kind
}

// kindWords are the words a term starts with; those with a Name are printed by it.
var kindWords = map[TermKind]string{
	VLAN: "vlan", InnerVLAN: "inner-vlan", Untagged: "untagged",
	Ether: "ether", EtherFrom: "ether from", EtherTo: "ether to",
	Proto: "proto", PacketType: "type", Syn: "syn", Flags: "flags",
	From: "from", FromPort: "from port", To: "to", Port: "port",
	Len: "len", TTL: "ttl", DSCP: "dscp", Frag: "frag", Options: "options",
	Fragments: "fragments", Malformed: "malformed", // PacketField and PacketBytes have a Name
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
		if t.Value.Walk != nil {
			p.walk(t.Value.Walk)
		}
	}
}

func (p *printer) value(v *Value) {
	switch {
	case v.Hex:
		p.words("hex", quoted(Word{Text: v.Elems[0].Text}))
	case v.Text:
		p.words(quoted(Word{Text: v.Elems[0].Text}))
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
