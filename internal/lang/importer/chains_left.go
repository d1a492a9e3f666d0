package importer

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/lang/importer/match"
	"levee/internal/quantity"
)

// tell passes on the remarks of a rule, once.
func (fl *flattener) tell(r *ChainRule) {
	if !fl.told[r] {
		fl.told[r] = true
		for _, m := range r.Remarks {
			fl.out.Report.Add(m)
		}
	}
}

// beside writes what is changed of a rule as comments at the place where it is written first.
func (fl *flattener) beside(r *ChainRule) {
	if fl.used[r] {
		return
	}
	fl.used[r] = true
	for _, m := range r.Remarks {
		if m.Kind == Changed {
			fl.out.beside(m)
		}
	}
}

// passes notes which packets of c the policy may pass though the source drops them.
func (fl *flattener) passes(c *match.Match, alts []match.Match) {
	for i := range alts {
		if m := c.And(&alts[i]); !m.Never && c.Compatible(&alts[i]) {
			fl.out.Report.pass(&m)
		}
	}
}

// leaveOut says what is lost with a rule that no policy can have, and keeps a place for it as a
// comment, with what comes nearest to it.
func (fl *flattener) leaveOut(r *ChainRule, ch *Chain, n int, c *match.Match, base int) {
	if len(r.Unknown) == 0 {
		fl.tell(r)
		return
	}
	if !r.meets(c) { // no packet gets here that it is about
		if len(r.Alts) == 0 {
			fl.tell(r)
		}
		return
	}
	fl.used[r] = true
	if fl.mayWiden(r, ch, n) {
		alts := r.Alts
		if r.about != nil {
			alts = r.about
		}
		for i := range alts {
			if m := c.And(&alts[i]); !m.Never && c.Compatible(&alts[i]) {
				fl.lost[r] = append(fl.lost[r], lostAt{len(fl.out.pending), m})
			}
		}
	}
	if fl.told[r] {
		return
	}
	if fl.copies > 0 { // its own place is to come, unless nothing gets there
		if !fl.waits[r] {
			fl.waits[r] = true
			at := *c
			fl.later = append(fl.later, func() { fl.leaveOut(r, ch, n, &at, base) })
		}
		return
	}
	fl.gone[r] = true
	// what else would widen is of no account, as its set
	r.Remarks = slices.DeleteFunc(r.Remarks, func(m Remark) bool { return m.Widens })
	m := r.Remark(LeftOut, fl.consequence(r, ch, n), instead(r))
	place := leftOut{r: r, said: m, remark: len(fl.out.Report.Remarks), at: len(fl.out.pending)}
	fl.out.Report.Add(m)
	fl.tell(r)
	place.near = fl.nearest(r, c, base)
	fl.out.pending = append(fl.out.pending, statement{})
	fl.left = append(fl.left, place)
}

// lostAt are packets that a rule which is left out decides no more, and the place where they go on.
type lostAt struct {
	at int
	m  match.Match
}

// leftOut is a rule whose comment is not written yet: what stands behind tells whether it widens.
type leftOut struct {
	r          *ChainRule
	said       Remark
	remark, at int // their places; the report may be full
	near       []string
}

// clash remembers that a rule would ask for two dynamic sets at once, for packets of c.
func (fl *flattener) clash(r *ChainRule, c *match.Match) {
	if _, told := fl.clashes[r]; !told {
		fl.clashes[r] = nil
	}
	if r.Verb == DoDrop || r.Verb == DoJump || r.Verb == DoGoto {
		fl.clashes[r] = append(fl.clashes[r], lostAt{len(fl.out.pending), *c})
	}
}

// settleClashes says of which rules a part is left out so.
func (fl *flattener) settleClashes() {
	for _, r := range fl.order {
		lost, clashes := fl.clashes[r]
		if !clashes {
			continue
		}
		m := r.Remark(LeftOut, "asks for two sets about one address of which one is filled at "+
			"run time", "put both into one set")
		for _, l := range lost {
			if !fl.droppedBehind(l.at, &l.m) {
				m.Widens = true
				fl.out.Report.pass(&l.m)
			}
		}
		r.Remarks = append(r.Remarks, m)
		fl.out.Report.Add(m)
	}
}

