// Package spec makes packets of the words that describe them, in tests of policies and in templates
// of traffic.
//
// In go terms of the tree (package ast), out comes a packet.Spec, or a Packet of a template with
// the fields that vary. It must never know a policy: a packet has values, and no names of sets.
package spec

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"unicode/utf8"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Read resolves the words of one packet; it returns false after an error.
func Read(c *diag.Collector, words []ast.Term) (spec packet.Spec, ok bool) {
	first := make(map[specField]*ast.Term)
	ok = true
	for i := range words {
		t := &words[i]
		f := fieldOfSpec(t)
		if a := first[f]; a != nil {
			c.Errorf(t.Pos, "remove one of the two.",
				"%q and %q say the same thing of one packet twice", a.Text(), t.Text())
			ok = false
			continue
		}
		if f.kind != specExtension {
			first[f] = t
		}
		ok = specWord(c, &spec, t) && ok
	}
	ok = specDNS(c, &spec, words) && ok
	if t := first[specField{kind: specType}]; ok && t != nil {
		ok = specICMP(c, &spec, t)
	}
	return spec, ok
}

// Tells returns what the kernel is to tell of a packet, by the words of it.
func Tells(words []ast.Term) (all []policy.Told) {
	told := func(strict, loose uint64) {
		all = append(all, policy.Told{Field: field.StrictPath, Value: strict},
			policy.Told{Field: field.LoosePath, Value: loose})
	}
	for i := range words {
		switch t := &words[i]; {
		case t.Field == field.StrictPath:
			told(1, 1)
		case t.Name == ast.NoWayBack:
			told(0, 0)
		case t.Field == field.LoosePath:
			told(0, 1)
		}
	}
	return append(all, toldOfSender(words)...)
}

// MaxFrames limits the bytes of the packets of all tests together.
const MaxFrames = 64 << 20

// maxFrame is the longest frame of a test, in bytes: an IP packet of 65,575 with its tags.
const maxFrame = 1 << 17

// FrameHint is for a frame that is not written in hex digits.
const FrameHint = "write the bytes of the frame, Ethernet header first: \"02 00 ...\"."

// Hex reads hex digits; nil is an error that was reported, or no digits.
func Hex(c *diag.Collector, w ast.Word, hint string) []byte {
	var digits []byte
	for i, x := range w.Text {
		switch {
		case x == ' ' || x == '\t':
			continue
		case x >= '0' && x <= '9', x >= 'a' && x <= 'f', x >= 'A' && x <= 'F':
			digits = append(digits, byte(x))
		default:
			col := w.Pos.Col + 1 + int32(utf8.RuneCountInString(w.Text[:i]))
			c.Errorf(diag.Pos{Line: w.Pos.Line, Col: col, EndCol: col + 1}, hint,
				"%q is not a hex digit", x)
			return nil
		}
	}
	frame, err := hex.DecodeString(string(digits))
	switch {
	case err != nil:
		c.Errorf(w.Pos, "each byte has two digits.", "an odd number of hex digits")
	case len(frame) > maxFrame:
		c.Errorf(w.Pos, "", "a frame of %d bytes; at most %d are possible", len(frame), maxFrame)
	}
	return frame
}

// specField identifies the field that a word of a packet sets, to find duplicates.
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
func specWord(c *diag.Collector, spec *packet.Spec, t *ast.Term) bool {
	var p diag.Problem
	if t.Field.OfMessage() {
		return true // with the others, in specDNS
	}
	if t.Field.Info().Kernel == field.Leaving {
		return specSender(c, t)
	}
	switch t.Kind {
	case ast.Family:
		spec.Family = map[string]packet.Family{"ipv4": packet.IPv4, "ipv6": packet.IPv6,
			"arp": packet.ARP}[t.Name]
	case ast.ProtoName:
		proto, _ := literal.Protocol(t.Name)
		spec.Proto = &proto
	case ast.Alone:
		if t.Field.Info().Kernel != field.NoSide {
			return true // see Tells
		}
		spec.Flags = new(t.Phrase().Value)
	case ast.Options:
		spec.Options = true
	case ast.PacketType: // when the family is known
	case ast.PacketBytes:
		return specBytes(c, spec, t)
	case ast.Inner:
		in, ok := Read(c, t.Terms)
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
		v, p = literal.MAC(t.Value.Elems[0].Text)
		spec.Set(t.Field.Info().Packet, v)
	default:
		p = specNumber(spec, t)
	}
	if p.Found() {
		c.Report(t.Value.Elems[0].Pos, p)
	}
	return !p.Found()
}

func specNumber(spec *packet.Spec, t *ast.Term) diag.Problem {
	num := &literal.FragmentNumber
	if t.Kind == ast.Number {
		num = literal.Numbers[t.Field]
	}
	rg, p := num.One(t.Value.Elems[0].Text)
	if p.Found() {
		if _, q := num.Element(t.Value.Elems[0].Text); !q.Found() {
			p = diag.Problemf("write one value; use several packets to try several.",
				"a packet has one value here")
		}
		return p
	}
	if rg.Lo != rg.Hi {
		return diag.Problemf("write its number.", "%q is more than one value",
			t.Value.Elems[0].Text)
	}
	if t.Kind == ast.Frag {
		spec.Set(t.Phrase().Word, rg.Lo)
	} else {
		spec.Set(t.Field.Info().Packet, rg.Lo)
	}
	return diag.Problem{}
}

func specFlagsOf(spec *packet.Spec, text string) diag.Problem {
	if strings.Contains(text, "/") {
		return diag.Problemf("a packet has exactly these flags: flags "+
			diag.Clip(text[:strings.IndexByte(text, '/')])+".", "a mask has no meaning in a packet")
	}
	bits, _, p := literal.Flags(text)
	spec.Flags = new(bits)
	return p
}

func specAddr(t *ast.Term) (netip.Addr, diag.Problem) {
	text := t.Value.Elems[0].Text
	if text == "any" || strings.Contains(text, "/") {
		return netip.Addr{}, diag.Problemf("write one address, or leave it out.",
			"a packet has one address, not %s", diag.Clip(text))
	}
	a, p := literal.Address(text)
	if p.Found() && literal.IsName(text) {
		p.Hint = "write one address, not the name of a set."
	}
	return a, p
}

// specICMP resolves `type`, whose names depend on the family of the packet.
func specICMP(c *diag.Collector, spec *packet.Spec, t *ast.Term) bool {
	e := &t.Value.Elems[0]
	of := field.ICMPType
	if spec.Proto != nil && *spec.Proto == packet.ProtoICMP6 ||
		spec.Proto == nil && (spec.Family == packet.IPv6 || spec.From.Is6() || spec.To.Is6()) {
		of = field.ICMP6Type
	}
	rg, p := literal.ICMP(e.Text, of)
	if !p.Found() && rg.Lo != rg.Hi && (strings.Contains(e.Text, "/") || rg.Lo>>8 != rg.Hi>>8) {
		p = diag.Problemf("write one value; use several packets to try several.",
			"a packet has one value here")
	}
	if p.Found() {
		c.Report(e.Pos, p)
		return false
	}
	spec.Type, spec.Code = new(uint8(rg.Lo>>8)), uint8(rg.Lo)
	return true
}
