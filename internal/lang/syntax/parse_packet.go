package syntax

import (
	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// testStmt parses `test "NAME" { steps }`. An error in a step does not spoil the other steps.
func (p *parser) testStmt(base ast.Common) (ast.Stmt, bool) {
	p.advance()
	if p.tok.kind == tLBrace {
		return nil, p.fail("write: test \"ssh passes\" { ... }.",
			"expected the name of the test in quotes")
	}
	name, ok := p.text("the name of the test")
	if !ok {
		return nil, false
	}
	t := &ast.Test{Common: base, Name: name}
	if p.tok.kind != tLBrace {
		return nil, p.fail("write: test \"...\" { packet tcp port 22 expect pass }.",
			"expected { after the name of the test")
	}
	open := p.tok
	p.depth++
	p.advance()
	for p.tok.kind != tRBrace {
		if p.tok.kind == tEOF || p.startsStatement() && !p.is("set") || p.setStatementAhead() {
			return nil, p.unclosed(open)
		}
		s := ast.Step{Pos: p.tok.pos,
			Comments: ast.Comments{Lead: p.takeComments(), Blank: p.tok.blank}}
		p.part()
		if !p.step(&s) {
			p.syncStep(s.Pos)
			continue
		}
		p.attachStep(&s.Comments)
		t.Steps = append(t.Steps, s)
	}
	t.End = p.takeComments()
	p.depth--
	p.advance()
	return t, true
}

// attachStep gives the comments in and behind a step to it; those in the lines below are left for
// what follows.
func (p *parser) attachStep(c *ast.Comments) {
	rest := p.pending
	end := 0
	for end < len(rest) && rest[end].Pos.Line <= p.last.pos.Line {
		end++
	}
	p.pending = rest[:end:end]
	p.attach(c)
	p.pending = rest[end:]
}

// setStatementAhead tells whether `set NAME =` stands here: a statement, not a step.
func (p *parser) setStatementAhead() bool {
	if !p.is("set") || !p.tok.first {
		return false
	}
	lx := p.lx
	lx.errs = &diag.Collector{}
	return lx.next().kind == tWord && lx.next().text == "="
}

// syncStep goes from the step that began at start to the next one, the end of the test, or the
// next statement.
func (p *parser) syncStep(start diag.Pos) {
	for {
		switch {
		case p.tok.kind == tEOF, p.tok.kind == tRBrace:
			return
		case p.tok.pos != start && (p.is("packet") || p.startsStatement()):
			return
		}
		p.advance()
	}
}

func (p *parser) step(s *ast.Step) bool {
	switch {
	case p.accept("set"):
		return p.setStep(s)
	case p.accept("packet"):
	case p.is("expect"):
		return p.fail("write the packet first: packet tcp port 22 expect pass.", "expected packet")
	default:
		hint := "write: packet tcp port 22 expect pass."
		if p.tok.kind == tWord {
			if m := spell(p.tok.text, "packet set"); m != "" {
				hint = m
			}
		}
		return p.fail(hint, "expected packet, set or } in a test")
	}
	if p.accept("hex") {
		text, ok := p.text("the frame as hex digits")
		if !ok {
			return false
		}
		s.Hex = &text
		if !p.packetEnd() {
			return p.fail("a frame given in hex is complete; nothing else describes it.",
				"expected expect")
		}
	}
	for !p.packetEnd() {
		t, ok := p.packetWord()
		if !ok || p.tooMany(len(s.Spec), t.Pos) {
			return false
		}
		s.Spec = append(s.Spec, t)
	}
	if s.Leaves = p.accept("leaves"); s.Leaves && !p.is("expect") {
		return true
	}
	p.advance()
	return p.expectation(s)
}

// packetEnd tells whether what a packet ends with stands here.
func (p *parser) packetEnd() bool { return p.is("expect") || p.is("leaves") }

// setStep parses the rest of `set NAME has ADDRESS`.
func (p *parser) setStep(s *ast.Step) bool {
	if p.tok.kind != tWord {
		return p.fail("", "expected the name of a dynamic set after \"set\"")
	}
	w := p.word()
	s.Set = &w
	if !p.accept("has") {
		return p.fail("in a test write: set "+diag.Clip(w.Text)+" has 192.0.2.1.",
			"expected has after the name of the set")
	}
	e := ast.Elem{Text: p.tok.text, Pos: p.tok.pos}
	switch {
	case p.tok.kind == tString: // a name
		e.Text = ast.Quoted(ast.Word{Text: p.tok.text})
	case p.tok.kind != tWord || p.tok.class&keyword != 0:
		return p.fail("one entry a step.", "expected an address after \"has\"")
	}
	p.advance()
	if p.endpointService(e.Text) {
		p.joinService(&e)
	}
	s.Entry = ast.Word{Text: e.Text, Pos: e.Pos}
	return true
}

// expectation parses what follows `expect`.
func (p *parser) expectation(s *ast.Step) bool {
	if p.is(action.Redirect.String()) {
		s.Expect = p.word()
	} else if v, ok := p.verdictWord("expect"); ok {
		s.Expect = v
	} else {
		return false
	}
	if !p.accept("by") {
		return true
	}
	switch {
	case p.tok.kind == tString:
		w := p.word()
		s.Label = &w
	case p.is("protect"), p.is("malformed"), p.is("essential"), p.is("default"):
		w := p.word()
		s.By = &w
	default:
		hint := ""
		if p.tok.kind == tWord && p.tok.class&keyword == 0 {
			if hint = spell(p.tok.text, "protect malformed essential default"); hint == "" {
				hint = "write the label in quotes: by \"" + diag.Clip(p.tok.text) + "\"."
			}
		}
		return p.fail(hint, "expected a label in quotes, protect, malformed, essential or "+
			"default after \"by\"")
	}
	return true
}

// bytesWords are the words of packets that take bytes. Like ast.FieldWords they are no keywords: a
// set may have such a name.
const bytesWords = "payload ip-options tcp-options hop-options dest-options routing sack-permitted"

var (
	isFieldWord = wordSet(ast.FieldWords)
	isBytesWord = wordSet(bytesWords)

	isPacketWord = wordSet(packetWords)
)

// packetWord parses one word of a packet, with its value.
func (p *parser) packetWord() (ast.Term, bool) {
	t := ast.Term{Pos: p.tok.pos}
	if p.tok.kind != tWord {
		return t, p.fail(p.hintPacketEnd(), "expected a word of a packet%s", p.orExpect())
	}
	word := p.tok.text
	ok := true
	switch s, found := ast.PacketOnly[word]; {
	case found:
		t.Kind = s.Kind
		p.advance()
		ok = s.What == "" || p.value(&t, word, s.What, false)
	case word == "inner":
		t.Kind, t.Field = ast.Inner, field.Inner
		template := p.template
		p.template = false // nothing varies within
		ok = p.inner(&t, p.innerPacketWord)
		p.template = template
	case p.tok.class&fieldWord != 0:
		t.Kind, t.Name = ast.PacketField, word
		p.advance()
		ok = p.value(&t, word, "a number", false)
	case p.tok.class&bytesWord != 0:
		t.Kind, t.Name = ast.PacketBytes, word
		p.advance()
		ok = p.packetBytes(&t)
	case p.template && word == "expect":
		return t, p.fail("a template says what to send, not what becomes of it; leave it out.",
			"expected a word of a packet")
	case oneOf("not untagged fragments malformed packet", word):
		return t, p.fail(hintPacket(word), "expected a word of a packet%s", p.orExpect())
	case word == reversePath && p.reverseless():
		t.Kind, t.Field, t.Name = ast.Alone, field.LoosePath, ast.NoWayBack
	case word == "icmp", word == "icmp6": // `type` is a word of its own here
		t.Kind, t.Field, t.Name = ast.ProtoName, field.Proto, word
		p.advance()
	default:
		if p.tok.class&(familyWord|protoWord) == 0 && simple[word].what == "" &&
			!isOrigin[word] && senders[word] == field.None &&
			!oneOf("flags from to ether syn dns "+reversePath, word) {
			return t, p.fail(hintPacket(word), "expected a word of a packet%s", p.orExpect())
		}
		ok = p.termWord(&t)
	}
	t.Pos = t.Pos.To(p.last.pos)
	if !ok || t.Value == nil {
		return t, ok
	}
	if p.template {
		return t, p.walk(&t)
	}
	if t.Value.List || t.Value.Op != ast.NoOp {
		p.errs.Errorf(t.Value.Pos, "write one value; use several packets to try several.",
			"a packet has one value here")
		return t, false
	}
	return t, true
}

// reverseless takes the words of ast.NoWayBack, if they stand here.
func (p *parser) reverseless() bool {
	ahead := p.lx
	ahead.errs = &diag.Collector{}
	if ahead.next().text != "none" {
		return false
	}
	p.advance()
	p.advance()
	return true
}

// innerPacketWord parses a word of the packet within a tunnel.
func (p *parser) innerPacketWord() (ast.Term, bool) {
	if p.is("inner") {
		return ast.Term{Pos: p.tok.pos}, p.fail("give a frame of two tunnels in hex.",
			"a packet has one tunnel here")
	}
	return p.packetWord()
}

// orExpect ends a message: in a test what a packet ends with may stand as well.
func (p *parser) orExpect() string {
	if p.template {
		return ""
	}
	return ", or expect"
}

func (p *parser) hintPacketEnd() string {
	if p.template {
		return "write one packet a line: ipv4 udp from 192.0.2.1 port 53."
	}
	return "end the packet with: expect pass, or expect drop."
}

// packetBytes parses what follows payload and the words of options. Those of options may stand
// alone.
func (p *parser) packetBytes(t *ast.Term) bool {
	payload := t.Name == "payload"
	v := &ast.Value{Pos: p.tok.pos}
	switch {
	case t.Name == "sack-permitted":
		return true
	case p.accept("hex"):
		v.Hex = true
	case payload && p.tok.kind == tString:
		v.Text = true
	case payload && (p.is("counting") || p.is("random") && p.template):
	case payload:
		hint := "write payload \"text\", payload hex \"00 01\" or payload counting."
		if p.is("random") {
			hint = "a test is about one packet: write its bytes, payload hex \"00 01\"."
		}
		return p.fail(hint, "expected the bytes after %s", quote(t.Name))
	case t.Name == "ip-options", t.Name == "tcp-options":
		return p.fail("write "+t.Name+" hex \"01 01 01 00\".", "expected hex after %s",
			quote(t.Name))
	default:
		return true
	}
	t.Value = v
	if v.Hex && p.tok.kind != tString {
		_, ok := p.text("the bytes as hex digits")
		return ok
	}
	v.Elems = []ast.Elem{{Text: p.tok.text, Pos: p.tok.pos}}
	p.advance()
	v.Pos = v.Pos.To(p.last.pos)
	return true
}