// settleLeft writes what stands in the place of rules that were left out. Where all that one drops
// is dropped behind it, nothing is lost with it.
func (fl *flattener) settleLeft() {
	for _, r := range fl.order {
		for _, l := range fl.lost[r] {
			if r.Verb == DoReturn || r.Verb == DoNothing || !fl.droppedBehind(l.at, &l.m) {
				r.widens = true
				fl.out.Report.pass(&l.m)
			}
		}
	}
	for _, l := range fl.left {
		l.said.Widens = l.r.widens
		if l.remark < len(fl.out.Report.Remarks) {
			fl.out.Report.Remarks[l.remark].Widens = l.r.widens
		}
		n := len(fl.out.pending)
		fl.out.comment("left out: " + l.r.Text)
		fl.out.beside(l.said)
		for _, text := range l.near {
			fl.out.near(text)
		}
		for _, s := range fl.out.pending[n:] {
			fl.out.pending[l.at].text += s.text
		}
		fl.out.pending = fl.out.pending[:n]
	}
}

// takeCovered makes comments of the statements that no packet reaches, as one before decides all
// that they are about. It looks at so many that hostile input does not matter.
func (fl *flattener) takeCovered() {
	var decided []*statement
	var covered []string // their labels
	written := map[string]bool{}
	defer func() { fl.tellCovered(covered, written) }()
	left := maxLooks
	for i := range fl.out.pending {
		s := &fl.out.pending[i]
		if s.action == "" {
			continue
		}
		if left -= len(decided) * (1 + s.m.Weight()/16); left < 0 {
			return
		}
		if slices.ContainsFunc(decided, func(d *statement) bool { return s.m.Within(d.m) }) {
			covered = append(covered, s.label)
			rule := strings.ReplaceAll(Clip(s.action+s.m.Text(), 800), "\n", " ")
			if fl.out.leaves {
				rule = "out " + rule
			}
			*s = statement{text: s.text + "# never reached: " + Printable(rule, 400) + "\n"}
			continue
		}
		if written[s.label] = true; s.action == "pass" || s.action == "drop" {
			decided = append(decided, s)
		}
	}
}

// tellCovered names the rules of which no statement is left.
func (fl *flattener) tellCovered(covered []string, written map[string]bool) {
	const most = 10
	var names []string
	for _, label := range covered {
		if !written[label] && !slices.Contains(names, label) {
			names = append(names, label)
		}
	}
	if len(names) == 0 {
		return
	}
	text := quantity.Plural(len(names), "rule") + " of which rules before decide all packets"
	list := strings.Join(names[:min(most, len(names))], ", ")
	fl.out.Report.Add(Remark{File: fl.out.names, Kind: Noticed, Text: text + ": " +
		Printable(list, 300) + map[bool]string{true: " and more"}[len(names) > most] +
		"; in the policy they are comments"})
}

// endWithDefault makes the policy's default of a last rule that drops all packets.
func (fl *flattener) endWithDefault() {
	o := fl.out
	last := len(o.pending) - 1
	for last >= 0 && o.pending[last].action == "" {
		last--
	}
	all := match.Match{}.With(match.Ether, match.BothIP)
	if o.leaves || !slices.Equal(o.sees, match.BothIP) || last < 0 ||
		o.pending[last].action != "drop" || !o.pending[last].m.Equal(&all) {
		return
	}
	o.pending[last] = statement{}
	o.closed = append([]*Chain{{Base: true, Drop: true, Family: all}}, o.closed...)
	o.dhcp = dhcpOpen
	for i := range o.pending[:last] {
		if s := &o.pending[i]; s.action != "" {
			o.dhcp.meet(s.action, &s.m)
		}
	}
}

