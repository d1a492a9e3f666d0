// Package match has the conditions that rules of other tools have in common: a conjunction of
// fields of a packet, as a policy says it.
//
// In go spans of values, addresses, flags, and their texts as those tools print them; out come what
// two conditions have in common or not, and the terms of a policy. It must never widen a condition.
package match

import (
	"net/netip"
	"slices"
)

// TakesDHCP tells whether the match holds for answers of DHCP from and to any address, but those
// that are taken out.
func (m *Match) TakesDHCP() bool {
	for f, v := range [numFields]uint64{Ether: EtherIPv4, Proto: 17, FromPort: 67, Port: 68,
		Fragment: Whole} {
		s := m.Fields[f]
		switch Field(f) {
		case Ether, Proto, FromPort, Port, Fragment:
			if s != nil && len(s.And(Just(v))) == 0 {
				return false
			}
		default:
			if s != nil {
				return false
			}
		}
	}
	return m.FromDyn == nil && m.ToDyn == nil && m.From.In == nil && m.To.In == nil &&
		m.Flags == nil && len(m.NotFlags) == 0 && len(m.Finds) == 0 &&
		len(m.Services) == 0 && !m.Never
}

// DynamicSet is a dynamic set of services or endpoints, which a match may ask for besides
// addresses.
type DynamicSet struct {
	Name     string
	Services bool // not endpoints
}

// WithDyn asks for a set of services or endpoints on one side.
func (m Match) WithDyn(dir string, s *DynamicSet) Match {
	if dir == "dst" {
		m.ToDyn = s
	} else {
		m.FromDyn = s
	}
	return m.Settle()
}

// Field is a numeric field of a packet, as docs/reference/matches.md "Matches" has it.
type Field uint8

const (
	Ether Field = iota
	VLAN        // see Untagged
	EtherFrom
	EtherTo
	Proto
	ICMP  // type<<8 | code, ICMP in IPv4
	ICMP6 // the same of ICMPv6
	FromPort
	Port
	Len
	TTL
	DSCP
	Fragment // whole, first or later fragment; see below
	Known    // 1: of a connection that levee knows
	Strict   // 1: the kernel's route to the source is by the interface
	Loose    // 1: there is one
	UID      // of the socket that sends
	GID      // likewise
	Local    // 1: this machine sends it
	// 1: nat has given it another destination. No policy has it: an importer takes it out of what
	// it writes.
	Sent
	numFields
)

// Top is the greatest value of each field.
var Top = [numFields]uint64{
	Ether: 0xffff, VLAN: 4095, EtherFrom: 1<<48 - 1, EtherTo: 1<<48 - 1, Proto: 255,
	ICMP: 0xffff, ICMP6: 0xffff,
	FromPort: 0xffff, Port: 0xffff, Len: 65575, TTL: 255, DSCP: 63, Fragment: Later,
	Known: 1, Strict: 1, Loose: 1, UID: 1<<32 - 2, GID: 1<<32 - 2,
	Local: 1, Sent: 1,
}

// Untagged is the value of VLAN of frames without a tag. No match has it together with others.
const Untagged = 0

// Tagged are the values of VLAN of frames with a tag.
var Tagged = Between(1, 4095)

// Values of Fragment. A policy tells fragments from whole packets; netfilter tells later
// fragments, which have no transport header, from the others.
const (
	Whole = iota
	First
	Later
)

// EtherTypes and protocols that the shape of a match depends on.
const (
	EtherIPv4 = 0x0800
	EtherIPv6 = 0x86dd
	EtherARP  = 0x0806
)

var (
	Only4     = Just(EtherIPv4)
	Only6     = Just(EtherIPv6)
	BothIP    = Spans{{Lo: EtherIPv4, Hi: EtherIPv4}, {Lo: EtherIPv6, Hi: EtherIPv6}}
	WithPorts = Spans{{Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}, {Lo: 33, Hi: 33}, {Lo: 132, Hi: 132},
		{Lo: 136, Hi: 136}}
	AllPorts = Between(0, 0xffff)
)

