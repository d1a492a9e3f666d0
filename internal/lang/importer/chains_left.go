package importer

import (
	"fmt"
	"slices"
	"strings"
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

// leaveOut says what is lost with a rule that no policy can have, and writes it as a comment,
// with what comes nearest to it.
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
		r.widens = true
		if r.passes != nil {
			fl.passes(c, r.passes)
		} else {
			fl.passes(c, r.alts)
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
	m.Widens = r.widens
	fl.out.rep.add(m)
	fl.tell(r)
	fl.out.comment("left out: " + r.text)
	fl.out.beside(m)
	for _, l := range fl.nearest(r, c, base) {
		fl.out.near(l)
	}
}

// mayWiden tells whether a policy without rule n of the chain may pass what the source drops.
func (fl *flattener) mayWiden(r *chainRule, ch *chain, n int) bool {
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
			fmt.Sprintf("decides all packets of chain %s: the %d rules behind it are not in the "+
				"policy, as nothing reaches them", ch.name, rest), ""))
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

// meets tells whether a packet of c can be one that the rule is about.
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
