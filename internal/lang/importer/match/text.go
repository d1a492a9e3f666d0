package match

import (
	"fmt"
	"slices"
	"strings"
)

// Text returns the match as terms of a policy, each after a blank; the layout is left to `levee
// fmt`.
func (m *Match) Text() string {
	var b strings.Builder
	m.writeEther(&b)
	switch v := m.Fields[VLAN]; {
	case v == nil:
	case slices.Equal(v, Just(Untagged)):
		b.WriteString(" untagged")
	default:
		writeNumbers(&b, "vlan", VLAN, v)
	}
	writeMACs(&b, "ether from", m.Fields[EtherFrom])
	writeMACs(&b, "ether to", m.Fields[EtherTo])
	m.writeProto(&b)
	writeICMP(&b, "icmp", m.Fields[ICMP])
	writeICMP(&b, "icmp6", m.Fields[ICMP6])
	m.writeFlags(&b)
	m.From.write(&b, "from")
	m.FromDyn.write(&b, "from")
	m.writePorts(&b, "from port", FromPort)
	m.To.write(&b, "to")
	m.ToDyn.write(&b, "to")
	m.writePorts(&b, "port", Port)
	for _, n := range [...]struct {
		f    Field
		word string
	}{{Len, "len"}, {TTL, "ttl"}, {DSCP, "dscp"}, {UID, "uid"}, {GID, "gid"}} {
		if m.Fields[n.f] != nil {
			writeNumbers(&b, n.word, n.f, m.Fields[n.f])
		}
	}
	for _, f := range m.Finds {
		b.WriteString(" " + f)
	}
	if k := m.Fields[Known]; k != nil {
		if k[0].Lo == 0 {
			b.WriteString(" not")
		}
		b.WriteString(" established")
	}
	if m.Fields[Local] != nil {
		b.WriteString(" local")
	}
	for _, s := range m.Services {
		b.WriteString(" " + s)
	}
	m.writePath(&b, Strict, "strict")
	m.writePath(&b, Loose, "loose")
	switch f := m.Fields[Fragment]; {
	case f == nil || slices.Equal(f, Between(Whole, First)) ||
		slices.Equal(f, Between(Whole, Later)):
	case f[0].Lo == Whole:
		b.WriteString(" not fragments")
	default:
		b.WriteString(" fragments")
	}
	return b.String()
}

// writePath writes what is asked of the kernel's route to the source.
func (m *Match) writePath(b *strings.Builder, f Field, how string) {
	if s := m.Fields[f]; s != nil {
		if s[0].Lo == 0 {
			b.WriteString(" not")
		}
		b.WriteString(" reverse-path " + how)
	}
}

// writeEther writes the family, unless another term implies it.
func (m *Match) writeEther(b *strings.Builder) {
	e := m.Fields[Ether]
	four, six := true, true
	isIP := m.Fields[Proto] != nil || m.Fields[TTL] != nil || m.Fields[DSCP] != nil ||
		m.Fields[Fragment] != nil
	isIP = isIP || m.Fields[Strict] != nil || m.Fields[Loose] != nil
	isIP = isIP || m.Fields[UID] != nil || m.Fields[GID] != nil || len(m.Services) > 0 ||
		m.Fields[Local] != nil
	isIP = isIP || m.Fields[Known] != nil || m.FromDyn != nil || m.ToDyn != nil
	for _, a := range [...]Address{m.From, m.To} {
		isIP = isIP || a.In != nil || len(a.Not) > 0
		if a.In != nil && !a.In.Dynamic {
			f, s := a.In.Addresses.families()
			four, six = four && f, six && s
		}
	}
	switch {
	case e == nil:
	case slices.Equal(e, Only4):
		if m.Fields[ICMP] == nil && six {
			b.WriteString(" ipv4")
		}
	case slices.Equal(e, Only6):
		if m.Fields[ICMP6] == nil && four {
			b.WriteString(" ipv6")
		}
	case slices.Equal(e, Just(EtherARP)):
		b.WriteString(" arp")
	case slices.Equal(e, BothIP):
		if !isIP {
			b.WriteString(" from any")
		}
	default:
		writeList(b, "ether", e, Top[Ether], func(s Span) string {
			if s.Lo == s.Hi {
				return fmt.Sprintf("0x%04x", s.Lo)
			}
			return fmt.Sprintf("0x%04x-0x%04x", s.Lo, s.Hi)
		})
	}
}

