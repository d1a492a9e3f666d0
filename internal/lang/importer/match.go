package importer

import "slices"

// numField is a numeric field of a packet, as docs/reference/language.md "Matches" has it.
type numField uint8

const (
	fEther numField = iota
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
	fKnown    // 1: of a connection that levee knows
	fStrict   // 1: the kernel's route to the source is by the interface
	fLoose    // 1: there is one
	numFields
)

var fieldTop = [numFields]uint64{
	fEther: 0xffff, fVLAN: 4095, fEtherFrom: 1<<48 - 1, fEtherTo: 1<<48 - 1, fProto: 255,
	fICMP: 0xffff, fICMP6: 0xffff,
	fFromPort: 0xffff, fPort: 0xffff, fLen: 65575, fTTL: 255, fDSCP: 63, fFragment: later,
	fKnown: 1, fStrict: 1, fLoose: 1,
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
	bothIP    = spans{{Lo: etherIPv4, Hi: etherIPv4}, {Lo: etherIPv6, Hi: etherIPv6}}
	withPorts = spans{{Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}, {Lo: 33, Hi: 33}, {Lo: 132, Hi: 132},
		{Lo: 136, Hi: 136}}
	allPorts = between(0, 0xffff)
)

// addrSet is a set of addresses or ports that rules refer to, with the name that the policy gives
// it or "" for one that is written where it is used. dynamic sets have a name and no addresses.
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
	// of services or endpoints that are filled at run time, or nil
	fromDyn, toDyn *dynSet

	flags    *flagMatch
	notFlags []flagMatch
	finds    []string // terms that search the payload of UDP
	never    bool     // no packet can match
}

