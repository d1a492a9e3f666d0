package importer

import (
	"fmt"
	"slices"
	"strings"
)

// field is a numeric field of a packet, as docs/language.md "Matches" has it.
type field uint8

const (
	fEther field = iota
	fVLAN
	fEtherFrom
	fEtherTo
	fProto
	fICMP  // type<<8 | code, ICMP in IPv4
	fICMP6 // the same of ICMPv6
	fFromPort
	fPort
	fLen
	fTTL
	fDSCP
	fFragment // whole, first or later fragment; see below
	numFields
)

var fieldTop = [numFields]uint64{
	fEther: 0xffff, fVLAN: 4095, fEtherFrom: 1<<48 - 1, fEtherTo: 1<<48 - 1, fProto: 255, fICMP: 0xffff, fICMP6: 0xffff,
	fFromPort: 0xffff, fPort: 0xffff, fLen: 65575, fTTL: 255, fDSCP: 63, fFragment: later,
}

// Values of fFragment. A policy tells fragments from whole packets; netfilter tells later
// fragments, which have no transport header, from the others.
const (
	whole = iota
	first
	later
)

// EtherTypes and protocols that the shape of a match depends on.
const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherARP  = 0x0806
)

var (
	only4     = just(etherIPv4)
	only6     = just(etherIPv6)
	bothIP    = spans{{etherIPv4, etherIPv4}, {etherIPv6, etherIPv6}}
	withPorts = spans{{6, 6}, {17, 17}, {33, 33}, {132, 132}, {136, 136}}
	allPorts  = between(0, 0xffff)
)

// addrSet is a set of addresses or ports that rules refer to, with the name that the policy gives it
// or "" for one that is written where it is used. dynamic sets have a name and no addresses.
type addrSet struct {
	name    string
	addrs   addrSpans
	dynamic bool
}

// addrMatch is what is asked of an address: to be in pos (nil: anywhere) and in none of neg.
type addrMatch struct {
	pos *addrSet
	neg []*addrSet
}

// flagMatch is a condition on TCP flags: those of mask are exactly value.
type flagMatch struct{ mask, value uint8 }

// match is a conjunction of conditions on fields. The zero value holds for every frame. As in the
// language, a condition on a field that a packet does not have does not hold.
type match struct {
	f        [numFields]spans
	name     [numFields]string // of a set of ports that is f exactly, or ""
	from, to addrMatch
	flags    *flagMatch
	notFlags []flagMatch
	never    bool // no packet can match
}

// with restricts one field further.
func (m match) with(f field, s spans) match {
	if m.f[f] == nil {
		m.f[f] = s
	} else if !slices.Equal(m.f[f], s) {
		m.f[f], m.name[f] = m.f[f].and(s), ""
	}
	m.never = m.never || len(m.f[f]) == 0
	return m
}

// withFlags asks for flags.
func (m match) withFlags(f flagMatch) match {
	if o := m.flags; o != nil {
		m.never = m.never || (o.value^f.value)&o.mask&f.mask != 0
		f = flagMatch{o.mask | f.mask, o.value | f.value}
	}
	m.flags = &f
	return m
}

func (m match) withoutFlags(f flagMatch) match {
	if f.mask&(f.mask-1) == 0 { // one flag: not set is clear, not clear is set
		return m.withFlags(flagMatch{f.mask, f.value ^ f.mask})
	}
	if !slices.Contains(m.notFlags, f) {
		m.notFlags = append(slices.Clip(m.notFlags), f)
	}
	return m
}

// and is what both matches hold for.
func (m match) and(o *match) match {
	for f := range numFields {
		if o.f[f] == nil {
			continue
		}
		if m.f[f] == nil {
			m.name[f] = o.name[f]
		}
		m = m.with(f, o.f[f])
	}
	m.from = m.from.and(o.from)
	m.to = m.to.and(o.to)
	if o.flags != nil {
		m = m.withFlags(*o.flags)
	}
	for _, f := range o.notFlags {
		m = m.withoutFlags(f)
	}
	m.never = m.never || o.never
	return m.settle()
}

