package importer

import (
	"fmt"
	"slices"
	"strings"
)

// text is the match as terms of a policy, each after a blank; the layout is left to `levee fmt`.
func (m *match) text() string {
	var b strings.Builder
	m.writeEther(&b)
	if m.f[fVLAN] != nil {
		writeNumbers(&b, "vlan", fVLAN, m.f[fVLAN])
	}
	writeMACs(&b, "ether from", m.f[fEtherFrom])
	writeMACs(&b, "ether to", m.f[fEtherTo])
	m.writeProto(&b)
	writeICMP(&b, "icmp", m.f[fICMP])
	writeICMP(&b, "icmp6", m.f[fICMP6])
	m.writeFlags(&b)
	m.from.write(&b, "from")
	m.fromDyn.write(&b, "from")
	m.writePorts(&b, "from port", fFromPort)
	m.to.write(&b, "to")
	m.toDyn.write(&b, "to")
	m.writePorts(&b, "port", fPort)
	for _, n := range [...]struct {
		f    numField
		word string
	}{{fLen, "len"}, {fTTL, "ttl"}, {fDSCP, "dscp"}} {
		if m.f[n.f] != nil {
			writeNumbers(&b, n.word, n.f, m.f[n.f])
		}
	}
	for _, f := range m.finds {
		b.WriteString(" " + f)
	}
	if k := m.f[fKnown]; k != nil {
		if k[0].Lo == 0 {
			b.WriteString(" not")
		}
		b.WriteString(" established")
	}
	m.writePath(&b, fStrict, "strict")
	m.writePath(&b, fLoose, "loose")
	switch f := m.f[fFragment]; {
	case f == nil || slices.Equal(f, between(whole, first)) ||
		slices.Equal(f, between(whole, later)):
	case f[0].Lo == whole:
		b.WriteString(" not fragments")
	default:
		b.WriteString(" fragments")
	}
	return b.String()
}

// writePath writes what is asked of the kernel's route to the source.
func (m *match) writePath(b *strings.Builder, f numField, how string) {
	if s := m.f[f]; s != nil {
		if s[0].Lo == 0 {
			b.WriteString(" not")
		}
		b.WriteString(" reverse-path " + how)
	}
}

// writeEther writes the family, unless another term implies it.
func (m *match) writeEther(b *strings.Builder) {
	e := m.f[fEther]
	four, six := true, true
	isIP := m.f[fProto] != nil || m.f[fTTL] != nil || m.f[fDSCP] != nil || m.f[fFragment] != nil
	isIP = isIP || m.f[fStrict] != nil || m.f[fLoose] != nil
	isIP = isIP || m.f[fKnown] != nil || m.fromDyn != nil || m.toDyn != nil
	for _, a := range [...]addrMatch{m.from, m.to} {
		isIP = isIP || a.pos != nil || len(a.neg) > 0
		if a.pos != nil && !a.pos.dynamic {
			f, s := a.pos.addrs.families()
			four, six = four && f, six && s
		}
	}
	switch {
	case e == nil:
	case slices.Equal(e, only4):
		if m.f[fICMP] == nil && six {
			b.WriteString(" ipv4")
		}
	case slices.Equal(e, only6):
		if m.f[fICMP6] == nil && four {
			b.WriteString(" ipv6")
		}
	case slices.Equal(e, just(etherARP)):
		b.WriteString(" arp")
	case slices.Equal(e, bothIP):
		if !isIP {
			b.WriteString(" from any")
		}
	default:
		writeList(b, "ether", e, fieldTop[fEther], func(s span) string {
			if s.Lo == s.Hi {
				return fmt.Sprintf("0x%04x", s.Lo)
			}
			return fmt.Sprintf("0x%04x-0x%04x", s.Lo, s.Hi)
		})
	}
}

func (m *match) writeProto(b *strings.Builder) {
	p := m.f[fProto]
	switch {
	case p == nil, m.f[fICMP] != nil, m.f[fICMP6] != nil:
		return
	case slices.Equal(p, noTracked) && m.f[fKnown] != nil:
		return
	case slices.Equal(p, withPorts) && (m.f[fFromPort] != nil || m.f[fPort] != nil):
		return
	}
	name := func(s span) string {
		if n := protoNames[uint8(s.Lo)]; s.Lo == s.Hi && n != "" {
			return n
		}
		return numberText(s)
	}
	if not := p.not(255); len(p) == 1 && p[0].Lo == p[0].Hi && protoNames[uint8(p[0].Lo)] != "" {
		b.WriteString(" " + name(p[0]))
	} else if len(not) == 1 && not[0].Lo == not[0].Hi && protoNames[uint8(not[0].Lo)] != "" {
		b.WriteString(" not " + name(not[0]))
	} else {
		writeList(b, "proto", p, 255, name)
	}
}

