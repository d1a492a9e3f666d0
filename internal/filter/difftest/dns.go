package difftest

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"

	"levee/internal/lang/dnsname"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
	"levee/internal/packet/dns"
)

// isMessage tells whether a row is about DNS messages.
func isMessage(ph *field.Phrase) bool { return strings.HasPrefix(ph.Word, "dns ") }

// message returns a term on a DNS message; "" where there may be none.
func (g *generator) message(ph *field.Phrase) string {
	switch {
	case g.protecting:
		return ""
	case ph.Form == field.FormAlone:
		return ph.Word
	case ph.Form == field.FormName:
		return ph.Word + " " + g.nameValue()
	}
	highest := int(ph.Field.Info().Max)
	return ph.Word + " " + g.numbers(0, highest, []int{0, 1, 15, 28, 255, 512, 1232, highest}, 1)
}

// nameValue returns a name, a list or a set of them.
func (g *generator) nameValue() string {
	switch {
	case g.nameLists == 40: // of 64
		return g.nameElement()
	case len(g.nameSets) > 0 && g.chance(2):
		return "in " + g.pick(g.nameSets...)
	case g.chance(3):
		return "in { " + strings.Join(g.some(1+g.r.IntN(5), g.nameElement), ", ") + " }"
	}
	g.nameLists++
	return g.nameElement()
}

// nameElement returns a name in quotes: mostly of a small tree, so that names meet, seldom an edge.
func (g *generator) nameElement() string {
	long := strings.Repeat("l", dnsname.MaxLabel)
	switch g.r.IntN(24) {
	case 0:
		return `"."`
	case 1:
		return `"*."`
	case 2:
		return `"` + long + `.example"`
	case 3:
		return `"` + strings.Join([]string{long, long, long, long[:61]}, ".") + `"` // 255 bytes
	case 4:
		return `"` + strings.Repeat("a.", dnsname.MaxLabels-1) + `b"`
	case 5:
		return `"\000\255\.\065.example"`
	}
	n := g.pick("", "", "*.") + g.name()
	return `"` + n + `"`
}

// name is one of a tree of some hundred names.
func (g *generator) name() string {
	labels := []string{g.pick("example", "test", "org")}
	for range g.r.IntN(5) {
		labels = append(labels, g.pick("a", "bb", "ccc", "seven77", "eight888", "Nine99999",
			"sixteen-sixteen-", "xn--p1ai"))
	}
	return strings.Join(labels, ".")
}

// nameSetsOf are sets of names, short and long.
func (g *generator) nameSetsOf() {
	for i := range g.r.IntN(3) {
		name := []string{"zones", "dns"}[i]
		g.line("set %s = { %s }", name, strings.Join(g.some(1+g.size(), g.nameElement), ",\n    "))
		g.nameSets = append(g.nameSets, name)
	}
}

// messages draws DNS messages near what terms ask for.
type messages struct{ r *rand.Rand }

// miss changes a message as no resolver would have it, or only just as one would.
func (m messages) miss(b []byte) []byte {
	r := m.r
	if len(b) < 13 {
		return b
	}
	switch r.IntN(24) {
	case 0: // cut anywhere
		b = b[:r.IntN(len(b))]
	case 1: // a byte too many
		b = append(b, byte(r.Uint32()))
	case 2: // a pointer, or a label of an unknown kind, where a label is
		b[12] = byte(1+r.IntN(3)) << 6
	case 3: // another number of records
		binary.BigEndian.PutUint16(b[4+2*r.IntN(4):], uint16(r.IntN(3)))
	case 4: // another kind of message
		b[2] = byte(r.Uint32())
	case 5:
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	case 6, 7, 8: // other letters
		for i := 12; i < len(b); i++ {
			if c := b[i] | 0x20; c >= 'a' && c <= 'z' && r.IntN(2) == 0 {
				b[i] ^= 0x20
			}
		}
	}
	return b
}

// name returns a name that a pattern asks for, one below it, or one beside it.
func (m messages) name(p dnsname.Pattern) dnsname.Name {
	r, n := m.r, p.Name
	below := r.IntN(3)
	if p.Below {
		below = r.IntN(4)
	}
	for range below {
		label := make([]byte, []int{1, 2, 7, 8, 63, 1 + r.IntN(63)}[r.IntN(6)])
		for i := range label {
			label[i] = "abcxyz-_0\x00\xff@[`{"[r.IntN(15)]
		}
		if len(label)+1+len(n)+1 > dnsname.MaxName {
			break
		}
		n = dnsname.Name(append([]byte{byte(len(label))}, label...)) + n
	}
	if r.IntN(8) == 0 && n != "" {
		n = n.Parent()
	}
	return n
}

// pattern is one of a list of names; of a dynamic set that holds none any.
func (c *corners) pattern(l *policy.NameList) (p dnsname.Pattern) {
	if !l.Dynamic() {
		return l.Patterns[c.r.IntN(len(l.Patterns))]
	}
	text := "example"
	if all := c.entries(l.Set); len(all) > 0 {
		text = all[c.r.IntN(len(all))].Name
	}
	p, _ = dnsname.Parse(text)
	return p
}

// aimMessage gives a shape a message for which a term on it holds, or only just does not.
func (s *shape) aimMessage(c *corners, t *policy.Term) {
	m := messages{c.r}
	if t.Names != nil {
		b := dns.Read(s.Payload, false)
		b.Malformed, b.Question = false, true
		b.Name = m.name(c.pattern(t.Names))
		s.Payload = dns.Query(b)
	}
	if c.r.IntN(2) == 0 {
		s.ToPort = new(uint16(53))
	}
	s.Proto = new(uint8(packet.ProtoUDP))
	s.Payload = m.miss(s.Payload)
	s.payload, s.Len = len(s.Payload), nil
}