// Set is a set of addresses or ports that rules refer to, with the name that the policy gives
// it or "" for one that is written where it is used. Dynamic sets have a name and no addresses.
type Set struct {
	Name      string
	Addresses AddressSpans
	Dynamic   bool
	Own       bool // of what the kernel delivers to the machine itself
	Mapped    bool // IPv4-mapped addresses were taken out of it
}

// mapped are the IPv4-mapped addresses of IPv6.
var mapped = AddressSpans{{Lo: netip.MustParseAddr("::ffff:0.0.0.0"),
	Hi: netip.MustParseAddr("::ffff:255.255.255.255")}}

// TakeMapped takes the IPv4-mapped addresses out of a set, which no policy has, and notes it.
func (s *Set) TakeMapped() {
	if s.Addresses.Mapped() {
		s.Addresses, s.Mapped = s.Addresses.Minus(mapped), true
	}
}

// Address is a condition on an address: it lies in In (nil: anywhere) and in none of Not.
type Address struct {
	In  *Set
	Not []*Set
}

// Flags is a condition on TCP flags: those of Mask are exactly Value.
type Flags struct{ Mask, Value uint8 }

// Match is a conjunction of conditions on fields. The zero value holds for every frame. As in the
// language, a condition on a field that a packet does not have does not hold.
type Match struct {
	Fields   [numFields]Spans
	Name     [numFields]string // of a set of ports that is the field exactly, or ""
	From, To Address
	// of services or endpoints that are filled at run time, or nil
	FromDyn, ToDyn *DynamicSet

	Flags    *Flags
	NotFlags []Flags
	Finds    []string // terms that search the payload of UDP
	Services []string // terms on the unit that sends
	Never    bool     // no packet can match
}

// With restricts one field further.
func (m Match) With(f Field, s Spans) Match {
	if m.Fields[f] == nil {
		m.Fields[f] = s
	} else if !slices.Equal(m.Fields[f], s) {
		m.Fields[f], m.Name[f] = m.Fields[f].And(s), ""
	}
	m.Never = m.Never || len(m.Fields[f]) == 0
	return m
}

// WithFlags asks for flags.
func (m Match) WithFlags(f Flags) Match {
	if o := m.Flags; o != nil {
		m.Never = m.Never || (o.Value^f.Value)&o.Mask&f.Mask != 0
		f = Flags{o.Mask | f.Mask, o.Value | f.Value}
	}
	m.Flags = &f
	return m
}

// WithoutFlags asks for other flags than these.
func (m Match) WithoutFlags(f Flags) Match {
	if f.Mask&(f.Mask-1) == 0 { // one flag: not set is clear, not clear is set
		return m.WithFlags(Flags{f.Mask, f.Value ^ f.Mask})
	}
	if !slices.Contains(m.NotFlags, f) {
		m.NotFlags = append(slices.Clip(m.NotFlags), f)
	}
	return m
}

// And returns what both matches hold for.
func (m Match) And(o *Match) Match {
	for f := range numFields {
		if o.Fields[f] == nil {
			continue
		}
		if m.Fields[f] == nil {
			m.Name[f] = o.Name[f]
		}
		m = m.With(f, o.Fields[f])
	}
	m.From = m.From.And(o.From)
	m.To = m.To.And(o.To)
	if o.FromDyn != nil {
		m.FromDyn = o.FromDyn
	}
	if o.ToDyn != nil {
		m.ToDyn = o.ToDyn
	}
	if o.Flags != nil {
		m = m.WithFlags(*o.Flags)
	}
	for _, f := range o.NotFlags {
		m = m.WithoutFlags(f)
	}
	finds, none := joinFinds(m.Finds, o.Finds)
	m.Finds, m.Services = finds, union(m.Services, o.Services)
	m.Never = m.Never || o.Never || none
	return m.Settle()
}

// And returns what both hold for.
func (a Address) And(o Address) Address {
	switch {
	case a.In == nil:
		a.In = o.In
	case o.In == nil || o.In == a.In:
	case a.In.Dynamic || o.In.Dynamic: // excluded by Compatible
	default:
		a.In = &Set{Addresses: a.In.Addresses.and(o.In.Addresses)}
	}
	for _, n := range o.Not {
		if !slices.ContainsFunc(a.Not, n.same) {
			a.Not = without(a.Not, n)
		}
	}
	return a
}

