package importer

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/quantity"
)

// tell passes on the remarks of a rule, once.
func (fl *flattener) tell(r *chainRule) {
	if !fl.told[r] {
		fl.told[r] = true
		for _, m := range r.remarks {
			fl.out.rep.add(m)
		}
	}
}

// beside writes what is changed of a rule as comments at the place where it is written first.
func (fl *flattener) beside(r *chainRule) {
	if fl.used[r] {
		return
	}
	fl.used[r] = true
	for _, m := range r.remarks {
		if m.Kind == Changed {
			fl.out.beside(m)
		}
	}
}

// passes notes which packets of c the policy may pass though the source drops them.
func (fl *flattener) passes(c *match, alts []match) {
	for i := range alts {
		if m := c.and(&alts[i]); !m.never && c.compatible(&alts[i]) {
			fl.out.rep.pass(&m)
		}
	}
}

// leaveOut says what is lost with a rule that no policy can have, and keeps a place for it as a
// comment, with what comes nearest to it.
func (fl *flattener) leaveOut(r *chainRule, ch *chain, n int, c *match, base int) {
	if len(r.unknown) == 0 {
		fl.tell(r)
		return
	}
	if !r.meets(c) { // no packet gets here that it is about
		if len(r.alts) == 0 {
			fl.tell(r)
		}
		return
	}
	fl.used[r] = true
	if fl.mayWiden(r, ch, n) {
		alts := r.alts
		if r.passes != nil {
			alts = r.passes
		}
		for i := range alts {
			if m := c.and(&alts[i]); !m.never && c.compatible(&alts[i]) {
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
	m := r.remark(LeftOut, fl.consequence(r, ch, n), instead(r))
	place := leftOut{r: r, said: m, remark: len(fl.out.rep.Remarks), at: len(fl.out.pending)}
	fl.out.rep.add(m)
	fl.tell(r)
	place.near = fl.nearest(r, c, base)
	fl.out.pending = append(fl.out.pending, statement{})
	fl.left = append(fl.left, place)
}

// lostAt are packets that a rule which is left out decides no more, and the place where they go on.
type lostAt struct {
	at int
	m  match
}

// leftOut is a rule whose comment is not written yet: what stands behind tells whether it widens.
type leftOut struct {
	r          *chainRule
	said       Remark
	remark, at int // their places; the report may be full
	near       []string
}

// clash remembers that a rule would ask for two dynamic sets at once, for packets of c.
func (fl *flattener) clash(r *chainRule, c *match) {
	if _, told := fl.clashes[r]; !told {
		fl.clashes[r] = nil
	}
	if r.verb == doDrop || r.verb == doJump || r.verb == doGoto {
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
		m := r.remark(LeftOut, "asks for two sets about one address of which one is filled at "+
			"run time", "put both into one set")
		for _, l := range lost {
			if !fl.droppedBehind(l.at, &l.m) {
				m.Widens = true
				fl.out.rep.pass(&l.m)
			}
		}
		r.remarks = append(r.remarks, m)
		fl.out.rep.add(m)
	}
}

// settleLeft writes what stands in the place of rules that were left out. Where all that one drops
// is dropped behind it, nothing is lost with it.
func (fl *flattener) settleLeft() {
	for _, r := range fl.order {
		for _, l := range fl.lost[r] {
			if r.verb == doReturn || r.verb == doNothing || !fl.droppedBehind(l.at, &l.m) {
				r.widens = true
				fl.out.rep.pass(&l.m)
			}
		}
	}
	for _, l := range fl.left {
		l.said.Widens = l.r.widens
		if l.remark < len(fl.out.rep.Remarks) {
			fl.out.rep.Remarks[l.remark].Widens = l.r.widens
		}
		n := len(fl.out.pending)
		fl.out.comment("left out: " + l.r.text)
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

// mayWiden tells whether a policy without rule n of the chain may pass what the source drops.
func (fl *flattener) mayWiden(r *chainRule, ch *chain, n int) bool {
	if slices.ContainsFunc(r.filled,
		func(f filled) bool { return f.empty && !fl.out.fills[f.set] }) {
		return false // nothing is in its set
	}
	switch r.verb {
	case doAccept, doCount, doLog:
		return false
	case doDrop: // the next one may drop them, or the policy
		return slices.ContainsFunc(r.alts, func(m match) bool { return !dropsNext(ch, n+1, &m) })
	case doJump, doGoto:
		return drops(r.target, map[*chain]bool{})
	case doReturn:
		return slices.ContainsFunc(ch.rules[n+1:],
			func(r *chainRule) bool { return r.verb != doDrop && !idle([]*chainRule{r}) })
	}
	return true
}

// list remembers that a rule was looked at, for tellUnused.
func (fl *flattener) list(r *chainRule) {
	if !fl.listed[r] {
		fl.listed[r] = true
		fl.order = append(fl.order, r)
	}
}

// tellEnd says that nothing comes behind a rule that all packets match.
func (fl *flattener) tellEnd(r *chainRule, m *match, ch *chain, n int) {
	if rest := len(ch.rules) - n - 1; rest > 0 && !fl.ended[r] && m.equal(&match{}) {
		fl.ended[r] = true
		fl.out.rep.add(r.remark(Noticed,
			fmt.Sprintf("decides all packets of chain %s: %s behind it not in the policy, as "+
				"nothing comes there", ch.name, quantity.Plural(rest, "rule")), ""))
	}
}

// tellUnused names the rules that are not in the policy because no packet can match them.
func (fl *flattener) tellUnused() {
	for _, r := range fl.order {
		if !fl.used[r] && len(r.remarks) == 0 && (r.verb != doNothing || len(r.unknown) > 0) {
			fl.out.rep.add(r.remark(Noticed,
				"is not in the policy: no packet that comes there can match it", ""))
		}
	}
}

// dropsRest tells whether a rule behind n drops all that comes to it.
func dropsRest(ch *chain, n int) bool {
	return slices.ContainsFunc(ch.rules[n+1:], func(r *chainRule) bool {
		return r.verb == doDrop && len(r.unknown) == 0 && len(r.alts) == 1 &&
			r.alts[0].equal(&match{})
	})
}

// meets tells whether the rule may match a packet of c.
func (r *chainRule) meets(c *match) bool {
	for i := range r.alts {
		if m := c.and(&r.alts[i]); !m.never {
			return true
		}
	}
	return false
}

// consequence says why a rule is left out and which packets are judged otherwise.
func (fl *flattener) consequence(r *chainRule, ch *chain, n int) string {
	var why []string
	for _, u := range r.unknown {
		why = append(why, u.what)
	}
	text := strings.Join(why, "; ")
	switch r.verb {
	case doCount:
		return text + ": it only counts, so that no verdict changes"
	case doAccept:
		return text + ": what it passes is judged by the rules behind it and the policy of the " +
			"chain, and dropped where these drop"
	case doDrop:
		return text + ": what it drops is judged by the rules behind it and the policy of the " +
			"chain, and passed where these pass"
	case doReturn:
		if dropsRest(ch, n) {
			return text + ": the rules behind it in the chain also judge what would have " +
				"returned, and one of them drops all that comes to it: WITHOUT THE RETURN THEY " +
				"DROP WHAT WAS MEANT TO GO ON"
		}
		return text + ": the rules behind it in the chain are uncertain, as they now also judge " +
			"what would have returned"
	case doJump, doGoto:
		return text + ": the rules of chain " + r.target.name + " are not reached by this way, " +
			"and the rules behind it judge what they would have decided"
	}
	return text + ": what it decides is unknown, so that everything behind it is uncertain"
}

func instead(r *chainRule) string {
	var hints []string
	for _, u := range r.unknown {
		if u.instead != "" {
			hints = append(hints, u.instead)
		}
	}
	return strings.Join(hints, "; ")
}