func (m *Match) writeProto(b *strings.Builder) {
	p := m.Fields[Proto]
	switch {
	case p == nil, m.Fields[ICMP] != nil, m.Fields[ICMP6] != nil:
		return
	case slices.Equal(p, NoTracked) && m.Fields[Known] != nil:
		return
	case slices.Equal(p, WithPorts) && (m.Fields[FromPort] != nil || m.Fields[Port] != nil):
		return
	}
	name := func(s Span) string {
		if n := ProtoNames[uint8(s.Lo)]; s.Lo == s.Hi && n != "" {
			return n
		}
		return NumberText(s)
	}
	if not := p.Not(255); len(p) == 1 && p[0].Lo == p[0].Hi && ProtoNames[uint8(p[0].Lo)] != "" {
		b.WriteString(" " + name(p[0]))
	} else if len(not) == 1 && not[0].Lo == not[0].Hi && ProtoNames[uint8(not[0].Lo)] != "" {
		b.WriteString(" not " + name(not[0]))
	} else {
		writeList(b, "proto", p, 255, name)
	}
}

func (m *Match) writePorts(b *strings.Builder, word string, f Field) {
	switch {
	case m.Fields[f] == nil:
	case m.Name[f] != "":
		b.WriteString(" " + word + " " + m.Name[f])
	default:
		writeNumbers(b, word, f, m.Fields[f])
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

func (f Flags) text() string {
	switch {
	case f == Flags{0x17, 0x02}:
		return "syn"
	case f.Mask == f.Value:
		return "flags " + flagText(f.Value)
	}
	return "flags " + flagText(f.Value) + "/" + flagText(f.Mask)
}

func (m *Match) writeFlags(b *strings.Builder) {
	if m.Flags != nil {
		b.WriteString(" " + m.Flags.text())
	}
	for _, n := range m.NotFlags {
		b.WriteString(" not " + n.text())
	}
}

func (a Address) write(b *strings.Builder, word string) {
	write := func(s *Set) {
		switch {
		case s.Name != "":
			b.WriteString(" " + word + " " + s.Name)
		case len(s.Addresses) == 1:
			b.WriteString(" " + word + " " + s.Addresses[0].String())
		default:
			b.WriteString(" " + word + " ")
			writeAddrs(b, s.Addresses)
		}
	}
	if a.In != nil {
		write(a.In)
	}
	for _, n := range a.Not {
		b.WriteString(" not")
		write(n)
	}
}

func (s *DynamicSet) write(b *strings.Builder, word string) {
	if s != nil {
		b.WriteString(" " + word + " " + s.Name)
	}
}

// writeAddrs writes a list, one element a line where it may be long: a line of a policy has at most
// 1 MiB, and `levee fmt` lays it out anyway.
func writeAddrs(b *strings.Builder, in AddressSpans) {
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

// NumberText returns a span as a policy has it.
func NumberText(s Span) string {
	if s.Lo == s.Hi {
		return fmt.Sprint(s.Lo)
	}
	return fmt.Sprintf("%d-%d", s.Lo, s.Hi)
}

func writeNumbers(b *strings.Builder, word string, f Field, s Spans) {
	writeList(b, word, s, Top[f], NumberText)
}

// writeList writes values, or what they are not where that is shorter.
func writeList(b *strings.Builder, word string, s Spans, top uint64, text func(Span) string) {
	if not := s.Not(top); len(not) > 0 && len(not) < len(s) {
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
func writeICMP(b *strings.Builder, word string, s Spans) {
	if s == nil {
		return
	}
	elems := func(s Spans) (out []string) {
		for _, r := range s {
			for v := r.Lo; v <= r.Hi; {
				if first, last := v>>8, (r.Hi+1)>>8; v&0xff == 0 && last > first {
					out = append(out, NumberText(Span{Lo: first, Hi: last - 1}))
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
	if not := elems(s.Not(0xffff)); len(not) > 0 && len(not) < len(list) {
		b.WriteString(" not")
		list = not
	}
	b.WriteString(" " + word + " type " + braced(list))
}

func writeMACs(b *strings.Builder, word string, s Spans) {
	if s == nil {
		return
	}
	list, ok := Macs(s)
	if !ok {
		list, _ = Macs(s.Not(1<<48 - 1))
		b.WriteString(" not")
	}
	b.WriteString(" " + word + " " + braced(list))
}

// Macs returns the Ethernet addresses of a set; not ok when there are ranges, for which a policy
// has no word.
func Macs(s Spans) (out []string, ok bool) {
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
