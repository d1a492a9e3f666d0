package importer

import (
	"fmt"
	"slices"
)

// verb is what a rule of a chain does with what it matches.
type verb uint8

const (
	doNothing verb = iota // goes on; the rule is left out
	doCount
	doLog
	doAccept
	doDrop
	doJump
	doGoto
	doReturn
)

// watches tells whether a rule looks at packets and decides nothing.
func (v verb) watches() bool { return v == doCount || v == doLog }

// origin is where a rule stands in its source.
type origin struct {
	file string
	line int
	text string // the rule as its tool writes it, cut short, printable

	place string // see Remark
}

func (o origin) remark(k Kind, text, instead string) Remark {
	return Remark{File: o.file, Line: o.line, Rule: o.text, Kind: k, Text: text, Instead: instead,
		place: o.place}
}

// chainRule is one rule of a netfilter chain, of any front end.
type chainRule struct {
	origin
	label    string
	alts     []match // it holds where one of them does; none: for no packet
	verb     verb
	target   *chain   // of doJump and doGoto
	unknown  []reason // conditions, or an action, that no policy has: the rule is left out
	remarks  []Remark // what else is to be said when the rule is met
	states   []string // connection states that are asked for, nil for any
	limit    limit
	limits   []reason // what the limits are
	rate     *rate    // what they are as a limit of a policy, if that is known
	cookie   bool     // SYNs are answered, and those of clients that are there pass
	logs     string   // the label of a log in front of it, "" if it has none
	nat      *natTo   // of a nat chain
	seen     *seenLately
	mark     *markAsk
	setsMark uint32 // bits of the mark that it may set
	rated    bool   // it becomes one
	// a limit stands before the states that it asks for
	stateLast bool
	opens     []match  // of a limit: those of alts that begin something
	budget    string   // the name of what it is counted in, which other rules may share
	filled    []filled // sets that change while the source runs
	passes    []match  // packets that the policy may pass because of remarks that widen
	named     bool     // label is one of the source, not made from the chain
	absent    bool     // nothing is lost with it: about another interface
	loopback  bool     // absent, as it is about the machine's packets to itself
	implied   bool     // no line of the source says it
	widens    bool     // left out, and packets pass that it would have dropped
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
	bases   []*chain
	out     *output
	given   int // rules of the input
	steps   int
	written int // ranges of addresses in lists of rules
	copies  int // resumes that are being written

	order  []*chainRule        // rules that were looked at, in this order
	listed map[*chainRule]bool // those of order
	told   map[*chainRule]bool // their remarks are written
	waits  map[*chainRule]bool // one of later is about them
	used   map[*chainRule]bool // a packet can match them
	ended  map[*chainRule]bool // tellEnd was called
	gone   map[*chainRule]bool // left out
	later  []func()            // what is said if the rule's own place is never reached
	left   []leftOut
	lost   map[*chainRule][]lostAt
	// for which packets rules would ask for two dynamic sets at once
	clashes map[*chainRule][]lostAt
	looks   int // statements that droppedBehind looked at
	err     error
}

// spend counts a rule that is looked at for r, and tells whether there is room for another.
func (fl *flattener) spend(r *chainRule) bool {
	if fl.err != nil {
		return false
	}
	most := min(MaxRules, growthMin+growth*fl.given)
	if fl.steps++; fl.steps > 8*most || len(fl.out.pending) > most {
		fl.err = fmt.Errorf("%s:%d: with chains copied into one another the policy would have "+
			"more than %d rules; import fewer chains (--chain), or take returns out of chains "+
			"that are jumped to often", r.file, r.line, most)
	}
	return fl.err == nil
}

// run writes everything. Each base chain starts with the frames that no chain before it sees; the
// others reach it from there.
func (fl *flattener) run() error {
	for _, m := range []*map[*chainRule]bool{&fl.listed, &fl.told, &fl.waits, &fl.used, &fl.ended,
		&fl.gone} {
		*m = make(map[*chainRule]bool)
	}
	fl.lost, fl.clashes = map[*chainRule][]lostAt{}, map[*chainRule][]lostAt{}
	fl.prepare()
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
	fl.settle()
	fl.settleLeft()
	fl.settleClashes()
	fl.readNat(fl.out.nats)
	fl.tellUnused()
	fl.count()
	return fl.err
}

