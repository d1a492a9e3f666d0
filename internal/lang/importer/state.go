package importer

import (
	"slices"
	"strings"

	"levee/internal/lang/importer/match"
	"levee/internal/lang/importer/state"
)

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
	if slices.Contains(states, state.Sent) {
		r.carrySent(written, stateless)
		return
	}
	text := Printable(strings.Join(states, ","), 60)
	for _, s := range states {
		if !slices.Contains(state.All, s) {
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
		alts, all := state.Of(states).Packets(r.Verb.takesBare())
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
	r.Alts = restrict(state.MayHave(states))
	has := func(s string) bool { return slices.Contains(states, s) }
	switch {
	case r.Verb.watches():
		r.Remarks = append(r.Remarks, r.Remark(Changed, partText, ""))
	case r.Verb != DoAccept: // what it leads to may drop
		r.Widen(partText, "", append(restrict(state.CouldHave(states)), r.Alts...))
	case has(state.New) && has(state.Established):
		r.Widen(bothText, "", r.Alts)
	case has(state.Established), has(state.Related):
		r.Widen(goesOnText, goesOnHint, r.Alts)
	case has(state.New) && onlyTCP(r.Alts):
		r.Remarks = append(r.Remarks, r.Remark(Changed, newText, ""))
	default:
		r.Widen(newText, "", r.Alts)
	}
}

// carrySent is carryStates for a rule that asks for states, or for what nat sends elsewhere.
func (r *ChainRule) carrySent(written *int, stateless bool) {
	other, err := Narrow(r.Alts, []match.Match{match.Match{}.With(match.Sent, match.Just(1))},
		written)
	if err != nil {
		r.Unknown = append(r.Unknown, Reason{err.Error(), "split the rule"})
		return
	}
	r.States = slices.DeleteFunc(slices.Clone(r.States),
		func(s string) bool { return s == state.Sent })
	r.carryStates(written, stateless)
	r.Alts = append(r.Alts, other...)
	r.Remarks = append(r.Remarks, r.Remark(Noticed, SentText, ""))
}

// SentText is about a rule for what nat sends elsewhere.
const SentText = "what nat has sent to another port or address of this machine is judged in " +
	"front, as it arrives; the input needs the chains of nat for that"

// carryDropped is carryStates for a rule that drops.
func (r *ChainRule) carryDropped(restrict func([]match.Match, bool) []match.Match) {
	if !slices.ContainsFunc(state.All[:4],
		func(s string) bool { return !slices.Contains(r.States, s) }) {
		return // each packet has one of these
	}
	must, could := restrict(state.MustHave(r.States), false), restrict(state.CouldHave(r.States))
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