// without is neg and n, with all that have no name in one set: a rule has room for some terms only.
func without(neg []*Set, n *Set) []*Set {
	i := slices.IndexFunc(neg, func(s *Set) bool { return s.Name == "" })
	if i < 0 || n.Name != "" {
		return append(slices.Clip(neg), n)
	}
	out := slices.Clone(neg)
	out[i] = &Set{Addresses: JoinAddrs(append(slices.Clone(neg[i].Addresses), n.Addresses...))}
	return out
}

func (s *Set) same(o *Set) bool {
	return s == o || s.Name == o.Name && s.Dynamic == o.Dynamic &&
		slices.Equal(s.Addresses, o.Addresses)
}

// union has the terms of both, each once.
func union(terms, more []string) []string {
	for _, t := range more {
		if !slices.Contains(terms, t) {
			terms = append(slices.Clip(terms), t)
		}
	}
	return terms
}

// Weight returns the number of ranges of addresses that are written with the match itself.
func (m *Match) Weight() (n int) {
	for _, a := range [...]Address{m.From, m.To} {
		if a.In != nil && a.In.Name == "" {
			n += len(a.In.Addresses)
		}
	}
	return n
}

// MaxTerms is the number of terms that a statement of the language may have.
const MaxTerms = 32

// Terms is at least the number of terms that the match is written with.
func (m *Match) Terms() int {
	// one each for family and flags, two for from and to
	n := 6 + len(m.NotFlags) + len(m.Finds) + len(m.Services) + len(m.From.Not) + len(m.To.Not)
	for f := range numFields {
		n += Int(m.Fields[f] != nil)
	}
	return n
}

// MaxWritten bounds the ranges of addresses that all rules together have in lists of their own.
// Large sets have names and are written once; only where two of them meet in one rule does the rule
// get a list.
const MaxWritten = 1 << 20

// Settle draws the conclusions that one field allows about others, so that a match that no packet
// can have is known as one, and the same match looks the same.
func (m Match) Settle() Match {
	m.Flags, m.Never = m.settledFlags()
	if m.Flags != nil || len(m.NotFlags) > 0 {
		m = m.With(Proto, Just(6))
	}
	if len(m.Finds) > 0 {
		m = m.With(Proto, Just(17))
	}
	if m.Fields[FromPort] != nil || m.Fields[Port] != nil || m.FromDyn.ports() || m.ToDyn.ports() {
		m = m.With(Proto, WithPorts)
	}
	if m.FromDyn != nil || m.ToDyn != nil {
		m = m.With(Ether, BothIP)
	}
	if m.Fields[ICMP] != nil {
		m = m.With(Proto, Just(1)).With(Ether, Only4)
	}
	if m.Fields[ICMP6] != nil {
		m = m.With(Proto, Just(58)).With(Ether, Only6)
	}
	if m.Fields[Known] != nil {
		m = m.With(Proto, NoTracked)
	}
	if m.HasTransport() {
		m = m.With(Fragment, Between(Whole, First))
	}
	for _, f := range [...]Field{Proto, TTL, DSCP, Fragment, Strict, Loose, UID, GID} {
		if m.Fields[f] != nil {
			m = m.With(Ether, BothIP)
		}
	}
	if len(m.Services) > 0 {
		m = m.With(Ether, BothIP)
	}
	m = m.settleAddr(&m.From)
	return m.settleAddr(&m.To)
}

// HasTransport tells whether the match asks for a field of the transport header.
func (m *Match) HasTransport() bool {
	return m.Fields[FromPort] != nil || m.Fields[Port] != nil || m.Fields[ICMP] != nil ||
		m.Fields[ICMP6] != nil ||
		m.Flags != nil || len(m.NotFlags) > 0 || len(m.Finds) > 0 ||
		m.FromDyn.ports() || m.ToDyn.ports() ||
		m.Fields[Known] != nil
}

// ports tells whether only packets with ports can match.
func (s *DynamicSet) ports() bool { return s != nil && s.Services }

// Vague tells whether a policy has no words for which fragments are meant.
func (m *Match) Vague() bool {
	f := m.Fields[Fragment]
	return f != nil && !m.HasTransport() &&
		(slices.Equal(f, Just(Later)) || slices.Equal(f, Between(Whole, First)) ||
			slices.Equal(f, Just(First)))
}