func (m *match) writePorts(b *strings.Builder, word string, f numField) {
	switch {
	case m.f[f] == nil:
	case m.name[f] != "":
		b.WriteString(" " + word + " " + m.name[f])
	default:
		writeNumbers(b, word, f, m.f[f])
	}
}

var flagNames = [...]string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"}

func flagText(v uint8) string {
	var names []string
	for i, n := range flagNames {
		if v&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}

func (f flagMatch) text() string {
	switch {
	case f == flagMatch{0x17, 0x02}:
		return "syn"
	case f.mask == f.value:
		return "flags " + flagText(f.value)
	}
	return "flags " + flagText(f.value) + "/" + flagText(f.mask)
}

func (m *match) writeFlags(b *strings.Builder) {
	if m.flags != nil {
		b.WriteString(" " + m.flags.text())
	}
	for _, n := range m.notFlags {
		b.WriteString(" not " + n.text())
	}
}

func (a addrMatch) write(b *strings.Builder, word string) {
	write := func(s *addrSet) {
		switch {
		case s.name != "":
			b.WriteString(" " + word + " " + s.name)
		case len(s.addrs) == 1:
			b.WriteString(" " + word + " " + s.addrs[0].String())
		default:
			b.WriteString(" " + word + " ")
			writeAddrs(b, s.addrs)
		}
	}
	if a.pos != nil {
		write(a.pos)
	}
	for _, n := range a.neg {
		b.WriteString(" not")
		write(n)
	}
}

func (s *dynSet) write(b *strings.Builder, word string) {
	if s != nil {
		b.WriteString(" " + word + " " + s.name)
	}
}

// writeAddrs writes a list, one element a line where it may be long: a line of a policy has at most
// 1 MiB, and `levee fmt` lays it out anyway.
func writeAddrs(b *strings.Builder, in addrSpans) {
	sep := ", "
	if len(in) > 64 {
		sep = ",\n"
	}
	b.WriteString("{ ")
	for i, a := range in {
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(a.String())
	}
	b.WriteString(" }")
}

func numberText(s span) string {
	if s.Lo == s.Hi {
		return fmt.Sprint(s.Lo)
	}
	return fmt.Sprintf("%d-%d", s.Lo, s.Hi)
}

func writeNumbers(b *strings.Builder, word string, f numField, s spans) {
	writeList(b, word, s, fieldTop[f], numberText)
}

// writeList writes values, or what they are not where that is shorter.
func writeList(b *strings.Builder, word string, s spans, top uint64, text func(span) string) {
	if not := s.not(top); len(not) > 0 && len(not) < len(s) {
		b.WriteString(" not")
		s = not
	}
	b.WriteString(" " + word)
	if len(s) == 1 {
		b.WriteString(" " + text(s[0]))
		return
	}
	var list []string
	for _, r := range s {
		list = append(list, text(r))
	}
	b.WriteString(" " + braced(list))
}

// writeICMP writes types and codes: 8, 3/4, 133-137.
func writeICMP(b *strings.Builder, word string, s spans) {
	if s == nil {
		return
	}
	elems := func(s spans) (out []string) {
		for _, r := range s {
			for v := r.Lo; v <= r.Hi; {
				if first, last := v>>8, (r.Hi+1)>>8; v&0xff == 0 && last > first {
					out = append(out, numberText(span{Lo: first, Hi: last - 1}))
					v = last << 8
					continue
				}
				out = append(out, fmt.Sprintf("%d/%d", v>>8, v&0xff))
				v++
			}
		}
		return out
	}
	list := elems(s)
	if not := elems(s.not(0xffff)); len(not) > 0 && len(not) < len(list) {
		b.WriteString(" not")
		list = not
	}
	b.WriteString(" " + word + " type " + braced(list))
}

func writeMACs(b *strings.Builder, word string, s spans) {
	if s == nil {
		return
	}
	list, ok := macs(s)
	if !ok {
		list, _ = macs(s.not(1<<48 - 1))
		b.WriteString(" not")
	}
	b.WriteString(" " + word + " " + braced(list))
}

// macs are the Ethernet addresses of a set; not ok when there are ranges, for which a policy has no
// word.
func macs(s spans) (out []string, ok bool) {
	for _, r := range s {
		if r.Hi-r.Lo > 1<<10 {
			return nil, false
		}
		for v := r.Lo; v <= r.Hi; v++ {
			out = append(out, fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", byte(v>>40), byte(v>>32),
				byte(v>>24), byte(v>>16), byte(v>>8), byte(v)))
		}
	}
	return out, len(out) > 0
}

func braced(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	sep := ", "
	if len(list) > 64 {
		sep = ",\n"
	}
	return "{ " + strings.Join(list, sep) + " }"
}
