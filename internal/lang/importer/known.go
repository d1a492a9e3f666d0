package importer

import "slices"

// This file has the states of conntrack as a policy says them that keeps connections: what follows
// is what conntrack does with a packet by default (nf_conntrack_proto_tcp.c and its neighbours,
// with nf_conntrack_tcp_loose). The states are a partition of all packets, so that a rule about any
// of them is about these packets and no others. Where levee does not see what conntrack sees, a
// rule that passes is for fewer packets, never for more.

var (
	known   = match{}.with(fKnown, just(1)).settle()
	unknown = match{}.with(fKnown, just(0)).settle()
	// tcpBare is what conntrack picks a connection up by, in the middle of it.
	tcpBare = tcpOnly.withFlags(flagMatch{flagsFSRA, 0x10})
	// untracked are neighbours and multicast listeners of IPv6.
	untracked = types(130, 131, 132, 133, 134, 135, 136, 137, 143)
	errors6   = types(1, 3, 4)
	requests6 = types(128, 139)
	// of DCCP and SCTP conntrack knows some packets as INVALID
	sctpDCCP = spans{{Lo: 33, Hi: 33}, {Lo: 132, Hi: 132}}
)

// tcpStrays are the segments by which conntrack begins no connection, where they belong to none.
func tcpStrays() match {
	return tcpOnly.withoutFlags(flagMatch{flagsFSRA, 0x02}).
		withoutFlags(flagMatch{flagsFSRA, 0x10}).with(fKnown, just(0))
}

// stateSet are states that a rule asks for.
type stateSet struct{ is, related, fresh, invalid, untracked bool }

func newStateSet(states []string) stateSet {
	has := func(s string) bool { return slices.Contains(states, s) }
	return stateSet{has(stEstablished), has(stRelated), has(stNew), has(stInvalid),
		has(stUntracked)}
}

// packets are the packets that have one of the states; all tells that these are all packets. Those
// that pass are of new connections of TCP by the SYN alone: older ones are known otherwise.
func (s stateSet) packets(v verb) (out []match, all bool) {
	if s.is && s.related && s.fresh && s.invalid {
		return nil, true
	}
	if s.is && s.related { // before all others: it is one rule
		out = append(out, known)
	}
	if s.fresh && s.invalid && s.untracked && !s.is && !s.related {
		return settled(append(out, unknown, match{}.with(fProto, noTracked.not(255)))), false
	}
	out = append(out, s.tcp(v)...)
	out = append(out, kind(udpOnly, s.is, s.fresh, s.is && s.related)...)
	icmp := func(f numField, asks, errs, big, others spans) {
		of := func(t spans) match { return match{}.with(f, t) }
		if s.fresh {
			out = append(out, of(asks))
		}
		if s.is || !s.invalid { // see tooBig
			errs = joinSpans(slices.Concat(errs, big))
		}
		rest := joinSpans(slices.Concat(asks, errs, big, others)).not(fieldTop[f])
		if s.is == s.related {
			rest, errs = joinSpans(slices.Concat(rest, errs)), nil
		}
		if errs != nil {
			out = append(out, kind(of(errs), s.related, s.invalid, false)...)
		}
		out = append(out, kind(of(rest), s.is, s.invalid, s.is && s.related)...)
	}
	icmp(fICMP, requests, icmpErrors.and(tooBig.not(fieldTop[fICMP])), tooBig, nil)
	icmp(fICMP6, requests6, errors6, tooBig6, untracked)
	if s.untracked {
		out = append(out, match{}.with(fICMP6, untracked))
	}
	if s.fresh { // no connections of these are known
		out = append(out, match{}.with(fProto, noTracked.not(255)))
	}
	return settled(out), false
}

// tooBig are the messages of ICMP that path-MTU discovery lives by. They are essential: where they
// belong to a connection that levee does not know, such as a tunnel's, no rule drops them for it.
var tooBig, tooBig6 = spans{{Lo: 3<<8 | 4, Hi: 3<<8 | 4}}, types(2)

// kind are the packets of m that are known, that are not, or all; had tells that the known ones are
// there already.
func kind(m match, is, not, had bool) []match {
	switch {
	case is && not:
		return []match{m}
	case is && !had:
		return []match{m.with(fKnown, just(1))}
	case not:
		return []match{m.with(fKnown, just(0))}
	}
	return nil
}

func (s stateSet) tcp(v verb) (out []match) {
	if s.is && !s.related {
		out = append(out, tcpOnly.with(fKnown, just(1)))
	}
	switch {
	case s.fresh && s.invalid:
		out = append(out, tcpOnly.with(fKnown, just(0)))
	case s.fresh:
		out = append(out, tcpSyn)
		if v != doAccept && !v.watches() {
			out = append(out, tcpBare.with(fKnown, just(0)))
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
	keptText = "of protocols other than TCP, UDP and ICMP no connections are known: their " +
		"answers, as of GRE, ESP and SCTP, need rules of their own"
)

// carryKnown is carryStates for a policy that keeps connections.
func (r *chainRule) carryKnown(restrict func([]match, bool) []match) {
	s := newStateSet(r.states)
	asked := r.alts
	r.alts = restrict(s.packets(r.verb))
	if s.fresh && r.limit == above {
		r.opens = restrict(s.packets(doAccept))
	}
	if s.invalid && !s.fresh && r.verb == doDrop {
		r.remarks = append(r.remarks, r.remark(Changed, invalidText, ""))
		r.passes = restrict(settled([]match{match{}.with(fICMP, tooBig),
			match{}.with(fICMP6, tooBig6), match{}.with(fProto, sctpDCCP)}), false)
	}
	switch {
	case s.is == s.fresh || !slices.ContainsFunc(asked, others):
	case s.fresh:
		r.remarks = append(r.remarks, r.remark(Changed, newProtoText, ""))
	default:
		r.remarks = append(r.remarks, r.remark(Changed, keptText, ""))
	}
}

// others tells whether a match is about protocols whose connections levee does not know.
func others(m match) bool {
	return m.f[fProto] == nil || !m.f[fProto].within(noTracked)
}