func (a addrMatch) and(o addrMatch) addrMatch {
	switch {
	case a.pos == nil:
		a.pos = o.pos
	case o.pos == nil || o.pos == a.pos:
	case a.pos.dynamic || o.pos.dynamic: // excluded by compatible
	default:
		a.pos = &addrSet{addrs: a.pos.addrs.and(o.pos.addrs)}
	}
	for _, n := range o.neg {
		if !slices.ContainsFunc(a.neg, n.same) {
			a.neg = without(a.neg, n)
		}
	}
	return a
}

// without is neg and n, with all that have no name in one set: a rule has room for some terms only.
func without(neg []*addrSet, n *addrSet) []*addrSet {
	i := slices.IndexFunc(neg, func(s *addrSet) bool { return s.name == "" })
	if i < 0 || n.name != "" {
		return append(slices.Clip(neg), n)
	}
	out := slices.Clone(neg)
	out[i] = &addrSet{addrs: joinAddrs(append(slices.Clone(neg[i].addrs), n.addrs...))}
	return out
}

func (s *addrSet) same(o *addrSet) bool {
	return s == o || s.name == o.name && s.dynamic == o.dynamic && slices.Equal(s.addrs, o.addrs)
}

// compatible tells whether one rule can ask for both: what is in a dynamic set is known only at run
// time, so it has no intersection with another.
func (m *match) compatible(o *match) bool {
	ok := func(a, b addrMatch) bool {
		return a.pos == nil || b.pos == nil || a.pos == b.pos || !a.pos.dynamic && !b.pos.dynamic
	}
	return ok(m.from, o.from) && ok(m.to, o.to)
}

// weight is the number of addresses ranges that are written with the match itself.
func (m *match) weight() (n int) {
	for _, a := range [...]addrMatch{m.from, m.to} {
		if a.pos != nil && a.pos.name == "" {
			n += len(a.pos.addrs)
		}
	}
	return n
}

// maxTerms is the number of terms that a statement of the language may have.
const maxTerms = 32

// terms is at least the number of terms that the match is written with.
func (m *match) terms() int {
	n := len(m.notFlags) + len(m.from.neg) + len(m.to.neg) + 4 // family, flags, from, to
	for f := range numFields {
		n += b2i(m.f[f] != nil)
	}
	return n
}

// maxWritten bounds the ranges of addresses that all rules together have in lists of their own. Large sets have names and are
// written once; only where two of them meet in one rule does the rule get a list.
const maxWritten = 1 << 20

// settle draws the conclusions that one field allows about others, so that a match that no packet
// can have is known as one, and the same match looks the same.
func (m match) settle() match {
	m.flags, m.never = m.settledFlags()
	if m.flags != nil || len(m.notFlags) > 0 {
		m = m.with(fProto, just(6))
	}
	if m.f[fFromPort] != nil || m.f[fPort] != nil {
		m = m.with(fProto, withPorts)
	}
	if m.f[fICMP] != nil {
		m = m.with(fProto, just(1)).with(fEther, only4)
	}
	if m.f[fICMP6] != nil {
		m = m.with(fProto, just(58)).with(fEther, only6)
	}
	if m.hasTransport() {
		m = m.with(fFragment, between(whole, first))
	}
	for _, f := range [...]field{fProto, fTTL, fDSCP, fFragment} {
		if m.f[f] != nil {
			m = m.with(fEther, bothIP)
		}
	}
	m = m.settleAddr(&m.from)
	return m.settleAddr(&m.to)
}

// hasTransport tells whether the match asks for a field of the transport header.
func (m *match) hasTransport() bool {
	return m.f[fFromPort] != nil || m.f[fPort] != nil || m.f[fICMP] != nil || m.f[fICMP6] != nil || m.flags != nil || len(m.notFlags) > 0
}

// vague tells whether a policy has no words for which fragments are meant.
func (m *match) vague() bool {
	f := m.f[fFragment]
	return f != nil && !m.hasTransport() && (slices.Equal(f, just(later)) || slices.Equal(f, between(whole, first)) || slices.Equal(f, just(first)))
}

func (m match) settledFlags() (*flagMatch, bool) {
	if m.flags == nil {
		return nil, m.never
	}
	keep := m.notFlags[:0:0]
	for _, n := range m.notFlags {
		switch {
		case (m.flags.value^n.value)&m.flags.mask&n.mask != 0: // holds anyway
		case n.mask&^m.flags.mask == 0: // cannot hold
			return m.flags, true
		default:
			keep = append(keep, n)
		}
	}
	return m.flags, m.never
}

