package importer

import (
	"slices"

	"levee/internal/lang/importer/match"
	"levee/internal/lang/importer/state"
)

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
	s := state.Of(r.States)
	asked := r.Alts
	r.Alts = restrict(s.Packets(r.Verb.takesBare()))
	if s.Fresh && r.Limit == Above {
		r.opens = restrict(s.Packets(false))
	}
	leads := (r.Verb == DoJump || r.Verb == DoGoto) && drops(r.Target, map[*Chain]bool{})
	if s.Invalid && !s.Fresh && (r.Verb == DoDrop || leads) {
		r.Remarks = append(r.Remarks, r.Remark(Changed, invalidText, ""))
		r.passes = restrict(match.Settled([]match.Match{
			match.Match{}.With(match.ICMP, state.TooBig),
			match.Match{}.With(match.ICMP6, state.TooBig6),
			match.Match{}.With(match.Proto, state.SCTPAndDCCP)}), false)
	}
	strays := s.Fresh && !s.Invalid && r.Verb != DoDrop
	if strays {
		r.passes = append(r.passes, restrict(match.Settled([]match.Match{
			match.Match{}.With(match.Proto, state.SCTPAndDCCP)}), false)...)
	}
	switch {
	case !slices.ContainsFunc(asked, state.Others):
	case s.Is && strays:
		r.Remarks = append(r.Remarks, r.Remark(Changed, strayText, ""))
	case s.Is == s.Fresh:
	case s.Fresh:
		r.Remarks = append(r.Remarks, r.Remark(Changed, newProtoText, ""))
	default:
		r.Remarks = append(r.Remarks, r.Remark(Changed, keptText, ""))
	}
}