// prepare makes of states and limits what a policy has words for, in all rules that can be reached.
func (fl *flattener) prepare() {
	seen := map[*chain]bool{}
	var order []*chain
	var visit func(c *chain)
	visit = func(c *chain) {
		if c == nil || seen[c] {
			return
		}
		seen[c] = true
		order = append(order, c)
		for _, r := range c.rules {
			visit(r.target)
		}
	}
	for _, b := range fl.bases {
		visit(b)
	}
	for _, c := range order {
		for _, r := range c.rules {
			if fl.out.leaves {
				r.carryLeaving(&fl.out.written)
			} else {
				r.carryStates(&fl.out.written, fl.out.stateless)
			}
		}
	}
	for _, c := range order {
		for n, r := range c.rules {
			fl.foldLimit(c, n)
			if r.rated = r.carriesRate(c, n, fl.out.budgets); r.rated {
				for _, l := range r.rate.more {
					r.widen(l.what, l.instead, r.alts)
				}
			}
			r.carryLimit()
			r.carryFilled(fl.out.fills)
		}
	}
}

// foldLimit makes plain what the limit of rule n of the chain does: a chain that it leads to may
// drop all, or nothing that it keeps from packets may decide.
func (fl *flattener) foldLimit(c *chain, n int) {
	r := c.rules[n]
	if r.limit == noLimit || len(r.unknown) > 0 {
		return
	}
	if r.verb == doReturn && idle(c.rules[n+1:]) ||
		(r.verb == doJump || r.verb == doGoto && idle(c.rules[n+1:])) && idle(r.target.rules) {
		r.limit = noLimit
		return
	}
	if r.limit != above {
		return
	}
	if (r.verb == doJump || r.verb == doGoto) && r.target.dropsAll() {
		for _, in := range r.target.rules { // they are in the limit
			fl.list(in)
			fl.used[in] = true
			fl.tell(in)
		}
		r.verb, r.target.met = doDrop, true
	}
	if r.verb == doDrop && r.seen != nil {
		r.rate = r.seen.rate(c, n)
	}
}

// idle tells whether the rule decides nothing.
func (r *chainRule) idle() bool {
	return r.verb == doNothing && len(r.unknown) == 0 || r.verb.watches()
}

// idle tells whether a packet that comes to these rules leaves them as at their end.
func idle(rules []*chainRule) bool {
	return !slices.ContainsFunc(rules, func(r *chainRule) bool {
		return !r.idle() && (r.verb != doReturn || len(r.unknown) > 0)
	})
}

// dropsAll tells whether the chain drops each packet that comes to it.
func (c *chain) dropsAll() bool {
	for _, r := range c.rules {
		if !r.idle() {
			return r.verb == doDrop && len(r.unknown) == 0 && r.limit == noLimit &&
				len(r.filled) == 0 && r.states == nil && len(r.alts) == 1 &&
				r.alts[0].equal(&match{})
		}
	}
	return false
}

// count counts what became of the rules.
func (fl *flattener) count() {
	for _, r := range fl.order {
		f := &fl.out.rep.Fates
		changed, widened := false, false
		for _, m := range r.remarks {
			changed = changed || m.Kind == Changed
			widened = widened || m.Widens
		}
		switch {
		case r.implied: // no rule of the source
			f.States = f.States || widened && fl.told[r]
			continue
		case r.verb == doNothing && len(r.unknown) == 0 && !r.absent:
			continue // decides nothing
		case r.verb == doLog:
			continue
		}
		f.Given++
		switch {
		case r.loopback:
			f.Loopback++
			continue
		case r.absent:
			f.Elsewhere++
			continue
		case fl.gone[r]:
			f.LeftOut++
			widened = r.widens
		case changed:
			f.Changed++
		default:
			f.Same++
		}
		if widened {
			f.Widened++
		}
	}
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
	left := c // what no chain behind it has seen yet: the next one hands it on itself
	for j := i + 1; j < len(fl.bases); j++ {
		m := left.and(&fl.bases[j].family)
		if m.never {
			continue
		}
		fl.base(j, m, top && r == nil && m.equal(&fl.bases[j].family))
		if m.equal(&left) {
			return
		}
		left = left.unseen(fl.bases[j])
	}
	if r != nil {
		fl.out.rule("pass", &c, r.label, r.named)
	} else {
		fl.closing(i, c, top)
	}
}

