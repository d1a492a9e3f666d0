package spec

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
	"levee/internal/packet"
)

// Packet is one packet of a template.
type Packet struct {
	// Spec is the packet with the first of the values that vary, and with the longest length.
	Spec packet.Spec
	// Frame is the packet where it was given in hex; the Spec is empty then.
	Frame []byte
	Vary  []Vary
	// Random payload: what follows the headers and Spec.Payload is drawn for each packet.
	Random bool
	Tells  []policy.Told // what the kernel tells of it; nothing of packets that are sent
	Line   int
}

// Vary is a field that has another value in each packet.
type Vary struct {
	Word     string // of packet.Layout.Locate, or "len"
	Ranges   []field.Range
	Prefixes []netip.Prefix // of "from" and "to", instead
	Mode     Mode
	Down     bool
	Step     uint64 // at least 1
	Every    uint64 // packets with the same value, at least 1

	all bool // the values are those that the field can have, as wide as it is in this packet
}

// Mode is the order in which a field takes its values.
type Mode uint8

const (
	Counting Mode = iota // one after the other, as written, and again
	Random               // each drawn by itself
	Permuted             // in a drawn order, none again before all have come
)

// Packets resolves a template. All errors are reported at once; there are no packets when there is
// one.
func Packets(t *syntax.Packets) ([]Packet, diag.Diagnostics) {
	c := &diag.Collector{File: t.Name}
	var out []Packet
	size := 0
	for i := range t.List {
		k := &t.List[i]
		p, ok := template(c, k)
		if !ok {
			continue
		}
		frame, err := p.Build()
		if err != nil {
			c.Errorf(k.Pos, "", "this packet cannot be built: %v", err)
			continue
		}
		if size += len(frame); size > MaxFrames {
			c.Errorf(k.Pos, "", "the packets of the template have more than %d MiB together",
				MaxFrames>>20)
			break
		}
		out = append(out, p)
	}
	if c.Errors() > 0 {
		out = nil
	}
	return out, t.Diagnostics(c)
}

// Build makes the frame with the first values and the longest length. It fails for a field that the
// packet does not have or whose values are too large for it, and for fields that share bits.
func (p *Packet) Build() ([]byte, error) {
	if p.Frame != nil {
		return p.Frame, nil
	}
	frame, l, err := packet.BuildLayout(p.Spec)
	if err != nil {
		return nil, err
	}
	type extent struct {
		word     string
		from, to int
	}
	var seen []extent
	for i := range p.Vary {
		v := &p.Vary[i]
		if v.Word == WordLen {
			continue
		}
		bit, bits, ok := l.Locate(frame, v.Word)
		if !ok {
			return nil, fmt.Errorf("%s: not a field of this packet", v.Word)
		}
		if err := v.fit(bits); err != nil {
			return nil, err
		}
		for _, q := range seen {
			if bit < q.to && q.from < bit+bits {
				return nil, fmt.Errorf("%s and %s are the same bits: only one of them can vary",
					q.word, v.Word)
			}
		}
		seen = append(seen, extent{v.Word, bit, bit + bits})
	}
	return frame, nil
}

// fit checks the values against the width of the field, which may differ between protocols.
func (v *Vary) fit(bits int) error {
	if bits > 48 { // an address
		return nil
	}
	most := uint64(1)<<bits - 1
	if v.all {
		v.Ranges = []field.Range{{Hi: most}}
	}
	for _, r := range v.Ranges {
		if r.Hi > most {
			return fmt.Errorf("%s %d: at most %d in this packet", v.Word, r.Hi, most)
		}
	}
	return nil
}

// ParseFlags reads TCP flags as packets have them: "syn,ack", or "none".
func ParseFlags(text string) (uint8, error) {
	bits, _, p := literal.Flags(text)
	if p.Found() {
		return 0, fmt.Errorf("%s; %s", p.Message, p.Hint)
	}
	return bits, nil
}

// WordLen is the word of the length, which is no field at one place.
const WordLen = "len"

// wordOf returns the word of a field that may vary, or "": that of a header field, or of the
// length.
func wordOf(t *ast.Term) string {
	word := t.Field.Info().Packet
	switch {
	case t.Kind == ast.PacketField:
		return t.Name
	case t.Kind == ast.Flags || t.Kind == ast.Alone || packet.FieldBits(word) == 0 &&
		word != WordLen:
		return ""
	}
	return word
}

// template resolves one line; it returns false after an error.
func template(c *diag.Collector, k *syntax.Packet) (p Packet, ok bool) {
	p.Line = int(k.Pos.Line)
	if k.Hex != nil {
		before := c.Errors()
		p.Frame = Hex(c, *k.Hex, FrameHint)
		if len(p.Frame) < 14 && c.Errors() == before {
			c.Errorf(k.Hex.Pos, "write the whole frame, Ethernet header first.",
				"a frame of %d bytes; it has at least 14", len(p.Frame))
		}
		return p, c.Errors() == before
	}
	ok = true
	words := make([]ast.Term, len(k.Spec))
	for i := range k.Spec {
		t := &k.Spec[i]
		words[i] = *t
		if t.Kind == ast.PacketBytes && t.Value != nil && !t.Value.Hex && !t.Value.Text &&
			t.Value.Elems[0].Text == "random" {
			p.Random = true
		}
		if !varies(t) {
			continue
		}
		v, found := vary(c, t)
		if !found {
			ok = false
			words[i].Value = &ast.Value{Elems: []ast.Elem{{Text: "0",
				Pos: t.Value.Elems[0].Pos}}}
			continue
		}
		p.Vary = append(p.Vary, v)
		words[i].Value = &ast.Value{Elems: []ast.Elem{{Text: v.base(),
			Pos: t.Value.Elems[0].Pos}}, Pos: t.Value.Pos}
	}
	if !ok {
		return p, false
	}
	p.Spec, ok = Read(c, words)
	p.Tells = Tells(words)
	return p, ok
}

