package importer

import (
	"slices"
	"strings"
)

// A policy that keeps no connections (--stateless) reads the state of a packet off its headers.
// What follows is the state that conntrack of the kernel may give to a packet
// (nf_conntrack_proto_tcp.c and its neighbours): a rule that passes is written for all packets that
// may have the state, and one that drops for those that cannot have another one.

// States as conntrack names them.
const (
	stNew         = "NEW"
	stEstablished = "ESTABLISHED"
	stRelated     = "RELATED"
	stInvalid     = "INVALID"
	stUntracked   = "UNTRACKED"
)

var knownStates = []string{stNew, stEstablished, stRelated, stInvalid, stUntracked}

// TCP flags of a segment that begins a connection: FIN, SYN, RST and ACK looked at.
const flagsFSRA = 0x17

var (
	tcpOnly   = match{}.with(fProto, just(6))
	udpOnly   = match{}.with(fProto, just(17))
	tcpSyn    = tcpOnly.withFlags(flagMatch{flagsFSRA, 0x02})
	noTracked = spans{{Lo: 1, Hi: 1}, {Lo: 6, Hi: 6}, {Lo: 17, Hi: 17}, {Lo: 58, Hi: 58}}

	// answers is UDP from the ports of services that a machine asks, to ports that ask.
	answers = udpOnly.with(fFromPort, spans{{Lo: 53, Hi: 53}, {Lo: 123, Hi: 123}}).
		with(fPort, between(1024, 65535))
	// requests are the types that begin an exchange of ICMP, replies those that end one.
	requests   = types(8, 13, 15, 17)
	replies    = types(0, 14, 16, 18)
	icmpErrors = types(3, 11, 12)
)

// types are types of ICMP with any code.
func types(of ...uint64) (out spans) {
	for _, t := range of {
		out = append(out, span{Lo: t << 8, Hi: t<<8 | 0xff})
	}
	return joinSpans(out)
}

// tcpGoesOn are the segments that a connection has behind its first, by valid combinations of
// flags.
func tcpGoesOn() []match {
	return []match{
		tcpOnly.withFlags(flagMatch{0x16, 0x10}),      // ACK, FIN with ACK
		tcpOnly.withFlags(flagMatch{flagsFSRA, 0x12}), // SYN with ACK
		tcpOnly.withFlags(flagMatch{0x07, 0x04}),      // RST
	}
}

// tcpNever are the combinations of flags that no segment of a connection has.
func tcpNever() []match {
	return []match{
		tcpOnly.withFlags(flagMatch{flagsFSRA, 0}), tcpOnly.withFlags(flagMatch{0x11, 0x01}),
		tcpOnly.withFlags(flagMatch{0x03, 0x03}), tcpOnly.withFlags(flagMatch{0x06, 0x06}),
		tcpOnly.withFlags(flagMatch{0x05, 0x05}),
	}
}

// mayHave are the packets that may have one of the states; all tells that these are all packets.
func mayHave(states []string) (out []match, all bool) {
	has := func(s string) bool { return slices.Contains(states, s) }
	if has(stNew) && has(stEstablished) {
		return nil, true
	}
	if has(stNew) {
		out = append(out, tcpSyn, udpOnly, match{}.with(fICMP, requests),
			match{}.with(fICMP6, types(128)), match{}.with(fProto, noTracked.not(255)))
	}
	if has(stEstablished) {
		out = append(out, tcpGoesOn()...)
		out = append(out, answers, match{}.with(fICMP, replies), match{}.with(fICMP6, types(129)))
	}
	if has(stRelated) {
		out = append(out, match{}.with(fICMP, icmpErrors), match{}.with(fICMP6, types(1, 2, 3, 4)))
	}
	if has(stInvalid) {
		out = append(out, tcpNever()...)
	}
	if has(stUntracked) { // neighbours and multicast listeners of IPv6 are never tracked
		out = append(out, match{}.with(fICMP6, types(130, 131, 132, 133, 134, 135, 136, 137, 143)))
	}
	return settled(out), false
}

// mustHave are the packets that have one of the states and cannot have another one.
func mustHave(states []string) (out []match) {
	has := func(s string) bool { return slices.Contains(states, s) }
	if has(stNew) {
		out = append(out, tcpSyn, udpOnly.with(fFromPort, answers.f[fFromPort].not(0xffff)),
			udpOnly.with(fPort, between(0, 1023)), match{}.with(fICMP, requests),
			match{}.with(fICMP6, types(128)), match{}.with(fProto, noTracked.not(255)))
	}
	if has(stInvalid) {
		out = append(out, tcpNever()...)
	}
	return settled(out)
}

