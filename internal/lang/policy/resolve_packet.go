package policy

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/packet"
)

// pendingTest is a test whose steps are resolved when all rules are known.
type pendingTest struct{ src *ast.Test }

func (r *resolver) test(s *ast.Test) {
	switch {
	case strings.TrimSpace(s.Name.Text) == "":
		r.c.Errorf(s.Name.Pos, "say what the test shows.", "the test has no name")
	case len(s.Steps) == 0 && !r.file.Failed:
		r.c.Warnf(s.Pos, "write: packet tcp port 22 expect pass.", "the test %q has no packets",
			short(s.Name.Text))
	}
	r.tests = append(r.tests, pendingTest{s})
}

func (r *resolver) resolveTest(p pendingTest) {
	t := &Test{Name: p.src.Name.Text, Pos: r.pos(p.src.Pos)}
	for i := range p.src.Steps {
		s := &p.src.Steps[i]
		step := Step{Text: s.String(), Pos: r.pos(s.Pos)}
		if s.Set != nil {
			r.entry(&step, s)
		} else {
			r.packet(&step, s)
		}
		t.Steps = append(t.Steps, step)
	}
	r.pol.Tests = append(r.pol.Tests, t)
}

// entry resolves `set NAME has ENTRY`.
func (r *resolver) entry(step *Step, s *ast.Step) {
	d := r.named(s.Set.Text)
	switch {
	case d == nil:
		hint := r.nearestSet(s.Set.Text)
		if strings.HasPrefix(hint, "define") {
			hint = "define it: set " + short(s.Set.Text) + " = dynamic(max 1000)."
		}
		r.c.Errorf(s.Set.Pos, hint, "there is no set named %q", short(s.Set.Text))
	case d.bad:
	case d.set.Kind != Dynamic:
		r.c.Errorf(s.Set.Pos, "the other sets have what the policy gives them.",
			"%q is not a dynamic set; only these can be filled in a test", short(s.Set.Text))
	default:
		step.Set = d.set
	}
	t := looksLike(s.Entry.Text)
	if step.Set != nil {
		t = step.Set.Type
	}
	e, p := parseEntry(t, s.Entry.Text)
	if p.found() {
		r.problem(s.Entry.Pos, p)
	}
	step.Entry = e
}

// parseEntry reads one entry of a dynamic set of a type.
func parseEntry(t SetType, text string) (Element, problem) {
	var all elements
	if got := looksLike(text); got != t && got != Ports && !all.parse(got, text).found() {
		return Element{}, problemf(entryHint(t), "%s is %s, and the set is of %s", short(text),
			got.one(), t.plural())
	}
	switch t {
	case Services:
		s, p := parseService(text)
		return Element{Service: s}, p
	case Endpoints:
		list, p := parseEndpoint(nil, text)
		if !p.found() && len(list) != 1 {
			p = problemf("write one step for each.", "%s is %d entries", short(text), len(list))
		}
		if p.found() {
			return Element{}, p
		}
		return list[0], p
	}
	pfx, p := parsePrefix(text)
	return Element{Prefix: pfx}, p
}

// packet resolves a packet and what is expected of it.
func (r *resolver) packet(step *Step, s *ast.Step) {
	step.Leaves, step.Judged = s.Leaves, s.Expect.Text != ""
	if step.Judged {
		step.Expect = named(s.Expect.Text)
	}
	if s.Leaves && step.Judged && r.pol.Out == nil && !r.file.Failed {
		r.c.Errorf(s.Expect.Pos, "write rules for it, as in: out drop tcp port 25.",
			"the policy has no rule for what leaves: all of it passes")
	}
	if s.By != nil {
		step.By = s.By.Text
	}
	if s.Label != nil {
		step.Label = s.Label.Text
		r.expectLabel(*s.Label)
	}
	if s.Hex != nil {
		step.Frame = r.keepFrame(s.Pos, r.hexBytes(*s.Hex, frameHint))
		return
	}
	if r.frames > maxFrames {
		return
	}
	step.Tells = tells(s.Spec)
	spec, ok := r.spec(s.Spec)
	if !ok {
		return
	}
	frame, err := packet.Build(spec)
	if err != nil {
		at := s.Pos
		if n := len(s.Spec); n > 0 {
			at = s.Spec[0].Pos
			at.EndCol = max(at.EndCol, lastOnLine(s.Spec, at))
		}
		r.c.Errorf(at, "", "this packet cannot be built: %v", err)
		return
	}
	step.Frame = r.keepFrame(s.Pos, frame)
}