// unseen is m without the frames that base chain b sees.
func (m match) unseen(b *chain) match {
	if b.family.f[fEther] == nil {
		m.never = true
		return m
	}
	others := match{}.with(fEther, b.family.f[fEther].not(0xffff))
	return m.and(&others)
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
	fl.out.rule(action, &c, b.name+" policy", true)
}

// walk writes what chain ch, from rule at on, does with the packets of c. It returns true when it
// decides all of them.
func (fl *flattener) walk(ch *chain, at int, c match, up *frame, base int) bool {
	ch.met = true
	returned := false // some packets of the chain are not in c any more, and are not decided
	var skip []match  // of these no packet is left, though they are in c
	for n := at; n < len(ch.rules); n++ {
		r := ch.rules[n]
		if !fl.spend(r) {
			return true
		}
		fl.list(r)
		if r.verb == doNothing || len(r.unknown) > 0 {
			fl.leaveOut(r, ch, n, &c, base)
			continue
		}
		fl.tell(r)
		fl.passes(&c, r.passes)
		first, last := r.covering(&c)
		for i := first; i < last; i++ {
			if i > first && !fl.spend(r) {
				return true
			}
			if !c.compatible(&r.alts[i]) {
				fl.clash(r, &c)
				continue
			}
			m := c.and(&r.alts[i])
			if m.never || slices.ContainsFunc(skip, m.within) {
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
			fl.beside(r)
			if r.logs != "" && (r.verb == doLog || r.limit == noLimit) {
				fl.out.log(r, m)
			}
			if r.rated {
				fl.out.limit(r, m)
				if r.verb == doDrop { // what is below goes on
					continue
				}
			}
			if r.verb == doReturn {
				if m.equal(&c) { // as the end of the chain does
					if r.rated { // the drop behind it is in the limit
						return false
					}
					fl.tellEnd(r, &r.alts[i], ch, n)
					return false
				}
				if rest, ok := c.butNot(&m); ok {
					c, returned = rest, true
					continue
				}
				if ch.allOrNone(n+1, &c, &m) {
					skip, returned = append(skip, m), true
					continue
				}
			}
			if fl.apply(r, ch, n, m, up, base) && m.equal(&c) {
				fl.tellEnd(r, &r.alts[i], ch, n)
				return !returned
			}
		}
	}
	return false
}

// covering is the alternative that holds for all packets of c alone, or all alternatives.
func (r *chainRule) covering(c *match) (first, last int) {
	for i := range r.alts {
		if c.compatible(&r.alts[i]) && c.within(r.alts[i]) {
			return i, i + 1
		}
	}
	return 0, len(r.alts)
}

// allOrNone tells whether each rule from n on is, of the packets of c, about packets of m only or
// about none of them: then what returns with m needs no copy of what follows the chain, as rules
// about m are left away. It looks at a few rules.
func (ch *chain) allOrNone(n int, c, m *match) bool {
	if len(ch.rules)-n > 32 {
		return false
	}
	for _, r := range ch.rules[n:] {
		for i := range r.alts {
			if !c.compatible(&r.alts[i]) {
				return false
			}
			x := c.and(&r.alts[i])
			if both := x.and(m); !both.never && !x.within(*m) {
				return false
			}
		}
	}
	return true
}

// apply does what r says with the packets of m, and tells whether they are all decided.
func (fl *flattener) apply(r *chainRule, ch *chain, n int, m match, up *frame, base int) bool {
	switch r.verb {
	case doLog: // it is written
		return false
	case doCount:
		fl.out.rule("count", &m, r.label, r.named)
		return false
	case doAccept:
		if r.cookie {
			fl.out.cookie(r, m)
		}
		fl.accept(base, m, r, false)
		return true
	case doDrop:
		fl.out.rule("drop", &m, r.label, r.named)
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
