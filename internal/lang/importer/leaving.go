package importer

import (
	"fmt"
	"slices"

	"levee/internal/lang/importer/match"
	"levee/internal/lang/importer/state"
	"levee/internal/quantity"
)

// This file has the other side of an import: chains about what the machine sends become rules of
// `out`. They are read and written as those about what arrives are, by an output of their own,
// which is kept only if it cuts nothing that the source lets leave: a rule that passes and has no
// word leaves the side out as a whole.

// outside returns the output for what leaves, of the same policy.
func (o *Output) outside() *Output {
	side := NewOutput(o.names, o.tool, Rulesets{Device: o.device, Stateless: o.stateless})
	side.leaves, side.labels, side.Taken = true, o.labels, o.Taken
	side.logs, side.limits = o.logs, o.limits
	return side
}

// Forwards says of an output for what leaves that the machine forwards, too: its rules are about
// what it sends itself. translates: nat changes sources before packets leave.
func (o *Output) Forwards(translates bool) {
	o.forwards, o.translated = true, o.translated || translates
}

// asksSource reports whether a statement asks where packets come from.
func (s *statement) asksSource() bool {
	return s.action != "" && (s.m.From.In != nil || len(s.m.From.Not) > 0 || s.m.FromDyn != nil ||
		s.m.Fields[match.FromPort] != nil)
}

// LeavingChains reads the base chains for what leaves, for an output.
type LeavingChains func(*Output) (bases []*Chain, err error)

// takeSide writes the chains for what leaves, or notes why it does not, and counts their rules.
func (o *Output) takeSide(given int, leaving LeavingChains) error {
	side := o.outside()
	bases, err := leaving(side)
	if err != nil || len(bases) == 0 {
		return err
	}
	if slices.ContainsFunc(bases, func(c *Chain) bool {
		return c.Drop && len(c.Rules) == 0
	}) {
		o.sideWhy = "it has no rule, so that nothing would leave: it may be a part of a file"
		return nil
	}
	fl := &flattener{bases: bases, given: given, out: side}
	if err := fl.run(); err != nil {
		return err
	}
	drops := slices.ContainsFunc(bases, func(c *Chain) bool { return c.Drop }) ||
		slices.ContainsFunc(side.pending, func(s statement) bool {
			return s.action == "drop" || s.action == "limit"
		})
	if side.translated && slices.ContainsFunc(side.pending,
		func(s statement) bool { return s.asksSource() }) {
		o.sideWhy = "it asks where packets come from, which nat changes (POSTROUTING) before " +
			"they leave"
	}
	cuts := drops
	for _, r := range fl.order {
		if !fl.gone[r] || r.Verb.watches() || r.Verb == DoAccept && !drops ||
			r.Verb == DoDrop && drops {
			continue
		}
		if cuts = true; o.sideWhy == "" {
			o.sideWhy = "a rule of it, " + match.Quote(r.Text) + ", " + reasons(r)
		}
	}
	switch {
	case !cuts:
		return nil
	case o.sideWhy != "":
		o.Report.Leaving = fl.leftOut()
		return nil
	}
	o.Side = side
	o.Report.Leaving = side.Report.Fates
	for _, m := range side.Report.Remarks {
		m.Widens = false // which is of what arrives
		o.Report.Add(m)
	}
	return nil
}

// leftOut returns the fates of rules for what leaves when none is carried over. If their chain
// drops by its policy, each rule counts as one that lets more through.
func (fl *flattener) leftOut() Fates {
	f := fl.out.Report.Fates
	out := Fates{Given: f.Given, Elsewhere: f.Elsewhere, Loopback: f.Loopback,
		LeftOut: f.Given - f.Elsewhere - f.Loopback}
	if slices.ContainsFunc(fl.bases, func(c *Chain) bool { return c.Drop }) {
		out.Widened = out.LeftOut
		return out
	}
	for _, r := range fl.order {
		if r.Verb == DoDrop && !r.Absent && !r.loopback {
			out.Widened++
		}
	}
	return out
}

// addSide puts the rules for what leaves behind the others.
func (o *Output) addSide() {
	last := o.Side.endingOut()
	o.Side.flush()
	o.body.Write(o.Side.body.Bytes())
	o.body.WriteString(last)
	o.sets = append(o.sets, o.Side.sets...)
	o.rules += o.Side.rules
}

// reasons returns what a policy has no words for in a rule.
func reasons(r *ChainRule) string {
	if len(r.Unknown) == 0 {
		return "has no word"
	}
	return r.Unknown[0].What
}

// endingOut returns the default of what leaves, or closing rules where the chains see a part of it.
func (o *Output) endingOut() string {
	if len(o.closed) > 0 && slices.Equal(o.sees, match.BothIP) &&
		!slices.ContainsFunc(o.closed, func(c *Chain) bool { return !c.Drop }) {
		if !o.forwards {
			return "out default drop\n"
		}
		m := match.Match{}.With(match.Ether, match.BothIP)
		o.rule("drop", &m, o.closed[0].Name+" policy", true)
		return ""
	}
	for _, c := range o.closed {
		if m := c.Family; c.Drop {
			o.rule("drop", &m, c.Name+" policy", true)
		}
	}
	return ""
}

// carryLeaving is carryStates for a rule about what leaves. What answers is known; what begins is
// told by headers, so that nothing is cut: of TCP the SYN is new, of UDP and of protocols without
// connections any packet may be. Without a memory all is told by headers.
func (r *ChainRule) carryLeaving(written *int, stateless bool) {
	if r.States == nil || r.Verb == DoNothing {
		return
	}
	s := state.Of(r.States)
	var alts []match.Match
	switch {
	case r.Verb == DoAccept && s.Fresh && s.Is:
		r.Widen(bothText, "", r.Alts)
		return
	case r.Verb == DoAccept:
		alts = s.MayLeave(stateless)
	case r.Verb == DoDrop:
		alts = s.MustLeave()
	}
	if alts == nil {
		r.Unknown = append(r.Unknown, Reason{"asks for a connection state, which `out` does " +
			"not know", ""})
		return
	}
	out, err := Narrow(r.Alts, match.Settled(alts), written)
	if err != nil {
		r.Unknown = append(r.Unknown, Reason{err.Error(), "split the rule"})
		return
	}
	text := leavesText
	if stateless {
		text = leavesStateless
	}
	r.Widen(text, "", r.Alts)
	r.Alts = out
}

// What is said of states of what leaves.
const (
	leavesText = "`out established` is what answers; of what does not, SYNs, ACKs alone, " +
		"requests and all of UDP pass as new, and no rule drops UDP for its state"
	leavesStateless = "without connections the SYN of TCP is a new connection and all else a " +
		"known one, UDP passes as either, and no rule drops it for its state"
)

// AboutSide says what became of a chain for what leaves that stands in no rule.
func (o *Output) AboutSide(c *Chain) {
	what := fmt.Sprintf("chain %s (%s) is not imported: ", c.Name,
		quantity.Plural(len(c.Rules), "rule"))
	switch {
	case o.sideWhy == "":
		o.Report.Add(c.Remark(Noticed, what+"it drops nothing that leaves", ""))
	default:
		o.Report.Add(c.Remark(LeftOut, what+o.sideWhy, LeavesHint))
	}
}
