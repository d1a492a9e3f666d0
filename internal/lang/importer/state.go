package importer

import (
	"slices"
	"strings"

	"levee/internal/lang/importer/match"
)

// A policy that keeps no connections (--stateless) reads the state of a packet off its headers.
// What follows is the state that conntrack of the kernel may give to a packet
// (nf_conntrack_proto_tcp.c and its neighbours): a rule that passes is written for all packets that
// may have the state, and one that drops for those that cannot have another one.

// States as conntrack names them.
const (
	StateNew         = "NEW"
	StateEstablished = "ESTABLISHED"
	StateRelated     = "RELATED"
	StateInvalid     = "INVALID"
	StateUntracked   = "UNTRACKED"
	stateSent        = "DNAT" // no state: nat has given the connection another destination
)

var knownStates = []string{StateNew, StateEstablished, StateRelated, StateInvalid, StateUntracked}

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

// mayHave returns the packets that may have one of the states; all tells that these are all
// packets.
func mayHave(states []string) (out []match.Match, all bool) {
	has := func(s string) bool { return slices.Contains(states, s) }
	if has(StateNew) && has(StateEstablished) {
		return nil, true
	}
	if has(StateNew) {
		out = append(out, match.TcpSyn, match.UdpOnly,
			match.Match{}.With(match.ICMP, match.Requests),
			match.Match{}.With(match.ICMP6, match.Types(128)),
			match.Match{}.With(match.Proto, match.NoTracked.Not(255)))
	}
	if has(StateEstablished) {
		out = append(out, tcpGoesOn()...)
		out = append(out, match.Answers, match.Match{}.With(match.ICMP, match.Replies),
			match.Match{}.With(match.ICMP6, match.Types(129)))
	}
	if has(StateRelated) {
		out = append(out, match.Match{}.With(match.ICMP, match.IcmpErrors),
			match.Match{}.With(match.ICMP6, match.Types(1, 2, 3, 4)))
	}
	if has(StateInvalid) {
		out = append(out, tcpNever()...)
	}
	if has(StateUntracked) { // neighbours and multicast listeners of IPv6 are never tracked
		out = append(out, match.Match{}.With(match.ICMP6,
			match.Types(130, 131, 132, 133, 134, 135, 136, 137, 143)))
	}
	return Settled(out), false
}

// mustHave returns the packets that have one of the states and cannot have another one.
func mustHave(states []string) (out []match.Match) {
	has := func(s string) bool { return slices.Contains(states, s) }
	if has(StateNew) {
		out = append(out, match.TcpSyn, match.UdpOnly.With(match.FromPort,
			match.Answers.Fields[match.FromPort].Not(0xffff)),
			match.UdpOnly.With(match.Port, match.Between(0, 1023)),
			match.Match{}.With(match.ICMP, match.Requests),
			match.Match{}.With(match.ICMP6, match.Types(128)),
			match.Match{}.With(match.Proto, match.NoTracked.Not(255)))
	}
	if has(StateInvalid) {
		out = append(out, tcpNever()...)
	}
	return Settled(out)
}

// couldHave returns the packets that conntrack may give one of the states, be it ever so seldom:
// those that a rule by state decides at most.
func couldHave(states []string) (out []match.Match, all bool) {
	if slices.Contains(states, StateEstablished) {
		return nil, true
	}
	out, all = mayHave(states)
	if slices.Contains(states, StateInvalid) || slices.Contains(states, StateNew) {
		out = append(out, tcpGoesOn()...) // of connections that are not known
		out = append(out, match.Match{}.With(match.ICMP, match.Requests.Not(0xffff)),
			match.Match{}.With(match.ICMP6, match.Types(128).Not(0xffff)),
			match.Match{}.With(match.Proto, match.Spans{{Lo: 33, Hi: 33},
				{Lo: 132, Hi: 132}})) // DCCP, SCTP
	}
	return Settled(out), all
}

// Settled settles each match.
func Settled(in []match.Match) (out []match.Match) {
	for _, m := range in {
		out = append(out, m.Settle())
	}
	return out
}

// Negated returns the states that are not among these.
func Negated(states []string) (out []string) {
	for _, s := range knownStates {
		if !slices.Contains(states, s) {
			out = append(out, s)
		}
	}
	return out
}

// What is said of states; once each kind.
const (
	newText = "a new connection is told by its headers: of TCP the SYN alone, of UDP and of " +
		"protocols without connections any packet"
	goesOnText = "packets of connections are told by their headers: TCP with ACK or RST, UDP " +
		"from the ports 53 and 123 to 1024 and above, answers and errors of ICMP; whoever forges " +
		"these passes, and answers over UDP from other ports do not"
	goesOnHint = "pass the answers of other services by rules of their own (udp from port 51820)"
	bothText   = "new and known connections together are taken for all packets"
	partText   = "of the packets in this state a policy knows those whose headers say so (a SYN, " +
		"a request, flags that no connection has); the others go on to the rules behind it"
	neverText = "no header says that one of its packets is in the connection state"
	otherText = "has a state that headers do not tell"
)

