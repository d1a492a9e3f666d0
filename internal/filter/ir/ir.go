// Package ir holds a policy as the compiler sees it: for each class of packets the list of rules
// that can still match, every term reduced to what has to be asked of a packet of that class.
//
// In goes a policy.Policy, out comes a Program that package codegen turns into instructions. The
// passes only remove work: a Program gives every packet the decision that the policy's rules give
// it one by one. Nothing here knows of kernels or instructions.
package ir

import (
	"net/netip"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// Family of a class.
type Family uint8

const (
	NonIP Family = iota
	IPv4
	IPv6
)

// Transport is the transport protocol of a class; Other has no fields beyond its number. The values
// are those of enum transport in bpf/parse.h.
type Transport uint8

const (
	Other Transport = iota
	TCP
	UDP
	UDPLite
	SCTP
	DCCP
	ICMP // ICMP in IPv4, ICMPv6 in IPv6
	NumTransports
)

// NumClasses is the number of values of Class.Index.
const NumClasses = 1 + 2*int(NumTransports)*2

// Class is a kind of packet: which fields are present is the same for all packets of a class (but
// for VLAN tags), so that presence costs nothing per packet.
type Class struct {
	Family    Family
	Transport Transport
	Fragment  bool // first or later; a later one is always Other
}

// Index numbers the classes as CLASS in bpf/parse.h does.
func (c Class) Index() int {
	if c.Family == NonIP {
		return 0
	}
	i := (int(c.Family-IPv4)*int(NumTransports) + int(c.Transport)) * 2
	if c.Fragment {
		i++
	}
	return 1 + i
}

func (c Class) String() string {
	if c.Family == NonIP {
		return "not IP"
	}
	s := [...]string{"other protocols", "TCP", "UDP", "UDP-Lite", "SCTP", "DCCP",
		"ICMP"}[c.Transport]
	if c.Fragment {
		s += " fragments"
	}
	return [...]string{IPv4: "IPv4", IPv6: "IPv6"}[c.Family] + ", " + s
}

// Classes lists all classes, by index.
func Classes() []Class {
	cs := []Class{{}}
	for _, f := range []Family{IPv4, IPv6} {
		for t := range NumTransports {
			cs = append(cs, Class{f, t, false}, Class{f, t, true})
		}
	}
	return cs
}

// ClassOf returns the class of a well-formed packet.
func ClassOf(p *packet.Packet) Class {
	c := Class{Fragment: p.Fragment}
	switch p.Family {
	case packet.IPv4:
		c.Family = IPv4
	case packet.IPv6:
		c.Family = IPv6
	default:
		return Class{}
	}
	switch p.Transport {
	case packet.TCPTransport:
		c.Transport = TCP
	case packet.ICMPTransport, packet.ICMP6Transport:
		c.Transport = ICMP
	case packet.PortTransport:
		c.Transport = map[uint8]Transport{packet.ProtoUDP: UDP, packet.ProtoUDPLite: UDPLite,
			packet.ProtoSCTP: SCTP, packet.ProtoDCCP: DCCP}[p.Proto]
	}
	return c
}

// Bits of an address of the class's family.
func (c Class) Bits() int {
	if c.Family == IPv4 {
		return 32
	}
	return 128
}

// Rule is a rule within one class. All of its conditions have to hold. The last rule of a class has
// no conditions.
type Rule struct {
	Slot   int         // index into policy.Slots
	Action *Action     // rules that do the same may share it
	Asks   QuestionsID // of Conds, 0 of none
	Conds  []Cond
}

// Same reports whether two rules of classes of one family are one rule that asks the same in both,
// and may be one in the program.
func (r *Rule) Same(s *Rule) bool {
	return r.Slot == s.Slot && r.Asks == s.Asks && r.Action.May(action.MayShare)
}

// QuestionsID is the number of a list of conditions. Rules of a program with the same number ask
// the same questions in the same order.
type QuestionsID uint32

// ListID is the number of a list of prefixes or pairs. Lists of a program with the same number are
// the same; a list that stands in the policy twice has two numbers.
type ListID uint32

// Cond is one question. Numeric fields carry the ranges that hold, within the field's domain (a
// negation has become the complement); address fields carry the prefixes of the class's family,
// endpoint fields what is left of them there.
type Cond struct {
	Field field.Field
	Not   bool // addresses, dynamic sets and flags
	// endpoints, and services of a dynamic set: SrcPort, DstPort or Proto, whose ranges Pairs have
	Number field.Field
	// of these where Set is dynamic: the protocol of the class, unless Number is Proto
	Proto    uint8
	Mask     uint8            // TCPFlags
	Value    uint8            // TCPFlags
	Set      *policy.Set      // a named set of addresses or endpoints, static or dynamic, or nil
	Ranges   []field.Range    // numeric fields
	Prefixes []netip.Prefix   // addresses, unless Set is dynamic
	Pairs    []Pair           // endpoints, unless Set is dynamic
	Bytes    *policy.Bytes    // Payload
	Pattern  *policy.Pattern  // Contents, Stream
	Unknown  bool             // Stream: an unknown stream matches, too
	Inner    *policy.Inner    // Inner
	Names    *policy.NameList // DNSName
	List     ListID           // of Prefixes or Pairs, 0 without these
}

// Dynamic reports whether the elements are only known at run time.
func (c *Cond) Dynamic() bool { return c.Set != nil && c.Set.Kind == policy.Dynamic }

// Program is the policy by class.
type Program struct {
	Policy    *policy.Policy
	Lists     [NumClasses][]Rule // by Class.Index; each ends with a rule without conditions
	Malformed []Rule             // `malformed` rules, no conditions; up to the first that decides
	Inners    []InnerList        // what is asked of packets within tunnels, in order of class
	Findings  []Finding          // what `levee check` warns of, on both sides
	Out       *Program           // of what leaves; nil where the policy says nothing of that
}

// InnerList holds the questions of matches on packets within tunnels, for some classes of one
// family. The slot of a rule is the number of the match; rules do nothing.
type InnerList struct {
	Classes []Class
	Rules   []Rule
}

// Finding is something that `levee check` warns of.
type Finding struct {
	Pos     policy.Pos
	Message string
	Hint    string
}