// settleAddr is settle for one side; a points into m.
func (m match) settleAddr(a *addrMatch) match {
	if a.pos == nil && len(a.neg) == 0 {
		return m
	}
	m = m.with(fEther, bothIP)
	if a.pos == nil || a.pos.dynamic {
		return m
	}
	four, six := a.pos.addrs.families()
	switch {
	case !four && !six:
		m.never = true
	case !six:
		m = m.with(fEther, only4)
	case !four:
		m = m.with(fEther, only6)
	}
	for _, n := range a.neg {
		m.never = m.never || !n.dynamic && a.pos.addrs.within(n.addrs)
	}
	return m
}

// equal tells whether two settled matches are the same conditions.
func (m *match) equal(o *match) bool {
	for f := range numFields {
		if (m.f[f] == nil) != (o.f[f] == nil) || !slices.Equal(m.f[f], o.f[f]) {
			return false
		}
	}
	if (m.flags == nil) != (o.flags == nil) || m.flags != nil && *m.flags != *o.flags {
		return false
	}
	return m.from.equal(o.from) && m.to.equal(o.to) && slices.Equal(m.notFlags, o.notFlags)
}

func (a addrMatch) equal(o addrMatch) bool {
	if (a.pos == nil) != (o.pos == nil) || a.pos != nil && !a.pos.same(o.pos) {
		return false
	}
	return slices.EqualFunc(a.neg, o.neg, (*addrSet).same)
}

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
	m.writePorts(&b, "from port", fFromPort)
	m.to.write(&b, "to")
	m.writePorts(&b, "port", fPort)
	for _, n := range [...]struct {
		f    field
		word string
	}{{fLen, "len"}, {fTTL, "ttl"}, {fDSCP, "dscp"}} {
		if m.f[n.f] != nil {
			writeNumbers(&b, n.word, n.f, m.f[n.f])
		}
	}
	switch f := m.f[fFragment]; {
	case f == nil || slices.Equal(f, between(whole, first)) || slices.Equal(f, between(whole, later)):
	case f[0].lo == whole:
		b.WriteString(" not fragments")
	default:
		b.WriteString(" fragments")
	}
	return b.String()
}

// writeEther writes the family, unless another term implies it.
func (m *match) writeEther(b *strings.Builder) {
	e := m.f[fEther]
	four, six := true, true
	isIP := m.f[fProto] != nil || m.f[fTTL] != nil || m.f[fDSCP] != nil || m.f[fFragment] != nil
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
			if s.lo == s.hi {
				return fmt.Sprintf("0x%04x", s.lo)
			}
			return fmt.Sprintf("0x%04x-0x%04x", s.lo, s.hi)
		})
	}
}

func (m *match) writeProto(b *strings.Builder) {
	p := m.f[fProto]
	switch {
	case p == nil, m.f[fICMP] != nil, m.f[fICMP6] != nil:
		return
	case slices.Equal(p, withPorts) && (m.f[fFromPort] != nil || m.f[fPort] != nil):
		return
	}
	name := func(s span) string {
		if n := protoNames[uint8(s.lo)]; s.lo == s.hi && n != "" {
			return n
		}
		return numberText(s)
	}
	if not := p.not(255); len(p) == 1 && p[0].lo == p[0].hi && protoNames[uint8(p[0].lo)] != "" {
		b.WriteString(" " + name(p[0]))
	} else if len(not) == 1 && not[0].lo == not[0].hi && protoNames[uint8(not[0].lo)] != "" {
		b.WriteString(" not " + name(not[0]))
	} else {
		writeList(b, "proto", p, 255, name)
	}
}

func (m *match) writePorts(b *strings.Builder, word string, f field) {
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
	case f == flagMatch{0x12, 0x02}:
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
	if s.lo == s.hi {
		return fmt.Sprint(s.lo)
	}
	return fmt.Sprintf("%d-%d", s.lo, s.hi)
}

func writeNumbers(b *strings.Builder, word string, f field, s spans) {
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
			for v := r.lo; v <= r.hi; {
				if first, last := v>>8, (r.hi+1)>>8; v&0xff == 0 && last > first {
					out = append(out, numberText(span{first, last - 1}))
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
		if r.hi-r.lo > 1<<10 {
			return nil, false
		}
		for v := r.lo; v <= r.hi; v++ {
			out = append(out, fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", byte(v>>40), byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v)))
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