// mayWiden tells whether a policy without rule n of the chain may pass what the source drops.
func (fl *flattener) mayWiden(r *ChainRule, ch *Chain, n int) bool {
	if slices.ContainsFunc(r.Filled,
		func(f Filled) bool { return f.empty && !fl.out.Fills[f.set] }) {
		return false // nothing is in its set
	}
	switch r.Verb {
	case DoAccept, DoCount, doLog:
		return false
	case DoDrop: // the next one may drop them, or the policy
		return slices.ContainsFunc(r.Alts, func(m match.Match) bool {
			return !dropsNext(ch, n+1,
				&m)
		})
	case DoJump:
		return drops(r.Target, map[*Chain]bool{})
	case DoGoto:
		return drops(r.Target, map[*Chain]bool{}) || !(ch.Base && !ch.Drop) && ch.maySpare(n)
	case DoReturn:
		return ch.maySpare(n)
	}
	return true
}

// maySpare tells whether a rule behind n may pass what leaves the chain at n.
func (c *Chain) maySpare(n int) bool {
	return slices.ContainsFunc(c.Rules[n+1:],
		func(r *ChainRule) bool { return r.Verb != DoDrop && !idle([]*ChainRule{r}) })
}

// list remembers that a rule was looked at, for tellUnused.
func (fl *flattener) list(r *ChainRule) {
	if !fl.listed[r] {
		fl.listed[r] = true
		fl.order = append(fl.order, r)
	}
}

// tellEnd says that nothing comes behind a rule that all packets match.
func (fl *flattener) tellEnd(r *ChainRule, m *match.Match, ch *Chain, n int) {
	if rest := len(ch.Rules) - n - 1; rest > 0 && !fl.ended[r] && m.Equal(&match.Match{}) {
		fl.ended[r] = true
		fl.out.Report.Add(r.Remark(Noticed,
			fmt.Sprintf("decides all packets of chain %s: %s behind it not in the policy, as "+
				"nothing comes there", ch.Name, quantity.Plural(rest, "rule")), ""))
	}
}

// tellUnused names the rules that are not in the policy because no packet can match them.
func (fl *flattener) tellUnused() {
	for _, r := range fl.order {
		if !fl.used[r] && len(r.Remarks) == 0 && (r.Verb != DoNothing || len(r.Unknown) > 0) {
			fl.out.Report.Add(r.Remark(Noticed,
				"is not in the policy: no packet that comes there can match it", ""))
		}
	}
}

// dropsRest tells whether a rule behind n drops all that comes to it.
func dropsRest(ch *Chain, n int) bool {
	return slices.ContainsFunc(ch.Rules[n+1:], func(r *ChainRule) bool {
		return r.Verb == DoDrop && len(r.Unknown) == 0 && len(r.Alts) == 1 &&
			r.Alts[0].Equal(&match.Match{})
	})
}

// meets tells whether the rule may match a packet of c.
func (r *ChainRule) meets(c *match.Match) bool {
	for i := range r.Alts {
		if m := c.And(&r.Alts[i]); !m.Never {
			return true
		}
	}
	return false
}

// consequence says why a rule is left out and which packets are judged otherwise.
func (fl *flattener) consequence(r *ChainRule, ch *Chain, n int) string {
	var why []string
	for _, u := range r.Unknown {
		why = append(why, u.What)
	}
	text := strings.Join(why, "; ")
	switch r.Verb {
	case DoCount:
		return text + ": it only counts, so that no verdict changes"
	case DoAccept:
		return text + ": what it passes is judged by the rules behind it and the policy of the " +
			"chain, and dropped where these drop"
	case DoDrop:
		return text + ": what it drops is judged by the rules behind it and the policy of the " +
			"chain, and passed where these pass"
	case DoReturn:
		if dropsRest(ch, n) {
			return text + ": the rules behind it in the chain also judge what would have " +
				"returned, and one of them drops all that comes to it: WITHOUT THE RETURN THEY " +
				"DROP WHAT WAS MEANT TO GO ON"
		}
		return text + ": the rules behind it in the chain are uncertain, as they now also judge " +
			"what would have returned"
	case DoJump, DoGoto:
		return text + ": the rules of chain " + r.Target.Name + " are not reached by this way, " +
			"and the rules behind it judge what they would have decided"
	}
	return text + ": what it decides is unknown, so that everything behind it is uncertain"
}

func instead(r *ChainRule) string {
	var hints []string
	for _, u := range r.Unknown {
		if u.Instead != "" {
			hints = append(hints, u.Instead)
		}
	}
	return strings.Join(hints, "; ")
}
