package importer

import (
	"fmt"
	"slices"
	"strings"
)

// verb is what a rule of a chain does with what it matches.
type verb uint8

const (
	doNothing verb = iota // goes on; the rule is left out
	doCount
	doAccept
	doDrop
	doJump
	doGoto
	doReturn
)

// origin is where a rule stands in its source.
type origin struct {
	file string
	line int
	text string // the rule as its tool writes it, cut short, printable
}

func (o origin) remark(k Kind, text, instead string) Remark {
	return Remark{File: o.file, Line: o.line, Rule: o.text, Kind: k, Text: text, Instead: instead}
}

// chainRule is one rule of a netfilter chain, of any front end.
type chainRule struct {
	origin
	label   string
	alts    []match // it holds where one of them does; none: for no packet
	verb    verb
	target  *chain   // of doJump and doGoto
	unknown []reason // conditions, or an action, that no policy has: the rule is left out
	remarks []Remark // what else is to be said when the rule is met
	states  []string // connection states that are asked for, the only thing unknown when stateOnly
}

// reason is why a rule is left out, and what to do instead.
type reason struct{ what, instead string }

// chain is one chain. Base chains have a policy and a family.
type chain struct {
	name   string // as remarks and labels have it
	rules  []*chainRule
	base   bool
	drop   bool  // the policy of a base chain
	family match // of a base chain: the frames it sees
	origin       // where it is defined
	met    bool  // rules were looked at

	flushes int // -F so far, while a file is read
}

// frame is where a packet goes on when a chain has ended: the rule behind the jump.
type frame struct {
	chain *chain
	next  int
	up    *frame
	depth int
}

const (
	// of chains; the kernel's own bound is 16 for nf_tables, that of ip_tables grows with the
	// chains
	maxDepth = 64
	// A ruleset may grow by copies to so many times its rules, and some: chains that are jumped to
	// from a few places stay far below it, while returns in chains that are jumped to often double
	// with each jump.
	growth    = 20
	growthMin = 20_000
)

// flattener turns base chains, one behind the other, into statements of a policy.
//
// A packet walks chains as a program walks functions; a policy is one list. A jump becomes the
// rules of the chain, each with the condition of the jump. A return leaves a chain early: a copy of
// what would follow, under the condition of the return, is put in its place, so that no packet of
// it reaches what stands behind. What one base chain accepts goes on to the next one.
type flattener struct {
	bases     []*chain
	out       *output
	stateless bool
	given     int // rules of the input
	steps     int
	written   int // ranges of addresses in lists of rules
	copies    int // resumes that are being written

	order  []*chainRule        // rules that were looked at, in this order
	listed map[*chainRule]bool // those of order
	told   map[*chainRule]bool // their remarks are written
	waits  map[*chainRule]bool // one of later is about them
	used   map[*chainRule]bool // a packet can match them
	ended  map[*chainRule]bool // tellEnd was called
	later  []func()            // what is said if the rule's own place is never reached
	err    error
}

// spend counts a rule that is looked at for r, and tells whether there is room for another.
func (fl *flattener) spend(r *chainRule) bool {
	if fl.err != nil {
		return false
	}
	most := min(MaxRules, growthMin+growth*fl.given)
	if fl.steps++; fl.steps > 8*most || fl.out.rules > most {
		fl.err = fmt.Errorf("%s:%d: with chains copied into one another the policy would have "+
			"more than %d rules; import fewer chains (--chain), or take returns out of chains "+
			"that are jumped to often", r.file, r.line, most)
	}
	return fl.err == nil
}

// run writes everything. Each base chain starts with the frames that no chain before it sees; the
// others reach it from there.
func (fl *flattener) run() error {
	for _, m := range []*map[*chainRule]bool{&fl.listed, &fl.told, &fl.waits, &fl.used, &fl.ended} {
		*m = make(map[*chainRule]bool)
	}
	seen := spans{}
	for i, b := range fl.bases {
		sees := b.family.f[fEther]
		if sees == nil {
			sees = between(0, 0xffff)
		}
		c := b.family
		if fresh := sees.and(seen.not(0xffff)); len(fresh) == 0 {
			continue
		} else if len(seen) > 0 {
			c = c.with(fEther, fresh)
		}
		seen = joinSpans(append(seen, sees...))
		fl.base(i, c, true)
	}
	fl.out.sees = seen
	for _, tell := range fl.later {
		tell()
	}
	fl.tellUnused()
	return fl.err
}

