package syntax

import (
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
)

// AllValues is the element of a value in a template that says only how to walk it: all that the
// field can have.
const AllValues = ""

// walkModes are the words for the order of values.
const walkModes = "counting random permuted"

// maxPackets is the largest number of packets that a template may have.
const maxPackets = 1024

// Packets is one parsed template: packets in the words of `test` statements, one a line, whose
// values may vary.
type Packets struct {
	Name string // as given to ParsePackets
	List []Packet

	src string
}

// Packet is one line of a template.
type Packet struct {
	Pos  diag.Pos
	Hex  *ast.Word  // hex "...", with or without the word packet before it
	Spec []ast.Term // as written
}

// Diagnostics completes what was collected about a template with the lines of its source.
func (t *Packets) Diagnostics(c *diag.Collector) diag.Diagnostics { return c.Diagnostics(t.src) }

// ParsePackets reads a template. It always returns one; when the diagnostics have errors, with
// those packets only that could be understood.
func ParsePackets(name string, src []byte) (*Packets, diag.Diagnostics) {
	errs := &diag.Collector{File: name}
	t := &Packets{Name: name}
	if !t.take(src, errs) {
		return t, errs.Diagnostics(t.src)
	}
	p := &parser{lx: newLexer(t.src, errs), file: &ast.File{Name: name}, errs: errs, template: true}
	p.advance()
	for {
		for p.tok.kind == tNewline {
			p.advance()
		}
		if p.tok.kind == tEOF {
			break
		}
		if len(t.List) == maxPackets {
			p.stop(p.tok.pos, "ranges and lists make many packets of one line.",
				"a template has at most %d packets", maxPackets)
			break
		}
		p.part()
		k := Packet{Pos: p.tok.pos}
		if p.templateLine(&k) {
			t.List = append(t.List, k)
		} else {
			p.endLine()
		}
	}
	if len(t.List) == 0 && errs.Errors() == 0 {
		errs.Errorf(diag.Pos{}, "write: ipv4 udp from 192.0.2.0/24 random port 53.",
			"the template has no packet")
	}
	return t, errs.Diagnostics(t.src)
}

// take keeps the source if it can be a template.
func (t *Packets) take(src []byte, errs *diag.Collector) bool {
	f, ok := readSource(src, errs, "template")
	t.src = f
	return ok
}

// endLine goes to the end of a line that was not understood.
func (p *parser) endLine() {
	p.depth = 0
	for !p.atEnd() {
		p.advance()
	}
}

func (p *parser) templateLine(k *Packet) bool {
	p.accept("packet")
	if p.accept("hex") {
		text, ok := p.text("the frame as hex digits")
		if !ok {
			return false
		}
		k.Hex = &text
		if !p.atEnd() {
			return p.fail("a frame given in hex is complete; nothing else describes it.",
				"expected the end of the line")
		}
		return true
	}
	for !p.atEnd() {
		t, ok := p.packetWord()
		if !ok || p.tooMany(len(k.Spec), t.Pos) {
			return false
		}
		k.Spec = append(k.Spec, t)
	}
	return true
}

// walk parses how a value varies, if anything says so.
func (p *parser) walk(t *ast.Term) bool {
	v := t.Value
	if v.Op != ast.NoOp {
		p.errs.Errorf(v.Pos, "write the values themselves: a range or a list.",
			"a packet has values, not comparisons")
		return false
	}
	if t.Kind == ast.PacketBytes || p.tok.kind != tWord ||
		!oneOf(walkModes+" down step every", p.tok.text) {
		return true
	}
	w := &ast.Walk{Mode: ast.Word{Text: "counting", Pos: p.tok.pos}}
	if !oneOf("down step every", p.tok.text) {
		w.Mode = p.word()
	}
	v.Walk = w
	for p.is("down") || p.is("step") || p.is("every") {
		at := p.word()
		switch {
		case at.Text != "every" && w.Mode.Text != "counting":
			p.errs.Errorf(at.Pos, "only counting has a direction and steps.", "%s after %q",
				quote(at.Text), w.Mode.Text)
			return false
		case at.Text == "down":
			w.Down = true
			continue
		case p.tok.kind != tWord || !isDigits(p.tok.text):
			return p.fail("write: counting step 2, or random every 100.",
				"expected a number after %s", quote(at.Text))
		}
		n := p.word()
		if at.Text == "step" {
			w.Step = &n
		} else {
			w.Every = &n
		}
	}
	v.Pos = v.Pos.To(p.last.pos)
	t.Pos = t.Pos.To(p.last.pos)
	return true
}