// carryStates narrows the rule to packets whose headers fit its states: where it drops, to those
// that cannot be of another. It is called once the verb is known.
func (r *ChainRule) carryStates(written *int, stateless bool) {
	states := r.States
	if states == nil || r.Verb == DoNothing {
		return
	}
	if slices.Contains(states, stateSent) {
		r.carrySent(written, stateless)
		return
	}
	text := Printable(strings.Join(states, ","), 60)
	for _, s := range states {
		if !slices.Contains(knownStates, s) {
			r.Unknown = append(r.Unknown, Reason{"asks for the connection state " + text +
				": " + otherText, "write the addresses and ports as they arrive"})
			return
		}
	}
	known := r.Alts
	restrict := func(alts []match.Match, all bool) []match.Match {
		if all {
			return known
		}
		out, err := Narrow(known, alts, written)
		if err != nil {
			r.Unknown = append(r.Unknown, Reason{err.Error(), "split the rule"})
			return known
		}
		return out
	}
	if r.StateLast && r.Rate != nil {
		defer func() {
			if !slices.EqualFunc(known, r.Alts,
				func(a, b match.Match) bool { return a.Equal(&b) }) {
				r.Rate.StandsEarly() // packets of other states use it up too
			}
		}()
	}
	if l := r.Rate; l != nil && !r.StateLast && len(l.Counts) > 0 {
		var err error
		alts, all := newStateSet(states).packets(r.Verb)
		if stateless {
			l.Counts = nil
		} else if !all {
			if l.Counts, err = Narrow(l.Counts, alts, written); err != nil {
				l.Counts = nil
			}
		}
	}
	if !stateless {
		r.carryKnown(restrict)
		return
	}
	if r.Verb == DoDrop {
		r.carryDropped(restrict)
		return
	}
	r.Alts = restrict(mayHave(states))
	has := func(s string) bool { return slices.Contains(states, s) }
	switch {
	case r.Verb.watches():
		r.Remarks = append(r.Remarks, r.Remark(Changed, partText, ""))
	case r.Verb != DoAccept: // what it leads to may drop
		r.Widen(partText, "", append(restrict(couldHave(states)), r.Alts...))
	case has(StateNew) && has(StateEstablished):
		r.Widen(bothText, "", r.Alts)
	case has(StateEstablished), has(StateRelated):
		r.Widen(goesOnText, goesOnHint, r.Alts)
	case has(StateNew) && onlyTCP(r.Alts):
		r.Remarks = append(r.Remarks, r.Remark(Changed, newText, ""))
	default:
		r.Widen(newText, "", r.Alts)
	}
}

// carrySent is carryStates for a rule that asks for what nat sends elsewhere, or for states.
func (r *ChainRule) carrySent(written *int, stateless bool) {
	other, err := Narrow(r.Alts, []match.Match{match.Match{}.With(match.Sent, match.Just(1))},
		written)
	if err != nil {
		r.Unknown = append(r.Unknown, Reason{err.Error(), "split the rule"})
		return
	}
	r.States = slices.DeleteFunc(slices.Clone(r.States),
		func(s string) bool { return s == stateSent })
	if len(r.States) == 0 {
		r.Alts = nil
	} else {
		r.carryStates(written, stateless)
	}
	r.Alts = append(r.Alts, other...)
	r.Remarks = append(r.Remarks, r.Remark(Noticed, SentText, ""))
}

// SentText is about a rule for what nat sends elsewhere.
const SentText = "what nat has sent to another port or address of this machine is judged in " +
	"front, as it arrives; the input needs the chains of nat for that"

// carryDropped is carryStates for a rule that drops.
func (r *ChainRule) carryDropped(restrict func([]match.Match, bool) []match.Match) {
	if !slices.ContainsFunc(knownStates[:4],
		func(s string) bool { return !slices.Contains(r.States, s) }) {
		return // each packet has one of these
	}
	must, could := restrict(mustHave(r.States), false), restrict(couldHave(r.States))
	if len(must) == 0 {
		r.Unknown = append(r.Unknown, Reason{neverText + " " +
			Printable(strings.Join(r.States, ","), 60), ""})
		r.about = could
		return
	}
	r.Alts = must
	r.Widen(partText, "", could)
}

func onlyTCP(alts []match.Match) bool {
	return !slices.ContainsFunc(alts,
		func(m match.Match) bool { return !slices.Equal(m.Fields[match.Proto], match.Just(6)) })
}

// Widen says that the policy may pass packets that the source drops: those of some matches.
func (r *ChainRule) Widen(text, instead string, passes []match.Match) {
	m := r.Remark(Changed, text, instead)
	m.Widens = true
	r.Remarks = append(r.Remarks, m)
	r.passes = append(slices.Clip(r.passes), passes...)
}
