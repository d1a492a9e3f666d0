package syntax

import (
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// Words that are terms by themselves.
var (
	isFamily = alone(field.EtherType)
	isProto  = alone(field.Proto)
)

// alone returns the words that are terms by themselves, as names of values of a field.
func alone(f field.Field) map[string]bool {
	for i := range field.Phrases {
		if ph := &field.Phrases[i]; ph.Form == field.FormWord && ph.Field == f {
			return wordSet(strings.Join(ph.Words, " "))
		}
	}
	return nil
}

// What a match and a packet may have, for hints. Of two that are as near to what was written, the
// first was meant.
var (
	termWords = "from to port " + strings.Join(phraseWords(func(ph *field.Phrase) bool {
		return ph.Form != field.FormPacket && ph.Form != field.FormICMP
	}), " ") + " not as"
	packetWords = "port " + strings.Join(phraseWords(func(ph *field.Phrase) bool {
		// a packet is something definite, such as syn
		return ph.Form != field.FormAlone || ph.Mask != 0
	}), " ") + " hex expect leaves"
)

// phraseWords returns the single words of some rows of the table of fields, each once.
func phraseWords(of func(ph *field.Phrase) bool) (words []string) {
	seen := make(map[string]bool)
	for i := range field.Phrases {
		ph := &field.Phrases[i]
		if !of(ph) {
			continue
		}
		for _, w := range append(strings.Fields(ph.Word), ph.Words...) {
			if !seen[w] {
				seen[w] = true
				words = append(words, w)
			}
		}
	}
	return words
}

// term parses one term of a match.
func (p *parser) term() (ast.Term, bool) {
	t := ast.Term{Pos: p.tok.pos}
	for p.is("not") {
		if t.Not {
			return t, p.fail("two negations cancel out; remove both.",
				"expected a term after \"not\"")
		}
		t.Not = true
		p.advance()
	}
	if p.tok.kind != tWord {
		hint := hintStray(p.tok, "")
		if t.Not {
			return t, p.fail("write the term that must not hold: not from bogons.",
				"expected a term after \"not\"")
		}
		return t, p.fail(hint, "expected a term, as \"LABEL\" or the end of the line")
	}
	ok := p.termWord(&t)
	t.Pos = t.Pos.To(p.last.pos)
	return t, ok
}

// simpleTerm is a term that is one word, or one word and a number.
type simpleTerm struct {
	kind  ast.TermKind
	field field.Field
	what  string // of the value, "" for none
	// longer holds the fields of terms that are the word and one more, by that
	longer map[string]field.Field
}

// simple are these terms: those of the table of fields with whose word no other begins.
var simple = func() map[string]simpleTerm {
	m := make(map[string]simpleTerm)
	for i := range field.Phrases {
		ph := &field.Phrases[i]
		if (ph.Form == field.FormAlone || ph.Form == field.FormNumber) &&
			!strings.Contains(ph.Word, " ") && ph.Word != "ether" {
			m[ph.Word] = simpleTerm{ast.KindsOf(ph)[0], ph.Field, ph.What, nil}
		}
	}
	for i := range field.Phrases {
		ph := &field.Phrases[i]
		word, more, two := strings.Cut(ph.Word, " ")
		if of, ok := m[word]; ok && two && ph.Form == field.FormAlone {
			if of.longer == nil {
				of.longer = map[string]field.Field{}
			}
			of.longer[more], m[word] = ph.Field, of
		}
	}
	return m
}()

// termWord parses a term from its word on.
func (p *parser) termWord(t *ast.Term) bool {
	word := p.tok.text
	switch class := p.tok.class; {
	case class&simpleWord != 0:
		s := simple[word]
		t.Kind, t.Field = s.kind, s.field
		p.advance()
		for word, longer := range s.longer {
			if p.accept(word) {
				t.Field = longer
			}
		}
		return s.what == "" || p.value(t, word, s.what, true)
	case class&familyWord != 0:
		t.Kind, t.Field, t.Name = ast.Family, field.EtherType, word
		p.advance()
	case class&protoWord != 0:
		t.Kind, t.Field, t.Name = ast.ProtoName, field.Proto, word
		p.advance()
		if p.is("type") && (word == "icmp" || word == "icmp6") {
			t.Kind, t.Field = ast.ICMPType, field.ICMPType
			if word == "icmp6" {
				t.Field = field.ICMP6Type
			}
			p.advance()
			return p.value(t, "type", "an ICMP type", false)
		}
	case word == "flags":
		t.Kind, t.Field = ast.Flags, field.TCPFlags
		p.advance()
		return p.flags(t)
	case word == "payload":
		p.advance()
		if p.is("contains") {
			return p.find(t)
		}
		t.Kind, t.Field = ast.Bytes, field.Payload
		return p.bytes(t)
	case word == "stream":
		p.advance()
		if !p.is("contains") {
			return p.fail(streamRule, "expected \"contains\" after \"stream\"")
		}
		return p.find(t) && p.stream(t)
	case word == "inner":
		t.Kind, t.Field = ast.Inner, field.Inner
		return p.inner(t, p.innerTerm)
	case word == "dns":
		return p.dns(t)
	case isOrigin[word]:
		t.Kind, t.Field, t.Name = ast.Family, field.Local, word
		p.advance()
	case senders[word] != field.None:
		t.Kind, t.Field = ast.Sender, senders[word]
		return p.sender(t, word)
	case word == reversePath:
		return p.reversePath(t)
	case word == "from", word == "to":
		return p.direction(t, word)
	case word == "ether":
		p.advance()
		if p.is("from") || p.is("to") {
			t.Kind, t.Field = ast.EtherAddr, field.SrcMAC
			if p.is("to") {
				t.Field = field.DstMAC
			}
			side := p.word().Text
			return p.value(t, "ether "+side, "an Ethernet address", false)
		}
		t.Kind, t.Field = ast.Number, field.EtherType
		return p.value(t, word, "an EtherType", true)
	case p.errs.Full():
		return p.fail("", "expected a term")
	default:
		return p.unknownTerm(t)
	}
	return true
}

// reversePath is the word that strict and loose stand behind, and in packets none.
const reversePath = "reverse-path"

// reversePath parses what follows it.
func (p *parser) reversePath(t *ast.Term) bool {
	p.advance()
	t.Kind, t.Field = ast.Alone, field.LoosePath
	switch {
	case p.accept("strict"):
		t.Field = field.StrictPath
	case p.accept("loose"):
	default:
		return p.fail("write: drop not reverse-path strict, or: drop not reverse-path loose.",
			"expected strict or loose after %s", quote(reversePath))
	}
	return true
}

// unknownTerm reports a word that begins no term. Where it is clear what was meant, the rest of
// the line is parsed as if that stood there.
func (p *parser) unknownTerm(t *ast.Term) bool {
	msg, r := termRemedy(p.tok.text)
	if msg != "" {
		p.errs.Errorf(p.tok.pos, r.Hint, "%s", msg)
	} else {
		p.fail(r.Hint, "expected a term, as \"LABEL\" or the end of the line")
	}
	switch {
	case r.Skip:
		t.Kind = noTerm
		p.advance()
		return true
	case r.Term == "from port":
		t.Kind, t.Field = ast.Number, field.SrcPort
		p.advance()
		return p.value(t, r.Term, "a port", true)
	case r.Term == "as", r.Term == "not":
		p.read(r.Term)
		t.Kind = noTerm
		return true
	case r.Term != "":
		p.read(r.Term)
		return p.termWord(t)
	}
	return false
}

// noTerm is the kind of a word that was reported and is passed over.
const noTerm ast.TermKind = 255

// bytes parses what follows payload: at, an offset, and bytes, which become one element.
func (p *parser) bytes(t *ast.Term) bool {
	if !p.accept("at") {
		return p.fail(payloadRule, "expected \"at\" or \"contains\" after \"payload\"")
	}
	first := p.tok.pos
	if p.tok.kind != tWord || !isDigits(p.tok.text) {
		return p.fail(payloadRule, "expected an offset after \"payload at\"")
	}
	at := p.word()
	if p.tok.kind != tWord || p.tok.class&keyword != 0 {
		return p.fail(payloadRule, "expected bytes in hexadecimal after the offset")
	}
	v := p.values.One()
	e := p.elems.Take(1)
	e[0] = ast.Elem{Text: at.Text + " " + p.word().Text, Pos: first.To(p.last.pos)}
	v.Elems, v.Pos = e, e[0].Pos
	t.Value = v
	return true
}

// innerRule shows how a rule asks for what a tunnel carries.
const innerRule = "write the match in parentheses: drop udp port 4789 inner( tcp port 22 )."

// inner parses what follows inner: in parentheses the terms that one gives, whose kind may be
// noTerm.
func (p *parser) inner(t *ast.Term, one func() (ast.Term, bool)) bool {
	p.advance()
	if p.tok.kind != tLParen {
		return p.fail(innerRule, "expected ( after \"inner\"")
	}
	open := p.tok
	p.depth++
	p.advance()
	for p.tok.kind != tRParen {
		if p.tok.kind == tEOF || p.tok.first && p.startsStatement() {
			return p.unclosed(open)
		}
		in, ok := one()
		if !ok || p.tooMany(len(t.Terms), in.Pos) {
			return false
		}
		if in.Kind != noTerm {
			t.Terms = append(t.Terms, in)
		}
	}
	p.depth--
	p.advance()
	if len(t.Terms) == 0 {
		p.errs.Errorf(open.pos, "for any packet write: inner( len > 0 ).",
			"this match is empty")
		return false
	}
	return true
}

// innerTerm parses a term of a match within.
func (p *parser) innerTerm() (ast.Term, bool) {
	if p.is("inner") || p.is("not") && p.innerAhead() {
		return ast.Term{Pos: p.tok.pos}, p.fail("what is a tunnel within a tunnel is told by its "+
			"protocol or port.", "\"inner\" looks one tunnel deep")
	}
	return p.term()
}

// innerAhead tells whether the next word is inner.
func (p *parser) innerAhead() bool {
	ahead := p.lx
	ahead.errs = &diag.Collector{}
	return ahead.next().text == "inner"
}

// direction parses from or to, with an address or a port.
func (p *parser) direction(t *ast.Term, word string) bool {
	p.advance()
	addr, port := field.SrcAddr, field.SrcPort
	t.Kind = ast.From
	if word == "to" {
		addr, port = field.DstAddr, field.DstPort
		t.Kind = ast.To
	}
	if p.accept("port") {
		t.Kind, t.Field = ast.Number, port
		return p.value(t, word+" port", "a port", true)
	}
	if p.accept("suffix") {
		t.Kind, t.Field = ast.Suffix, field.SrcSuffix
		if word == "to" {
			t.Field = field.DstSuffix
		}
		return p.value(t, word+" suffix", "an address suffix", false)
	}
	t.Field = addr
	if p.is("not") {
		return p.fail("\"not\" stands before the term: not "+word+" ...",
			"expected an address, a list or a set after %s", quote(word))
	}
	return p.value(t, word, "an address", false)
}

// value parses what follows the word of a term: a comparison, a list or one element.
func (p *parser) value(t *ast.Term, word, what string, compare bool) bool {
	v := p.values.One()
	v.Pos = p.tok.pos
	t.Value = v
	if p.tok.kind == tOp {
		op := p.tok.text
		if v.Op = opOf(op); !compare || v.Op == ast.NoOp {
			return p.fail(hintCompare(op, t.Kind, word), "expected %s after %s", what, quote(word))
		}
		p.advance()
		if p.tok.kind == tLBrace {
			return p.fail(hintCompareList(op, word), "expected one value after %s", quote(op))
		}
		word = op
	}
	switch {
	case p.tok.kind == tLBrace:
		ok := p.braces(v)
		if ok && len(v.Elems) == 0 {
			p.errs.Errorf(v.Pos, "name what should match, or leave the term out.",
				"this list is empty and would never match")
			return false
		}
		return ok
	case p.template && p.tok.kind == tWord &&
		oneOf(walkModes, p.tok.text): // all values of the field
		v.Elems = []ast.Elem{{Text: AllValues, Pos: p.tok.pos}}
		return true
	case p.tok.kind == tWord && (p.tok.class&keyword == 0 || p.valueWord(t)):
		e := p.elems.Take(1)
		e[0] = ast.Elem{Text: p.tok.text, Pos: p.tok.pos}
		v.Elems = e
		p.advance()
		// An address and a protocol are two terms; with a port they are an endpoint.
		if (t.Kind == ast.From || t.Kind == ast.To) && p.endpointService(e[0].Text) &&
			strings.Contains(p.tok.text, "/") {
			p.joinService(&e[0])
		}
		v.Pos = v.Pos.To(p.last.pos)
		return p.afterValue(word)
	}
	return p.fail(p.hintValue(t, word), "expected %s after %s", what, quote(word))
}

// valueWord tells whether the current token, a word of the language, may be the value of t.
func (p *parser) valueWord(t *ast.Term) bool {
	switch t.Kind {
	case ast.From, ast.To:
		return p.is("any")
	case ast.Number:
		_, named := t.Field.Named(p.tok.text)
		return named
	}
	return false
}

// afterValue reports what often follows a value by mistake: a list without braces, a range with
// blanks.
func (p *parser) afterValue(word string) bool {
	if p.tok.class&keyword != 0 || p.atEnd() {
		return true
	}
	first := diag.Clip(p.last.text)
	switch {
	case p.tok.kind == tComma:
		return p.fail("put several values into braces: "+word+" { "+first+", ... }.",
			"expected a term or the end of the line")
	case p.tok.kind == tWord && strings.HasPrefix(p.tok.text, "-"):
		return p.fail("write a range without blanks: "+word+" "+first+"-"+rangeEnd(&p.lx,
			p.tok.text)+".", "expected a term or the end of the line")
	case p.tok.kind == tWord && (looksLikeAddress(p.tok.text) || isDigits(p.tok.text)):
		return p.fail("put several values into braces: "+word+" { "+first+", "+
			diag.Clip(p.tok.text)+" }.", "expected a term or the end of the line")
	case p.is("mask"), p.is("netmask"):
		return p.fail("write the prefix length behind a slash: 192.0.2.0/24.",
			"expected a term or the end of the line")
	}
	return true
}

// rangeEnd returns the end of a range whose minus sign is in the word minus.
func rangeEnd(lx *lexer, minus string) string {
	if minus != "-" {
		return strings.TrimPrefix(diag.Clip(minus), "-")
	}
	ahead := *lx
	ahead.errs = &diag.Collector{}
	if t := ahead.next(); t.kind == tWord {
		return diag.Clip(t.text)
	}
	return "..."
}

// flags parses `syn,ack` and `syn/syn,ack,rst`; blanks around the commas and the slash are allowed.
func (p *parser) flags(t *ast.Term) bool {
	v := p.values.One()
	v.Pos = p.tok.pos
	t.Value = v
	if p.tok.kind != tWord {
		hint := "write them as flags syn,ack, or flags syn/syn,ack,rst."
		return p.fail(hint, "expected TCP flags after \"flags\"")
	}
	e := ast.Elem{Pos: p.tok.pos}
	for n := 0; ; n++ {
		if n == ast.MaxTerms {
			return p.fail("name each flag once.", "expected at most %d flags", ast.MaxTerms)
		}
		if p.tok.kind != tWord {
			return p.fail("flags are fin syn rst psh ack urg ece cwr and none.",
				"expected a TCP flag")
		}
		e.Text += p.tok.text
		e.Pos = e.Pos.To(p.tok.pos)
		p.advance()
		switch {
		case p.tok.kind == tComma:
			e.Text += ","
			p.advance()
		case strings.HasSuffix(e.Text, "/"):
		case p.tok.kind == tWord && strings.HasPrefix(p.tok.text, "/"):
		default:
			v.Elems = []ast.Elem{e}
			v.Pos = e.Pos
			return true
		}
	}
}