// spec resolves the words of one packet; it returns false after an error.
func (r *resolver) spec(words []ast.Term) (spec packet.Spec, ok bool) {
	first := make(map[specField]*ast.Term)
	ok = true
	for i := range words {
		t := &words[i]
		f := fieldOfSpec(t)
		if a := first[f]; a != nil {
			r.c.Errorf(t.Pos, "remove one of the two.",
				"%q and %q say the same thing of one packet twice", a.Text(), t.Text())
			ok = false
			continue
		}
		if f.kind != specExtension {
			first[f] = t
		}
		ok = r.specWord(&spec, t) && ok
	}
	ok = r.specDNS(&spec, words) && ok
	if t := first[specField{kind: specType}]; ok && t != nil {
		ok = r.specICMP(&spec, t)
	}
	return spec, ok
}

// Told is what the kernel would tell of a packet.
type Told struct {
	Field field.Field
	Value uint64
}

// tells is what the kernel is to tell of a packet, by the words of it.
func tells(words []ast.Term) (all []Told) {
	for i := range words {
		switch t := &words[i]; {
		case t.Field == field.StrictPath:
			all = append(all, Told{field.StrictPath, 1}, Told{field.LoosePath, 1})
		case t.Name == ast.NoWayBack:
			all = append(all, Told{field.StrictPath, 0}, Told{field.LoosePath, 0})
		case t.Field == field.LoosePath:
			all = append(all, Told{field.StrictPath, 0}, Told{field.LoosePath, 1})
		}
	}
	return all
}

// maxFrames is how many bytes the packets of all tests may have together.
const maxFrames = 64 << 20

// keepFrame returns the frame, or nil when the tests have had too many bytes.
func (r *resolver) keepFrame(at diag.Pos, frame []byte) []byte {
	before := r.frames
	if r.frames += len(frame); r.frames <= maxFrames {
		return frame
	}
	if before <= maxFrames {
		r.c.Errorf(at, "shorter packets test the same; \"len\" makes them long.",
			"the packets of all tests have more than %d MiB together", maxFrames>>20)
	}
	return nil
}

// lastOnLine is the end of the last word that stands in the line of at.
func lastOnLine(ts []ast.Term, at diag.Pos) int32 {
	end := at.EndCol
	for i := range ts {
		if ts[i].Pos.Line == at.Line {
			end = max(end, ts[i].Pos.EndCol)
		}
	}
	return end
}

// deciders are the words that stand behind `by` without quotes.
var deciders = []string{"protect", "malformed", "essential", "default"}

func (r *resolver) expectLabel(w ast.Word) {
	// the rule with the label may be one that was not understood
	if r.labels[w.Text] > 0 || r.file.Failed {
		return
	}
	var labels []string
	for _, l := range r.labelled {
		if l.rule < 1000 {
			labels = append(labels, l.text)
		}
	}
	hint := "a label stands behind a rule: pass tcp port 22 as \"ssh\"."
	if m := diag.Nearest(w.Text, labels); m != "" {
		hint = didYouMean(m)
	} else if slices.Contains(deciders, w.Text) {
		hint = fmt.Sprintf("without quotes: by %s.", w.Text)
	}
	r.c.Errorf(w.Pos, hint, "no rule has the label %q", short(w.Text))
}

// maxFrame is the longest frame of a test, in bytes: an IP packet of 65,575 with its tags.
const maxFrame = 1 << 17

const frameHint = "write the bytes of the frame, Ethernet header first: \"02 00 ...\"."

// hexBytes reads hex digits; nil is an error that was reported, or no digits.
func (r *resolver) hexBytes(w ast.Word, hint string) []byte {
	var digits []byte
	for i, c := range w.Text {
		switch {
		case c == ' ' || c == '\t':
			continue
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
			digits = append(digits, byte(c))
		default:
			col := w.Pos.Col + 1 + int32(utf8.RuneCountInString(w.Text[:i]))
			r.c.Errorf(diag.Pos{Line: w.Pos.Line, Col: col, EndCol: col + 1}, hint,
				"%q is not a hex digit", c)
			return nil
		}
	}
	frame, err := hex.DecodeString(string(digits))
	switch {
	case err != nil:
		r.c.Errorf(w.Pos, "each byte has two digits.", "an odd number of hex digits")
	case len(frame) > maxFrame:
		r.c.Errorf(w.Pos, "", "a frame of %d bytes; at most %d are possible", len(frame), maxFrame)
	}
	return frame
}

// specField is what a word of a packet sets, to find doubles.
type specField struct {
	kind specKind
	name string // of a specNamed
	term ast.TermKind
	of   field.Field
}

type specKind uint8

const (
	specFamily specKind = iota
	specProto
	specFlags
	specType
	specNamed
	specExtension // may come again
	specOther
)