// varies tells whether a term has more than one value.
func varies(t *ast.Term) bool {
	v := t.Value
	if v == nil || v.Hex || v.Text || t.Kind == ast.PacketBytes || t.Kind == ast.Flags {
		return false
	}
	if v.List || v.Walk != nil || wordOf(t) == "" {
		return v.List || v.Walk != nil
	}
	text := v.Elems[0].Text
	switch {
	case t.Kind == ast.From, t.Kind == ast.To:
		return strings.ContainsAny(text, "/-")
	}
	_, named := t.Field.Named(text) // names may have hyphens
	return !named && strings.Contains(text, "-")
}

// vary resolves a term with several values.
func vary(c *diag.Collector, t *ast.Term) (Vary, bool) {
	v := Vary{Word: wordOf(t), Step: 1, Every: 1}
	if v.Word == "" {
		c.Errorf(t.Pos, "write a packet for each, in lines of their own.",
			"%q decides what the packet is made of, so it cannot vary", t.Words())
		return v, false
	}
	for i := range t.Value.Elems {
		e := &t.Value.Elems[i]
		if p := v.add(t, e.Text); p.Found() {
			c.Report(e.Pos, p)
			return v, false
		}
	}
	return v, walk(c, &v, t.Value.Walk)
}

// add appends the values of one element.
func (v *Vary) add(t *ast.Term, text string) (p diag.Problem) {
	var rg field.Range
	all := text == syntax.AllValues
	switch {
	case all && v.Word == WordLen:
		return diag.Problemf("write the lengths: len 60-1500 random.",
			"a packet cannot have all lengths")
	case all && isMAC(v.Word):
		rg, v.all = field.Range{Lo: 0, Hi: 1<<48 - 1}, true
	case t.Kind == ast.From, t.Kind == ast.To:
		if all || text == "any" {
			return diag.Problemf("write 0.0.0.0/0 or ::/0.", "all addresses, but of which family?")
		}
		v.Prefixes, p = literal.Addresses(v.Prefixes, text)
		for _, q := range v.Prefixes {
			if !p.Found() && q.Addr().Is4() != v.Prefixes[0].Addr().Is4() {
				p = diag.Problemf("write a packet for each family, in lines of their own.",
					"IPv4 and IPv6 addresses in one packet")
			}
		}
		return p
	case isMAC(v.Word):
		rg, p = parseMACs(text)
	case packet.IsChecksum(v.Word) && text == "wrong":
		return diag.Problemf("write a packet with wrong and one without, in lines of their own.",
			"\"wrong\" is no number that can vary")
	default:
		num := fieldNumber(v.Word)
		if t.Kind == ast.Number {
			num = literal.Numbers[t.Field]
		}
		if rg, v.all = (field.Range{Lo: 0, Hi: num.Max}), all; !all {
			rg, p = num.Element(text)
		}
	}
	v.Ranges = append(v.Ranges, rg)
	return p
}

// parseMACs reads an Ethernet address or a range of them.
func parseMACs(text string) (field.Range, diag.Problem) {
	lo, hi, isRange := strings.Cut(text, "-")
	if !isRange || strings.Count(text, "-") > 1 {
		lo, hi = text, text
	}
	a, p := literal.MAC(lo)
	if p.Found() {
		return field.Range{}, p
	}
	b, p := literal.MAC(hi)
	if !p.Found() && b < a {
		p = diag.Problemf(diag.DidYouMean(hi+"-"+lo), "the range %s ends before it begins",
			diag.Clip(text))
	}
	return field.Range{Lo: a, Hi: b}, p
}

// walk resolves the order; it returns false after an error.
func walk(c *diag.Collector, v *Vary, w *ast.Walk) bool {
	if w == nil {
		return true
	}
	v.Mode = map[string]Mode{"counting": Counting, "random": Random,
		"permuted": Permuted}[w.Mode.Text]
	v.Down = w.Down
	for _, n := range []struct {
		word *ast.Word
		to   *uint64
	}{{w.Step, &v.Step}, {w.Every, &v.Every}} {
		if n.word == nil {
			continue
		}
		x, err := literal.Uint(n.word.Text)
		if err != nil || x == 0 || x > 1<<32 {
			c.Errorf(n.word.Pos, "", "%q: write a number from 1 to %d", diag.Clip(n.word.Text),
				uint64(1)<<32)
			return false
		}
		*n.to = x
	}
	return true
}

// base returns the value in the packet before it varies.
func (v *Vary) base() string {
	switch {
	case len(v.Prefixes) > 0:
		return v.Prefixes[0].Addr().String()
	case isMAC(v.Word):
		return macText(v.Ranges[0].Lo)
	}
	n := v.Ranges[0].Lo
	if v.Word == WordLen {
		for _, rg := range v.Ranges {
			n = max(n, rg.Hi)
		}
	}
	return strconv.FormatUint(n, 10)
}

func macText(v uint64) string {
	b := make([]byte, 6)
	packet.Put(b, 0, 48, v)
	return net.HardwareAddr(b).String()
}