// with restricts one field further.
func (m match) with(f numField, s spans) match {
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
	if o.fromDyn != nil {
		m.fromDyn = o.fromDyn
	}
	if o.toDyn != nil {
		m.toDyn = o.toDyn
	}
	if o.flags != nil {
		m = m.withFlags(*o.flags)
	}
	for _, f := range o.notFlags {
		m = m.withoutFlags(f)
	}
	for _, f := range o.finds {
		if !slices.Contains(m.finds, f) {
			m.finds = append(slices.Clip(m.finds), f)
		}
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
	same := func(a, b *dynSet) bool { return a == nil || b == nil || a == b }
	return ok(m.from, o.from) && ok(m.to, o.to) && same(m.fromDyn, o.fromDyn) &&
		same(m.toDyn, o.toDyn)
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
	// family, flags, and two of from, to
	n := 6 + len(m.notFlags) + len(m.finds) + len(m.from.neg) + len(m.to.neg)
	for f := range numFields {
		n += b2i(m.f[f] != nil)
	}
	return n
}

// maxWritten bounds the ranges of addresses that all rules together have in lists of their own.
// Large sets have names and are written once; only where two of them meet in one rule does the rule
// get a list.
const maxWritten = 1 << 20

// within tells whether all packets of m are of o.
func (m *match) within(o match) bool {
	if !m.compatible(&o) {
		return false
	}
	both := m.and(&o)
	return both.equal(m)
}

// butNot is what m holds for and o, which asks for more than m, does not. It is one match where
// they differ in one field that all packets of m have; else there is none.
func (m match) butNot(o *match) (match, bool) {
	field, differ := numFields, 0
	for f := range numFields {
		if (m.f[f] == nil) != (o.f[f] == nil) || !slices.Equal(m.f[f], o.f[f]) {
			field = f
			differ++
		}
	}
	flags := (m.flags == nil) != (o.flags == nil) || m.flags != nil && *m.flags != *o.flags ||
		!slices.Equal(m.notFlags, o.notFlags) || !slices.Equal(m.finds, o.finds)
	from, to := !m.from.equal(o.from), !m.to.equal(o.to)
	isIP := m.f[fEther] != nil && m.f[fEther].within(bothIP)
	switch {
	case flags || from && to || o.never || m.fromDyn != o.fromDyn || m.toDyn != o.toDyn:
		return m, false
	case from || to:
		a, b := &m.from, o.from
		if to {
			a, b = &m.to, o.to
		}
		// that addresses are of one family is no condition besides
		if differ > 1 || differ == 1 && (field != fEther || b.pos == nil || b.pos.dynamic ||
			!slices.EqualFunc(a.neg, b.neg, (*addrSet).same) || !b.pos.implies(o.f[fEther])) {
			return m, false
		}
		if !isIP || !a.butNot(b) {
			return m, false
		}
	case differ != 1:
		return m, false
	default:
		switch field {
		case fEther, fLen:
		case fProto, fTTL, fDSCP:
			if !isIP {
				return m, false
			}
		case fKnown:
			if !m.hasTransport() || !m.f[fProto].within(noTracked) {
				return m, false
			}
		case fFromPort, fPort:
			if !m.hasTransport() {
				return m, false
			}
		default:
			return m, false
		}
		m = m.with(field, o.f[field].not(fieldTop[field]))
	}
	m = m.settle()
	return m, m.terms() <= maxTerms/2
}

// implies tells whether the addresses are of the families of e, all of them.
func (s *addrSet) implies(e spans) bool {
	four, six := s.addrs.families()
	return four && !six && slices.Equal(e, only4) || six && !four && slices.Equal(e, only6)
}

// butNot takes b, which asks for more, out of a. It tells whether that can be said.
func (a *addrMatch) butNot(b addrMatch) bool {
	switch {
	case slices.EqualFunc(a.neg, b.neg, (*addrSet).same) && b.pos != nil:
		a.neg = without(a.neg, b.pos)
		return true
	case len(b.neg) == len(a.neg)+1 && (a.pos == nil) == (b.pos == nil) &&
		(a.pos == nil || a.pos.same(b.pos)) &&
		slices.EqualFunc(a.neg, b.neg[:len(a.neg)], (*addrSet).same):
		n := b.neg[len(a.neg)]
		if a.pos != nil && (a.pos.dynamic || n.dynamic) {
			return false
		}
		*a = a.and(addrMatch{pos: n})
		return true
	}
	return false
}

// settle draws the conclusions that one field allows about others, so that a match that no packet
// can have is known as one, and the same match looks the same.
func (m match) settle() match {
	m.flags, m.never = m.settledFlags()
	if m.flags != nil || len(m.notFlags) > 0 {
		m = m.with(fProto, just(6))
	}
	if len(m.finds) > 0 {
		m = m.with(fProto, just(17))
	}
	if m.f[fFromPort] != nil || m.f[fPort] != nil || m.fromDyn.ports() || m.toDyn.ports() {
		m = m.with(fProto, withPorts)
	}
	if m.fromDyn != nil || m.toDyn != nil {
		m = m.with(fEther, bothIP)
	}
	if m.f[fICMP] != nil {
		m = m.with(fProto, just(1)).with(fEther, only4)
	}
	if m.f[fICMP6] != nil {
		m = m.with(fProto, just(58)).with(fEther, only6)
	}
	if m.f[fKnown] != nil {
		m = m.with(fProto, noTracked)
	}
	if m.hasTransport() {
		m = m.with(fFragment, between(whole, first))
	}
	for _, f := range [...]numField{fProto, fTTL, fDSCP, fFragment, fStrict, fLoose} {
		if m.f[f] != nil {
			m = m.with(fEther, bothIP)
		}
	}
	m = m.settleAddr(&m.from)
	return m.settleAddr(&m.to)
}

// hasTransport tells whether the match asks for a field of the transport header.
func (m *match) hasTransport() bool {
	return m.f[fFromPort] != nil || m.f[fPort] != nil || m.f[fICMP] != nil || m.f[fICMP6] != nil ||
		m.flags != nil || len(m.notFlags) > 0 || len(m.finds) > 0 ||
		m.fromDyn.ports() || m.toDyn.ports() ||
		m.f[fKnown] != nil
}

// ports tells whether only packets with ports can match.
func (s *dynSet) ports() bool { return s != nil && s.services }

// vague tells whether a policy has no words for which fragments are meant.
func (m *match) vague() bool {
	f := m.f[fFragment]
	return f != nil && !m.hasTransport() &&
		(slices.Equal(f, just(later)) || slices.Equal(f, between(whole, first)) ||
			slices.Equal(f, just(first)))
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
	if m.fromDyn != o.fromDyn || m.toDyn != o.toDyn {
		return false
	}
	return m.from.equal(o.from) && m.to.equal(o.to) && slices.Equal(m.notFlags, o.notFlags) &&
		slices.Equal(m.finds, o.finds)
}

func (a addrMatch) equal(o addrMatch) bool {
	if (a.pos == nil) != (o.pos == nil) || a.pos != nil && !a.pos.same(o.pos) {
		return false
	}
	return slices.EqualFunc(a.neg, o.neg, (*addrSet).same)
}
