// Package state has the packets that connection states of the kernel stand for, in two readings:
// off headers alone, and by connections that a policy keeps.
package state

import (
	"slices"

	"levee/internal/lang/importer/match"
)

// A policy that keeps no connections (--stateless) reads the state of a packet off its headers.
// What follows is the state that conntrack of the kernel may give to a packet
// (nf_conntrack_proto_tcp.c and its neighbours): a rule that passes is written for all packets that
// may have the state, and one that drops for those that cannot have another one.

// States as conntrack names them.
const (
	New         = "NEW"
	Established = "ESTABLISHED"
	Related     = "RELATED"
	Invalid     = "INVALID"
	Untracked   = "UNTRACKED"
	Sent        = "DNAT" // no state: nat has given the connection another destination
)

// All are the states that a packet may have.
var All = []string{New, Established, Related, Invalid, Untracked}

// tcpGoesOn returns the segments that a connection has behind its first, by valid combinations of
// flags.
func tcpGoesOn() []match.Match {
	return []match.Match{
		match.TcpOnly.WithFlags(match.Flags{Mask: 0x16, Value: 0x10}),
		// ACK, FIN with ACK
		match.TcpOnly.WithFlags(match.Flags{Mask: match.FlagsFSRA, Value: 0x12}), // SYN with ACK
		match.TcpOnly.WithFlags(match.Flags{Mask: 0x07, Value: 0x04}),            // RST
	}
}

// tcpNever returns the combinations of flags that no segment of a connection has.
func tcpNever() []match.Match {
	return []match.Match{
		match.TcpOnly.WithFlags(match.Flags{Mask: match.FlagsFSRA, Value: 0}),
		match.TcpOnly.WithFlags(match.Flags{Mask: 0x11, Value: 0x01}),
		match.TcpOnly.WithFlags(match.Flags{Mask: 0x03, Value: 0x03}),
		match.TcpOnly.WithFlags(match.Flags{Mask: 0x06, Value: 0x06}),
		match.TcpOnly.WithFlags(match.Flags{Mask: 0x05, Value: 0x05}),
	}
}

// MayHave returns the packets that may have one of the states; all tells that these are all
// packets.
func MayHave(states []string) (out []match.Match, all bool) {
	has := func(s string) bool { return slices.Contains(states, s) }
	if has(New) && has(Established) {
		return nil, true
	}
	if has(New) {
		out = append(out, match.TcpSyn, match.UdpOnly,
			match.Match{}.With(match.ICMP, match.Requests),
			match.Match{}.With(match.ICMP6, match.Types(128)),
			match.Match{}.With(match.Proto, match.NoTracked.Not(255)))
	}
	if has(Established) {
		out = append(out, tcpGoesOn()...)
		out = append(out, match.Answers, match.Match{}.With(match.ICMP, match.Replies),
			match.Match{}.With(match.ICMP6, match.Types(129)))
	}
	if has(Related) {
		out = append(out, match.Match{}.With(match.ICMP, match.IcmpErrors),
			match.Match{}.With(match.ICMP6, match.Types(1, 2, 3, 4)))
	}
	if has(Invalid) {
		out = append(out, tcpNever()...)
	}
	if has(Untracked) {
		out = append(out, match.Match{}.With(match.ICMP6, untracked))
	}
	return match.Settled(out), false
}

// MustHave returns the packets that have one of the states and cannot have another one.
func MustHave(states []string) (out []match.Match) {
	has := func(s string) bool { return slices.Contains(states, s) }
	if has(New) {
		out = append(out, match.TcpSyn, match.UdpOnly.With(match.FromPort,
			match.Answers.Fields[match.FromPort].Not(0xffff)),
			match.UdpOnly.With(match.Port, match.Between(0, 1023)),
			match.Match{}.With(match.ICMP, match.Requests),
			match.Match{}.With(match.ICMP6, match.Types(128)),
			match.Match{}.With(match.Proto, match.NoTracked.Not(255)))
	}
	if has(Invalid) {
		out = append(out, tcpNever()...)
	}
	return match.Settled(out)
}

// CouldHave returns the packets that conntrack may give one of the states, be it ever so seldom:
// those that a rule by state decides at most.
func CouldHave(states []string) (out []match.Match, all bool) {
	if slices.Contains(states, Established) {
		return nil, true
	}
	out, all = MayHave(states)
	if slices.Contains(states, Invalid) || slices.Contains(states, New) {
		out = append(out, tcpGoesOn()...) // of connections that are not known
		out = append(out, match.Match{}.With(match.ICMP, match.Requests.Not(0xffff)),
			match.Match{}.With(match.ICMP6, match.Types(128).Not(0xffff)),
			match.Match{}.With(match.Proto, SCTPAndDCCP))
	}
	return match.Settled(out), all
}

// Negated returns the states that are not among these.
func Negated(states []string) (out []string) {
	for _, s := range All {
		if !slices.Contains(states, s) {
			out = append(out, s)
		}
	}
	return out
}
