package importer

import (
	"slices"

	"levee/internal/lang/importer/match"
)

// This file has the states of conntrack as a policy says them that keeps connections: what follows
// is what conntrack does with a packet by default (nf_conntrack_proto_tcp.c and its neighbours,
// with nf_conntrack_tcp_loose). The states are a partition of all packets, so that a rule about any
// of them is about these packets and no others. Where levee does not see what conntrack sees, a
// rule that passes is for fewer packets, never for more.

var (
	known   = match.Match{}.With(match.Known, match.Just(1)).Settle()
	unknown = match.Match{}.With(match.Known, match.Just(0)).Settle()
	// tcpBare matches the segments by which conntrack picks a connection up in its midst.
	tcpBare = match.TcpOnly.WithFlags(match.Flags{Mask: match.FlagsFSRA, Value: 0x10})
	// untracked are neighbours and multicast listeners of IPv6.
	untracked = match.Types(130, 131, 132, 133, 134, 135, 136, 137, 143)
	errors6   = match.Types(1, 3, 4)
	Requests6 = match.Types(128, 139)
	// of DCCP and SCTP conntrack knows some packets as INVALID
	sctpDCCP = match.Spans{{Lo: 33, Hi: 33}, {Lo: 132, Hi: 132}}
)

// tcpStrays returns the segments by which conntrack begins no connection, where they belong to
// none.
func tcpStrays() match.Match {
	return match.TcpOnly.WithoutFlags(match.Flags{Mask: match.FlagsFSRA, Value: 0x02}).
		WithoutFlags(match.Flags{Mask: match.FlagsFSRA, Value: 0x10}).With(match.Known,
		match.Just(0))
}

// stateSet are states that a rule asks for.
type stateSet struct{ is, related, fresh, invalid, untracked bool }

func newStateSet(states []string) stateSet {
	has := func(s string) bool { return slices.Contains(states, s) }
	return stateSet{has(StateEstablished), has(StateRelated), has(StateNew), has(StateInvalid),
		has(StateUntracked)}
}

// packets returns the packets that have one of the states; all tells that these are all packets.
// Those that pass are of new connections of TCP by the SYN alone: older ones are known otherwise.
func (s stateSet) packets(v Verb) (out []match.Match, all bool) {
	if s.is && s.related && s.fresh && s.invalid {
		if s.untracked {
			return nil, true
		}
		others := match.Match{}.With(match.Proto, match.Just(58).Not(255))
		return Settled([]match.Match{match.Match{}.With(match.Ether, match.Only4),
			others.With(match.Ether, match.Only6), match.Match{}.With(match.ICMP6,
				untracked.Not(match.Top[match.ICMP6]))}), false
	}
	if s.is && s.related { // before all others: it is one rule
		out = append(out, known)
	}
	if s.fresh && s.invalid && s.untracked && !s.is && !s.related {
		return Settled(append(out, unknown, match.Match{}.With(match.Proto,
			match.NoTracked.Not(255)))), false
	}
	out = append(out, s.tcp(v)...)
	out = append(out, kind(match.UdpOnly, s.is, s.fresh, s.is && s.related)...)
	icmp := func(f match.Field, asks, errs, big, others match.Spans) {
		of := func(t match.Spans) match.Match { return match.Match{}.With(f, t) }
		if s.fresh {
			out = append(out, of(asks))
		}
		if s.is || !s.invalid { // see tooBig
			errs = match.JoinSpans(slices.Concat(errs, big))
		}
		rest := match.JoinSpans(slices.Concat(asks, errs, big, others)).Not(match.Top[f])
		if s.is == s.related {
			rest, errs = match.JoinSpans(slices.Concat(rest, errs)), nil
		}
		if errs != nil {
			out = append(out, kind(of(errs), s.related, s.invalid, false)...)
		}
		out = append(out, kind(of(rest), s.is, s.invalid, s.is && s.related)...)
	}
	icmp(match.ICMP, match.Requests, match.IcmpErrors.And(tooBig.Not(match.Top[match.ICMP])),
		tooBig, nil)
	icmp(match.ICMP6, Requests6, errors6, tooBig6, untracked)
	if s.untracked {
		out = append(out, match.Match{}.With(match.ICMP6, untracked))
	}
	if s.fresh { // no connections of these are known
		out = append(out, match.Match{}.With(match.Proto, match.NoTracked.Not(255)))
	}
	return Settled(out), false
}