func fieldOfSpec(t *ast.Term) specField {
	switch t.Field {
	case field.EtherType:
		return specField{kind: specFamily}
	case field.Proto:
		return specField{kind: specProto}
	case field.TCPFlags:
		return specField{kind: specFlags}
	}
	switch t.Kind {
	case ast.PacketType:
		return specField{kind: specType}
	case ast.PacketField, ast.PacketBytes:
		if _, ok := extensionWords[t.Name]; ok {
			return specField{kind: specExtension}
		}
		return specField{kind: specNamed, name: t.Name}
	}
	return specField{kind: specOther, term: t.Kind, of: t.Field}
}

// specWord puts one word into the packet; it returns false after an error.
func (r *resolver) specWord(spec *packet.Spec, t *ast.Term) bool {
	var p problem
	if t.Field.OfMessage() {
		return true // with the others, in specDNS
	}
	switch t.Kind {
	case ast.Family:
		spec.Family = map[string]packet.Family{"ipv4": packet.IPv4, "ipv6": packet.IPv6,
			"arp": packet.ARP}[t.Name]
	case ast.ProtoName:
		proto, _ := protocol(t.Name)
		spec.Proto = &proto
	case ast.Alone:
		if t.Field.Info().Kernel != field.NoSide {
			return true // see tells
		}
		spec.Flags = new(t.Phrase().Value)
	case ast.Options:
		spec.Options = true
	case ast.PacketType: // when the family is known
	case ast.PacketBytes:
		return r.specBytes(spec, t)
	case ast.Inner:
		in, ok := r.spec(t.Terms)
		spec.Inner = &in
		return ok
	case ast.PacketField:
		p = specNamedField(spec, t.Name, t.Value.Elems[0].Text)
	case ast.Flags:
		p = specFlagsOf(spec, t.Value.Elems[0].Text)
	case ast.From, ast.To:
		var a netip.Addr
		a, p = specAddr(t)
		if t.Kind == ast.From {
			spec.From = a
		} else {
			spec.To = a
		}
	case ast.EtherAddr:
		var v uint64
		v, p = parseMAC(t.Value.Elems[0].Text)
		spec.Set(t.Field.Info().Packet, v)
	default:
		p = specNumber(spec, t)
	}
	if p.found() {
		r.problem(t.Value.Elems[0].Pos, p)
	}
	return !p.found()
}

func specNumber(spec *packet.Spec, t *ast.Term) problem {
	num := &fragNumber
	if t.Kind == ast.Number {
		num = numbers[t.Field]
	}
	rg, p := num.one(t.Value.Elems[0].Text)
	if p.found() {
		if _, q := num.element(t.Value.Elems[0].Text); !q.found() {
			p = problemf("write one value; use several packets to try several.",
				"a packet has one value here")
		}
		return p
	}
	if rg.Lo != rg.Hi {
		return problemf("write its number.", "%q is more than one value", t.Value.Elems[0].Text)
	}
	if t.Kind == ast.Frag {
		spec.Set(t.Phrase().Word, rg.Lo)
	} else {
		spec.Set(t.Field.Info().Packet, rg.Lo)
	}
	return problem{}
}

func specFlagsOf(spec *packet.Spec, text string) problem {
	if strings.Contains(text, "/") {
		return problemf("a packet has exactly these flags: flags "+
			short(text[:strings.IndexByte(text, '/')])+".", "a mask has no meaning in a packet")
	}
	bits, _, p := parseFlags(text)
	spec.Flags = new(bits)
	return p
}

func specAddr(t *ast.Term) (netip.Addr, problem) {
	text := t.Value.Elems[0].Text
	if text == "any" || strings.Contains(text, "/") {
		return netip.Addr{}, problemf("write one address, or leave it out.",
			"a packet has one address, not %s", short(text))
	}
	a, p := parseAddress(text)
	if p.found() && isName(text) {
		p.hint = "write one address, not the name of a set."
	}
	return a, p
}

// specICMP resolves `type`, whose names depend on the family of the packet.
func (r *resolver) specICMP(spec *packet.Spec, t *ast.Term) bool {
	e := &t.Value.Elems[0]
	of := field.ICMPType
	if spec.Proto != nil && *spec.Proto == packet.ProtoICMP6 ||
		spec.Proto == nil && (spec.Family == packet.IPv6 || spec.From.Is6() || spec.To.Is6()) {
		of = field.ICMP6Type
	}
	rg, p := parseICMP(e.Text, of)
	if !p.found() && rg.Lo != rg.Hi && (strings.Contains(e.Text, "/") || rg.Lo>>8 != rg.Hi>>8) {
		p = problemf("write one value; use several packets to try several.",
			"a packet has one value here")
	}
	if p.found() {
		r.problem(e.Pos, p)
		return false
	}
	spec.Type, spec.Code = new(uint8(rg.Lo>>8)), uint8(rg.Lo)
	return true
}
