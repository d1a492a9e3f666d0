package state

import (
	"slices"

	"levee/internal/lang/importer/match"
)

// This file has the states as a policy says them that keeps connections: what conntrack does with a
// packet by default (nf_conntrack_proto_tcp.c and its neighbours, with nf_conntrack_tcp_loose). The
// states are a partition of all packets, so that a rule about any of them is about these packets
// and no others. Where levee does not see what conntrack sees, a rule that passes is for fewer
// packets, never for more.

var (
	// Known are the packets of connections that are known.
	Known   = match.Match{}.With(match.Known, match.Just(1)).Settle()
	unknown = match.Match{}.With(match.Known, match.Just(0)).Settle()
	// TCPBare matches the segments by which conntrack picks a connection up in its midst.
	TCPBare = match.TcpOnly.WithFlags(match.Flags{Mask: match.FlagsFSRA, Value: 0x10})
	// untracked are neighbours and multicast listeners of IPv6, which are never tracked.
	untracked = match.Types(130, 131, 132, 133, 134, 135, 136, 137, 143)
	errors6   = match.Types(1, 3, 4)
	// Requests6 are the messages of ICMPv6 that begin a connection.
	Requests6 = match.Types(128, 139)
	// SCTPAndDCCP are the protocols of which conntrack knows some packets as INVALID.
	SCTPAndDCCP = match.Spans{{Lo: 33, Hi: 33}, {Lo: 132, Hi: 132}}
)

// tcpStrays returns the segments by which conntrack begins no connection, where they belong to
// none.
func tcpStrays() match.Match {
	return match.TcpOnly.WithoutFlags(match.Flags{Mask: match.FlagsFSRA, Value: 0x02}).
		WithoutFlags(match.Flags{Mask: match.FlagsFSRA, Value: 0x10}).With(match.Known,
		match.Just(0))
}

// Set are states that a rule asks for.
type Set struct{ Is, Related, Fresh, Invalid, Untracked bool }

// Of returns the set of some states.
func Of(states []string) Set {
	has := func(s string) bool { return slices.Contains(states, s) }
	return Set{has(Established), has(Related), has(New), has(Invalid), has(Untracked)}
}

// Packets returns the packets that have one of the states; all tells that these are all packets.
// With bare, segments that conntrack picks up in the midst of a connection are of new ones, too.
func (s Set) Packets(bare bool) (out []match.Match, all bool) {
	if s.Is && s.Related && s.Fresh && s.Invalid {
		if s.Untracked {
			return nil, true
		}
		others := match.Match{}.With(match.Proto, match.Just(58).Not(255))
		return match.Settled([]match.Match{match.Match{}.With(match.Ether, match.Only4),
			others.With(match.Ether, match.Only6), match.Match{}.With(match.ICMP6,
				untracked.Not(match.Top[match.ICMP6]))}), false
	}
	if s.Is && s.Related { // before all others: it is one rule
		out = append(out, Known)
	}
	if s.Fresh && s.Invalid && s.Untracked && !s.Is && !s.Related {
		return match.Settled(append(out, unknown, match.Match{}.With(match.Proto,
			match.NoTracked.Not(255)))), false
	}
	out = append(out, s.tcp(bare)...)
	out = append(out, kind(match.UdpOnly, s.Is, s.Fresh, s.Is && s.Related)...)
	icmp := func(f match.Field, asks, errs, big, others match.Spans) {
		of := func(t match.Spans) match.Match { return match.Match{}.With(f, t) }
		if s.Fresh {
			out = append(out, of(asks))
		}
		if s.Is || !s.Invalid { // see TooBig
			errs = match.JoinSpans(slices.Concat(errs, big))
		}
		rest := match.JoinSpans(slices.Concat(asks, errs, big, others)).Not(match.Top[f])
		if s.Is == s.Related {
			rest, errs = match.JoinSpans(slices.Concat(rest, errs)), nil
		}
		if errs != nil {
			out = append(out, kind(of(errs), s.Related, s.Invalid, false)...)
		}
		out = append(out, kind(of(rest), s.Is, s.Invalid, s.Is && s.Related)...)
	}
	icmp(match.ICMP, match.Requests, match.IcmpErrors.And(TooBig.Not(match.Top[match.ICMP])),
		TooBig, nil)
	icmp(match.ICMP6, Requests6, errors6, TooBig6, untracked)
	if s.Untracked {
		out = append(out, match.Match{}.With(match.ICMP6, untracked))
	}
	if s.Fresh { // no connections of these are known
		out = append(out, match.Match{}.With(match.Proto, match.NoTracked.Not(255)))
	}
	return match.Settled(out), false
}

// TooBig are the messages of ICMP that path-MTU discovery lives by. They are essential: where they
// belong to a connection that levee does not know, such as a tunnel's, no rule drops them for it.
var TooBig, TooBig6 = match.Spans{{Lo: 3<<8 | 4, Hi: 3<<8 | 4}}, match.Types(2)

// kind returns the packets of m that are known, that are not, or all; had tells that the known ones
// are there already.
func kind(m match.Match, is, not, had bool) []match.Match {
	switch {
	case is && not:
		return []match.Match{m}
	case is && !had:
		return []match.Match{m.With(match.Known, match.Just(1))}
	case not:
		return []match.Match{m.With(match.Known, match.Just(0))}
	}
	return nil
}

func (s Set) tcp(bare bool) (out []match.Match) {
	if s.Is && !s.Related {
		out = append(out, match.TcpOnly.With(match.Known, match.Just(1)))
	}
	switch {
	case s.Fresh && s.Invalid:
		out = append(out, match.TcpOnly.With(match.Known, match.Just(0)))
	case s.Fresh:
		out = append(out, match.TcpSyn)
		if bare {
			out = append(out, TCPBare.With(match.Known, match.Just(0)))
		}
	case s.Invalid:
		out = append(out, tcpStrays())
	}
	return out
}

// Others tells whether a match is about protocols whose connections levee does not know.
func Others(m match.Match) bool {
	return m.Fields[match.Proto] == nil || !m.Fields[match.Proto].Within(match.NoTracked)
}