// base walks base chain i for the packets of c. At the top its end is the closing of the policy.
func (fl *flattener) base(i int, c match, top bool) {
	b := fl.bases[i]
	c = c.and(&b.family)
	if c.never || fl.walk(b, 0, c, nil, i) {
		return
	}
	if b.drop || !fl.goesOn(i, c) {
		fl.closing(i, c, top)
		return
	}
	fl.accept(i, c, nil, top)
}

// goesOn tells whether another base chain sees what chain i accepts.
func (fl *flattener) goesOn(i int, c match) bool {
	for j := i + 1; j < len(fl.bases); j++ {
		if m := c.and(&fl.bases[j].family); !m.never {
			return true
		}
	}
	return false
}

// accept is what happens to packets that base chain i accepts by rule r (nil: by its policy).
func (fl *flattener) accept(i int, c match, r *chainRule, top bool) {
	for j := i + 1; j < len(fl.bases); j++ {
		m := c.and(&fl.bases[j].family)
		if m.never {
			continue
		}
		fl.base(j, m, top && r == nil && m.equal(&fl.bases[j].family))
		if m.equal(&c) {
			return
		}
	}
	if r != nil {
		fl.out.rule("pass", &c, r.label)
	} else {
		fl.closing(i, c, top)
	}
}

// closing is the policy of base chain i for the packets of c.
func (fl *flattener) closing(i int, c match, top bool) {
	b := fl.bases[i]
	if top && c.equal(&b.family) {
		fl.out.close(b)
		return
	}
	action := "pass"
	if b.drop {
		action = "drop"
	}
	fl.out.rule(action, &c, b.name+" policy")
}

// walk writes what chain ch, from rule at on, does with the packets of c. It returns true when it
// decides all of them.
func (fl *flattener) walk(ch *chain, at int, c match, up *frame, base int) bool {
	ch.met = true
	for n := at; n < len(ch.rules); n++ {
		r := ch.rules[n]
		if !fl.spend(r) {
			return true
		}
		fl.list(r)
		if r.verb == doNothing || len(r.unknown) > 0 && !fl.jumpsForNew(r) {
			fl.leaveOut(r, ch, n, &c, base)
			continue
		}
		fl.tell(r)
		for i := range r.alts {
			if i > 0 && !fl.spend(r) {
				return true
			}
			if !c.compatible(&r.alts[i]) {
				fl.out.tellClash(r)
				continue
			}
			m := c.and(&r.alts[i])
			if m.never {
				continue
			}
			if fl.written += m.weight(); fl.written > maxWritten {
				fl.err = fmt.Errorf("%s:%d: rules that ask for large sets and other addresses at "+
					"once would need more than %d addresses in lists; leave the other condition "+
					"out, or split the set", r.file, r.line, maxWritten)
				return true
			}
			if m.terms() > maxTerms {
				fl.err = fmt.Errorf("%s:%d: with the conditions of the jumps that lead here the "+
					"rule asks for more than %d things, more than a policy's rule can; import "+
					"fewer chains (--chain), or split the rule", r.file, r.line, maxTerms)
				return true
			}
			fl.used[r] = true
			if fl.apply(r, ch, n, m, up, base) && m.equal(&c) {
				fl.tellEnd(r, &r.alts[i], ch, n)
				return true
			}
		}
	}
	return false
}

// apply does what r says with the packets of m, and tells whether they are all decided.
func (fl *flattener) apply(r *chainRule, ch *chain, n int, m match, up *frame, base int) bool {
	switch r.verb {
	case doCount:
		fl.out.rule("count", &m, r.label)
		return false
	case doAccept:
		fl.accept(base, m, r, false)
		return true
	case doDrop:
		fl.out.rule("drop", &m, r.label)
		return true
	case doReturn:
		fl.resume(up, m, base)
		return true
	}
	depth := 1
	if up != nil {
		depth = up.depth + 1
	}
	if depth > maxDepth || onPath(r.target, ch, up) {
		fl.err = fmt.Errorf("%s:%d: chain %s is jumped to from itself, or chains are nested "+
			"deeper than %d: no kernel loads this", r.file, r.line, r.target.name, maxDepth)
		return true
	}
	if r.verb == doJump {
		return fl.walk(r.target, 0, m, &frame{ch, n + 1, up, depth}, base)
	}
	if !fl.walk(r.target, 0, m, &frame{ch, len(ch.rules), up, depth}, base) {
		fl.resume(up, m, base)
	}
	return true
}