// tooBig are the messages of ICMP that path-MTU discovery lives by. They are essential: where they
// belong to a connection that levee does not know, such as a tunnel's, no rule drops them for it.
var tooBig, tooBig6 = match.Spans{{Lo: 3<<8 | 4, Hi: 3<<8 | 4}}, match.Types(2)

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

func (s stateSet) tcp(v Verb) (out []match.Match) {
	if s.is && !s.related {
		out = append(out, match.TcpOnly.With(match.Known, match.Just(1)))
	}
	switch {
	case s.fresh && s.invalid:
		out = append(out, match.TcpOnly.With(match.Known, match.Just(0)))
	case s.fresh:
		out = append(out, match.TcpSyn)
		if v != DoAccept && !v.watches() {
			out = append(out, tcpBare.With(match.Known, match.Just(0)))
		}
	case s.invalid:
		out = append(out, tcpStrays())
	}
	return out
}

const (
	invalidText = "`established` does not look at checksums, windows and odd flags: what is " +
		"INVALID for these alone goes on, and the kernel's TCP drops it; so do path-MTU " +
		"messages, SCTP and DCCP"
	newProtoText = "of protocols other than TCP, UDP and ICMP no connections are known: all " +
		"their packets are new"
	strayText = "what of SCTP and DCCP begins no connection, and belongs to none, is INVALID, " +
		"and passes here: the kernel drops it"
	keptText = "of protocols other than TCP, UDP and ICMP no connections are known: their " +
		"answers, as of GRE, ESP and SCTP, need rules of their own"
)

// carryKnown is carryStates for a policy that keeps connections.
func (r *ChainRule) carryKnown(restrict func([]match.Match, bool) []match.Match) {
	s := newStateSet(r.States)
	asked := r.Alts
	r.Alts = restrict(s.packets(r.Verb))
	if s.fresh && r.Limit == Above {
		r.opens = restrict(s.packets(DoAccept))
	}
	leads := (r.Verb == DoJump || r.Verb == DoGoto) && drops(r.Target, map[*Chain]bool{})
	if s.invalid && !s.fresh && (r.Verb == DoDrop || leads) {
		r.Remarks = append(r.Remarks, r.Remark(Changed, invalidText, ""))
		r.passes = restrict(Settled([]match.Match{match.Match{}.With(match.ICMP, tooBig),
			match.Match{}.With(match.ICMP6, tooBig6), match.Match{}.With(match.Proto, sctpDCCP)}),
			false)
	}
	strays := s.fresh && !s.invalid && r.Verb != DoDrop
	if strays {
		r.passes = append(r.passes, restrict(Settled([]match.Match{match.Match{}.With(match.Proto,
			sctpDCCP)}), false)...)
	}
	switch {
	case !slices.ContainsFunc(asked, others):
	case s.is && strays:
		r.Remarks = append(r.Remarks, r.Remark(Changed, strayText, ""))
	case s.is == s.fresh:
	case s.fresh:
		r.Remarks = append(r.Remarks, r.Remark(Changed, newProtoText, ""))
	default:
		r.Remarks = append(r.Remarks, r.Remark(Changed, keptText, ""))
	}
}

// others tells whether a match is about protocols whose connections levee does not know.
func others(m match.Match) bool {
	return m.Fields[match.Proto] == nil || !m.Fields[match.Proto].Within(match.NoTracked)
}