func (m Match) settledFlags() (*Flags, bool) {
	if m.Flags == nil {
		return nil, m.Never
	}
	keep := m.NotFlags[:0:0]
	for _, n := range m.NotFlags {
		switch {
		case (m.Flags.Value^n.Value)&m.Flags.Mask&n.Mask != 0: // holds anyway
		case n.Mask&^m.Flags.Mask == 0: // cannot hold
			return m.Flags, true
		default:
			keep = append(keep, n)
		}
	}
	return m.Flags, m.Never
}

// settleAddr is Settle for one side; a points into m.
func (m Match) settleAddr(a *Address) Match {
	if a.In == nil && len(a.Not) == 0 {
		return m
	}
	m = m.With(Ether, BothIP)
	if a.In == nil || a.In.Dynamic {
		return m
	}
	four, six := a.In.Addresses.families()
	switch {
	case !four && !six:
		m.Never = true
	case !six:
		m = m.With(Ether, Only4)
	case !four:
		m = m.With(Ether, Only6)
	}
	for _, n := range a.Not {
		m.Never = m.Never || !n.Dynamic && a.In.Addresses.Within(n.Addresses)
	}
	return m
}

// Loopback holds the loopback addresses of IPv4 and IPv6, which no packet on a wire may have.
var Loopback = []AddressSpan{PrefixSpan(netip.MustParsePrefix("127.0.0.0/8")),
	PrefixSpan(netip.MustParsePrefix("::1/128"))}

// Self is the set of addresses that the kernel delivers to the machine itself.
var Self = &Set{Name: "self", Dynamic: true, Own: true}

// groups are destinations that are no machine's own: what is to all has a rule besides, where a
// rule asks for Self.
var groups = JoinAddrs([]AddressSpan{PrefixSpan(netip.MustParsePrefix("224.0.0.0/4")),
	PrefixSpan(netip.MustParsePrefix("ff00::/8")),
	PrefixSpan(netip.MustParsePrefix("255.255.255.255/32"))})

// OfGroups tells whether all addresses of a set are of groups, or the one to all.
func (s *Set) OfGroups() bool { return !s.Dynamic && s.Addresses.Within(groups) }

// ToGroup tells whether all packets of m are to groups or to all.
func (m *Match) ToGroup() bool {
	return m.To.In != nil && m.To.In.OfGroups()
}

// FlagsFSRA are the TCP flags that tell whether a segment begins a connection: FIN, SYN, RST, ACK.
const FlagsFSRA = 0x17

var (
	TcpOnly   = Match{}.With(Proto, Just(6))
	UdpOnly   = Match{}.With(Proto, Just(17))
	TcpSyn    = TcpOnly.WithFlags(Flags{FlagsFSRA, 0x02})
	NoTracked = Spans{{Lo: 1, Hi: 1}, {Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}, {Lo: 58, Hi: 58}}

	// Answers is UDP from the ports of services that a machine asks, to ports that ask.
	Answers = UdpOnly.With(FromPort, Spans{{Lo: 53, Hi: 53}, {Lo: 123, Hi: 123}}).
		With(Port, Between(1024, 65535))
	// Requests are the types that begin an exchange of ICMP, replies those that end one.
	Requests   = Types(8, 13, 15, 17)
	Replies    = Types(0, 14, 16, 18)
	IcmpErrors = Types(3, 11, 12)
)

// Types are types of ICMP with any code.
func Types(of ...uint64) (out Spans) {
	for _, t := range of {
		out = append(out, Span{Lo: t << 8, Hi: t<<8 | 0xff})
	}
	return JoinSpans(out)
}

// Part is one side of a match that is a short list of addresses, and the match without it.
func (m *Match) Part(from bool) (AddressSpans, Match) {
	rest := *m
	a := &rest.To
	if from {
		a = &rest.From
	}
	if a.In == nil || a.In.Name != "" || a.In.Dynamic || len(a.In.Addresses) > 64 {
		return nil, rest
	}
	in := a.In.Addresses
	a.In = nil
	return in, rest
}