// couldHave are the packets that conntrack may give one of the states, be it ever so seldom: those
// that a rule by state decides at most.
func couldHave(states []string) (out []match, all bool) {
	if slices.Contains(states, stEstablished) {
		return nil, true
	}
	out, all = mayHave(states)
	if slices.Contains(states, stInvalid) || slices.Contains(states, stNew) {
		out = append(out, tcpGoesOn()...) // of connections that are not known
		out = append(out, match{}.with(fICMP, requests.not(0xffff)),
			match{}.with(fICMP6, types(128).not(0xffff)),
			match{}.with(fProto, spans{{Lo: 33, Hi: 33}, {Lo: 132, Hi: 132}})) // DCCP, SCTP
	}
	return settled(out), all
}

func settled(in []match) (out []match) {
	for _, m := range in {
		out = append(out, m.settle())
	}
	return out
}

// negated are the states that are not among these.
func negated(states []string) (out []string) {
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
		"from " +
		"the ports 53 and 123 to 1024 and above, answers and errors of ICMP; whoever forges " +
		"these " +
		"passes, and answers over UDP from other ports do not"
	goesOnHint = "pass the answers of other services by rules of their own (udp from port 51820)"
	bothText   = "new and known connections together are taken for all packets"
	partText   = "of the packets in this state a policy knows those whose headers say so (a " +
		"SYN, a " +
		"request, flags that no connection has); the others go on to the rules behind it"
	neverText = "no header says that one of its packets is in the connection state"
	otherText = "has a state that headers do not tell"
)

// carryStates narrows the rule to packets whose headers fit its states: where it drops, to those
// that cannot be of another. It is called once the verb is known.
func (r *chainRule) carryStates(written *int, stateless bool) {
	states := r.states
	if states == nil || r.verb == doNothing {
		return
	}
	text := printable(strings.Join(states, ","), 60)
	for _, s := range states {
		if !slices.Contains(knownStates, s) {
			r.unknown = append(r.unknown, reason{"asks for the connection state " + text +
				": " + otherText, "write the addresses and ports as they arrive"})
			return
		}
	}
	known := r.alts
	restrict := func(alts []match, all bool) []match {
		if all {
			return known
		}
		out, err := narrow(known, alts, written)
		if err != nil {
			r.unknown = append(r.unknown, reason{err.Error(), "split the rule"})
			return known
		}
		return out
	}
	if r.stateLast && r.rate != nil {
		defer func() {
			if !slices.EqualFunc(known, r.alts, func(a, b match) bool { return a.equal(&b) }) {
				r.rate.standsEarly() // packets of other states use it up too
			}
		}()
	}
	if !stateless {
		r.carryKnown(restrict)
		return
	}
	if r.verb == doDrop {
		r.carryDropped(restrict)
		return
	}
	r.alts = restrict(mayHave(states))
	has := func(s string) bool { return slices.Contains(states, s) }
	switch {
	case r.verb.watches():
		r.remarks = append(r.remarks, r.remark(Changed, partText, ""))
	case r.verb != doAccept: // what it leads to may drop
		r.widen(partText, "", append(restrict(couldHave(states)), r.alts...))
	case has(stNew) && has(stEstablished):
		r.widen(bothText, "", r.alts)
	case has(stEstablished), has(stRelated):
		r.widen(goesOnText, goesOnHint, r.alts)
	case has(stNew) && onlyTCP(r.alts):
		r.remarks = append(r.remarks, r.remark(Changed, newText, ""))
	default:
		r.widen(newText, "", r.alts)
	}
}

// carryDropped is carryStates for a rule that drops.
func (r *chainRule) carryDropped(restrict func([]match, bool) []match) {
	if !slices.ContainsFunc(knownStates[:4],
		func(s string) bool { return !slices.Contains(r.states, s) }) {
		return // each packet has one of these
	}
	must, could := restrict(mustHave(r.states), false), restrict(couldHave(r.states))
	if len(must) == 0 {
		r.unknown = append(r.unknown, reason{neverText + " " +
			printable(strings.Join(r.states, ","), 60), ""})
		r.passes = could
		return
	}
	r.alts = must
	r.widen(partText, "", could)
}

func onlyTCP(alts []match) bool {
	return !slices.ContainsFunc(alts,
		func(m match) bool { return !slices.Equal(m.f[fProto], just(6)) })
}

// widen says that the policy may pass packets that the source drops: those of some matches.
func (r *chainRule) widen(text, instead string, passes []match) {
	m := r.remark(Changed, text, instead)
	m.Widens = true
	r.remarks = append(r.remarks, m)
	r.passes = append(slices.Clip(r.passes), passes...)
}