// onPath tells whether chain t is being walked already.
func onPath(t, ch *chain, up *frame) bool {
	for ; up != nil && t != ch; up = up.up {
		ch = up.chain
	}
	return t == ch
}

// resume does with the packets of m what stands behind the jump that led here.
func (fl *flattener) resume(up *frame, m match, base int) {
	if up == nil {
		b := fl.bases[base]
		if b.drop || !fl.goesOn(base, m) {
			fl.closing(base, m, false)
		} else {
			fl.accept(base, m, nil, false)
		}
		return
	}
	fl.copies++
	defer func() { fl.copies-- }()
	if !fl.walk(up.chain, up.next, m, up.up, base) {
		fl.resume(up.up, m, base)
	}
}

// tell passes on the remarks of a rule, once.
func (fl *flattener) tell(r *chainRule) {
	if !fl.told[r] {
		fl.told[r] = true
		for _, m := range r.remarks {
			fl.out.rep.add(m)
		}
	}
}

// jumpsForNew tells whether r is a jump for new connections, which the stateless approximation
// makes a jump for all packets.
func (fl *flattener) jumpsForNew(r *chainRule) bool {
	if !fl.stateless || r.verb != doJump && r.verb != doGoto || len(r.unknown) > 1 ||
		!slices.Contains(r.states, "NEW") {
		return false
	}
	if !fl.told[r] {
		fl.out.rep.add(r.stateRemark())
	}
	return true
}

// stateRemark says that the state is not asked for.
func (r *chainRule) stateRemark() Remark {
	return r.remark(Changed, "asks for the connection state "+printable(strings.Join(r.states, ","),
		60)+
		", which levee does not keep yet: the stateless approximation stands in its place",
		"read it, and compare with `levee eval --pcap`")
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
	near := fl.nearest(r, c, base)
	if fl.stateless && len(r.states) > 0 && len(r.unknown) == 1 && len(near) > 0 {
		if !fl.told[r] {
			fl.out.rep.add(r.stateRemark())
		}
		fl.tell(r)
		for _, l := range near {
			fl.out.text(l, r.label)
		}
		return
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
	fl.out.rep.add(r.remark(LeftOut, fl.consequence(r, ch, n, base), instead(r)))
	fl.tell(r)
	fl.out.comment("left out: " + r.text)
	for _, l := range near {
		fl.out.near(l)
	}
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
func (fl *flattener) consequence(r *chainRule, ch *chain, n, base int) string {
	var why []string
	for _, u := range r.unknown {
		why = append(why, u.what)
	}
	text := strings.Join(why, "; ")
	rest := len(ch.rules) - n - 1
	switch r.verb {
	case doCount:
		return text + ": it only counts, so that no verdict changes"
	case doAccept:
		if slices.Contains(r.states, "ESTABLISHED") && (fl.bases[base].drop || dropsRest(ch, n)) {
			return text + ": the chain drops what no rule passes, so that WITHOUT IT THE ANSWERS " +
				"TO THIS MACHINE'S OWN CONNECTIONS, AND ALL THAT NO OTHER RULE PASSES, ARE DROPPED"
		}
		return text + fmt.Sprintf(": what it passes is judged by the %d rules behind it and the "+
			"policy of the chain, and dropped where these drop", rest)
	case doDrop:
		return text + fmt.Sprintf(": what it drops is judged by the %d rules behind it and the "+
			"policy of the chain, and passed where these pass", rest)
	case doReturn:
		if dropsRest(ch, n) {
			return text + fmt.Sprintf(": the %d rules behind it in chain %s also judge what "+
				"would have returned, and one of them drops all that comes to it: WITHOUT THE "+
				"RETURN THEY DROP WHAT WAS MEANT TO GO ON", rest, ch.name)
		}
		return text + fmt.Sprintf(": the %d rules behind it in chain %s are uncertain, as they "+
			"now also judge what would have returned", rest, ch.name)
	case doJump, doGoto:
		return text + fmt.Sprintf(": the %d rules of chain %s are not reached by this way, and "+
			"the rules behind it judge what they would have decided", len(r.target.rules),
			r.target.name)
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
