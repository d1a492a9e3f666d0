package syntax

// testStmt parses `test "NAME" { steps }`. An error in a step does not spoil the other steps.
func (p *parser) testStmt(base stmt) (Stmt, bool) {
	p.advance()
	if p.tok.kind == tLBrace {
		return nil, p.fail("write: test \"ssh passes\" { ... }.", "expected the name of the test in quotes")
	}
	name, ok := p.text("the name of the test")
	if !ok {
		return nil, false
	}
	t := &Test{stmt: base, Name: name}
	if p.tok.kind != tLBrace {
		return nil, p.fail("write: test \"...\" { packet tcp port 22 expect pass }.", "expected { after the name of the test")
	}
	open := p.tok
	p.depth++
	p.advance()
	for p.tok.kind != tRBrace {
		if p.tok.kind == tEOF || p.startsStatement() && !p.is("set") || p.setStatementAhead() {
			return nil, p.unclosed(open)
		}
		s := Step{Pos: p.tok.pos, Comments: Comments{Lead: p.takeComments(), Blank: p.tok.blank}}
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
func (p *parser) attachStep(c *Comments) {
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
	lx.errs = &Collector{}
	return lx.next().kind == tWord && lx.next().text == "="
}

// syncStep goes from the step that began at start to the next one, the end of the test, or the
// next statement.
func (p *parser) syncStep(start Pos) {
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

func (p *parser) step(s *Step) bool {
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
		if !p.is("expect") {
			return p.fail("a frame given in hex is complete; nothing else describes it.", "expected expect")
		}
	}
	for !p.is("expect") {
		t, ok := p.packetWord()
		if !ok || p.tooMany(len(s.Spec), t.Pos) {
			return false
		}
		s.Spec = append(s.Spec, t)
	}
	p.advance()
	return p.expectation(s)
}

// setStep parses the rest of `set NAME has ADDRESS`.
func (p *parser) setStep(s *Step) bool {
	if p.tok.kind != tWord {
		return p.fail("", "expected the name of a dynamic set after \"set\"")
	}
	w := p.word()
	s.Set = &w
	if !p.accept("has") {
		return p.fail("in a test write: set "+clip(w.Text)+" has 192.0.2.1.", "expected has after the name of the set")
	}
	if p.tok.kind != tWord || isKeyword[p.tok.text] {
		return p.fail("one address or prefix a step.", "expected an address after \"has\"")
	}
	s.Entry = p.word()
	return true
}

// expectation parses what follows `expect`.
func (p *parser) expectation(s *Step) bool {
	v, ok := p.verdictWord("expect")
	if !ok {
		return false
	}
	s.Expect = v
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
		if p.tok.kind == tWord && !isKeyword[p.tok.text] {
			if hint = spell(p.tok.text, "protect malformed essential default"); hint == "" {
				hint = "write the label in quotes: by \"" + clip(p.tok.text) + "\"."
			}
		}
		return p.fail(hint, "expected a label in quotes, protect, malformed, essential or default after \"by\"")
	}
	return true
}

// packetOnly are the words that exist in test packets only.
var packetOnly = map[string]struct {
	kind TermKind
	what string
}{
	"type":    {PacketType, "an ICMP type"},
	"frag":    {Frag, "an offset in units of 8 bytes"},
	"options": {Options, ""},
}

// packetWord parses one word of a packet, with its value.
func (p *parser) packetWord() (Term, bool) {
	t := Term{Pos: p.tok.pos}
	if p.tok.kind != tWord {
		return t, p.fail("end the packet with: expect pass, or expect drop.", "expected a word of a packet, or expect")
	}
	word := p.tok.text
	ok := true
	switch s, found := packetOnly[word]; {
	case found:
		t.Kind = s.kind
		p.advance()
		ok = s.what == "" || p.value(&t, word, s.what, false)
	case oneOf("not untagged fragments malformed packet", word):
		return t, p.fail(hintPacket(word), "expected a word of a packet, or expect")
	case word == "icmp", word == "icmp6": // `type` is a word of its own here
		t.Kind, t.Name = ProtoName, word
		p.advance()
	default:
		if !isFamily[word] && !isProto[word] && simple[word].what == "" && !oneOf("flags from to ether syn", word) {
			return t, p.fail(hintPacket(word), "expected a word of a packet, or expect")
		}
		ok = p.termWord(&t)
	}
	t.Pos = t.Pos.to(p.last.pos)
	if ok && t.Value != nil && (t.Value.List || t.Value.Op != "") {
		p.errs.Errorf(t.Value.Pos, "write one value; use several packets to try several.", "a packet has one value here")
		return t, false
	}
	return t, ok
}
