package importer

import (
	"fmt"
	"slices"

	"levee/internal/lang/importer/match"
)

// frame is the place at which a packet goes on when a chain has ended: the rule behind the jump.
type frame struct {
	chain *Chain
	next  int
	up    *frame
	depth int
}

// entry is the beginning of the statements of a base chain.
type entry struct {
	chain *Chain
	of    match.Match // the packets that come to it here
	at    int
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
	bases   []*Chain
	out     *Output
	given   int // rules of the input
	steps   int
	written int // ranges of addresses in lists of rules
	copies  int // resumes that are being written
	entries []entry

	order  []*ChainRule        // rules that were looked at, in this order
	listed map[*ChainRule]bool // those of order
	told   map[*ChainRule]bool // their remarks are written
	waits  map[*ChainRule]bool // one of later is about them
	used   map[*ChainRule]bool // a packet can match them
	ended  map[*ChainRule]bool // tellEnd was called
	gone   map[*ChainRule]bool // left out
	later  []func()            // what is said if the rule's own place is never reached
	left   []leftOut
	lost   map[*ChainRule][]lostAt
	// for which packets rules would ask for two dynamic sets at once
	clashes map[*ChainRule][]lostAt
	looks   int // statements that droppedBehind looked at
	err     error
}

// spend counts a rule that is looked at for r, and tells whether there is room for another.
func (fl *flattener) spend(r *ChainRule) bool {
	if fl.err != nil {
		return false
	}
	most := min(MaxRules, growthMin+growth*fl.given)
	if fl.steps++; fl.steps > 8*most || len(fl.out.pending) > most {
		fl.err = fmt.Errorf("%s:%d: with chains copied into one another the policy would have "+
			"more than %d rules; import fewer chains (--chain), or take returns out of chains "+
			"that are jumped to often", r.File, r.Line, most)
	}
	return fl.err == nil
}

// run writes everything. Each base chain starts with the frames that no chain before it sees; the
// others reach it from there.
func (fl *flattener) run() error {
	for _, m := range []*map[*ChainRule]bool{&fl.listed, &fl.told, &fl.waits, &fl.used, &fl.ended,
		&fl.gone} {
		*m = make(map[*ChainRule]bool)
	}
	fl.lost, fl.clashes = map[*ChainRule][]lostAt{}, map[*ChainRule][]lostAt{}
	fl.prepare()
	seen := match.Spans{}
	for i, b := range fl.bases {
		sees := b.Family.Fields[match.Ether]
		if sees == nil {
			sees = match.Between(0, 0xffff)
		}
		c := b.Family
		if fresh := sees.And(seen.Not(0xffff)); len(fresh) == 0 {
			continue
		} else if len(seen) > 0 {
			c = c.With(match.Ether, fresh)
		}
		seen = match.JoinSpans(append(seen, sees...))
		fl.base(i, c, true)
	}
	fl.out.sees = seen
	for _, tell := range fl.later {
		tell()
	}
	fl.settle()
	fl.takeCovered()
	fl.settleLeft()
	fl.settleClashes()
	fl.readNat(fl.out.Nats)
	fl.takeSent()
	fl.endWithDefault()
	fl.tellUnused()
	fl.count()
	return fl.err
}

// prepare makes of states and limits what a policy has words for, in all rules that can be reached.
func (fl *flattener) prepare() {
	order := Reached(fl.bases...)
	for _, c := range order {
		for _, r := range c.Rules {
			if fl.out.leaves {
				r.carryLeaving(&fl.out.Written, fl.out.stateless)
			} else {
				r.carryStates(&fl.out.Written, fl.out.stateless)
			}
		}
	}
	for _, c := range order {
		for n, r := range c.Rules {
			fl.foldLimit(c, n)
			if r.rated = r.carriesRate(c, n, fl.out.budgets); r.rated {
				for _, l := range r.Rate.More {
					r.Widen(l.What, l.Instead, r.Alts)
				}
			}
			r.carryLimit()
			r.carryFilled(fl.out.Fills)
		}
	}
}

// foldLimit makes plain what the limit of rule n of the chain does: a chain that it leads to may
// drop all, or nothing that it keeps from packets may decide, or what is above it is dropped too.
func (fl *flattener) foldLimit(c *Chain, n int) {
	r := c.Rules[n]
	if r.Limit == NoLimit || len(r.Unknown) > 0 {
		return
	}
	all := r.Limit == UpTo && r.Verb.leads() && len(r.Alts) == 1 && r.Target.dropsAll() &&
		dropsNext(c, n+1, &r.Alts[0]) // what is above it, too
	if all || r.Verb == DoReturn && idle(c.Rules[n+1:]) ||
		(r.Verb == DoJump || r.Verb == DoGoto && idle(c.Rules[n+1:])) && idle(r.Target.Rules) {
		r.Limit, r.Rate = NoLimit, nil
		return
	}
	if r.Limit != Above {
		return
	}
	if (r.Verb == DoJump || r.Verb == DoGoto) && r.Target.dropsAll() {
		fl.inLimit(r.Target.Rules, &match.Match{})
		r.Verb, r.Target.Met = DoDrop, true
	}
	if r.Verb == DoDrop && r.Seen != nil {
		r.Rate = r.Seen.rate(c, n)
	}
}

// inLimit notes rules that drop what of m is above a limit before them.
func (fl *flattener) inLimit(rules []*ChainRule, m *match.Match) {
	for _, r := range rules {
		fl.list(r)
		fl.used[r] = true
		fl.tell(r)
		switch {
		case r.Verb == DoJump, r.Verb == DoGoto:
			r.Target.Met = true
			fl.inLimit(r.Target.Rules, &match.Match{})
			return
		case r.isDrop() && m.Compatible(&r.Alts[0]) && m.Within(r.Alts[0]):
			return
		}
	}
}

// count counts what became of the rules.
func (fl *flattener) count() {
	for _, r := range fl.order {
		f := &fl.out.Report.Fates
		changed, widened := false, false
		for _, m := range r.Remarks {
			changed = changed || m.Kind == Changed && fl.told[r] // else nothing comes there
			widened = widened || m.Widens && fl.told[r]
		}
		switch {
		case r.Implied: // no rule of the source
			f.States = f.States || widened && fl.told[r]
			continue
		case r.Verb == DoNothing && len(r.Unknown) == 0 && !r.Absent:
			continue // decides nothing
		case r.Verb == doLog:
			continue
		}
		f.Given++
		switch {
		case r.loopback:
			f.Loopback++
			continue
		case r.Absent:
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
func (fl *flattener) base(i int, c match.Match, top bool) {
	b := fl.bases[i]
	if c = c.And(&b.Family); c.Never {
		return
	}
	fl.entries = append(fl.entries, entry{b, c, len(fl.out.pending)})
	if fl.walk(b, 0, c, nil, i) {
		return
	}
	if b.Drop || !fl.goesOn(i, c) {
		fl.closing(i, c, top)
		return
	}
	fl.accept(i, c, nil, top)
}

// goesOn tells whether another base chain sees what chain i accepts.
func (fl *flattener) goesOn(i int, c match.Match) bool {
	for j := i + 1; j < len(fl.bases); j++ {
		if m := c.And(&fl.bases[j].Family); !m.Never {
			return true
		}
	}
	return false
}

// accept hands on packets that base chain i accepts by rule r (nil: by its policy): to the later
// base chains, and at last to the policy.
func (fl *flattener) accept(i int, c match.Match, r *ChainRule, top bool) {
	left := c // what no chain behind it has seen yet: the next one hands it on itself
	for j := i + 1; j < len(fl.bases); j++ {
		m := left.And(&fl.bases[j].Family)
		if m.Never {
			continue
		}
		fl.base(j, m, top && r == nil && m.Equal(&fl.bases[j].Family))
		if m.Equal(&left) {
			return
		}
		left = unseen(left, fl.bases[j])
	}
	if r != nil {
		fl.out.rule("pass", &c, r.Label, r.Named)
	} else {
		fl.closing(i, c, top)
	}
}

// closing is the policy of base chain i for the packets of c.
func (fl *flattener) closing(i int, c match.Match, top bool) {
	b := fl.bases[i]
	if top && c.Equal(&b.Family) {
		fl.out.close(b)
		return
	}
	action := "pass"
	if b.Drop {
		action = "drop"
	}
	fl.out.rule(action, &c, b.Name+" policy", true)
}

// walk writes what chain ch, from rule at on, does with the packets of c. It returns true when it
// decides all of them.
func (fl *flattener) walk(ch *Chain, at int, c match.Match, up *frame, base int) bool {
	ch.Met = true
	returned := false      // some packets of the chain are not in c any more, and are not decided
	var skip []match.Match // of these no packet is left, though they are in c
	for n := at; n < len(ch.Rules); n++ {
		r := ch.Rules[n]
		if !fl.spend(r) {
			return true
		}
		fl.list(r)
		if r.Verb == DoNothing || len(r.Unknown) > 0 {
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
			if !c.Compatible(&r.Alts[i]) {
				if !c.ToGroup() || r.Alts[i].To.In != match.Self {
					fl.clash(r, &c)
				}
				continue
			}
			m := c.And(&r.Alts[i])
			jumps := r.Verb == DoJump || r.Verb == DoGoto
			if m.Never || slices.ContainsFunc(skip, m.Within) || !jumps && fl.out.isDecided(&m) {
				continue
			}
			if fl.written += m.Weight(); fl.written > match.MaxWritten {
				fl.err = fmt.Errorf("%s:%d: rules that ask for large sets and other addresses at "+
					"once would need more than %d addresses in lists; leave the other condition "+
					"out, or split the set", r.File, r.Line, match.MaxWritten)
				return true
			}
			if m.Terms() > match.MaxTerms {
				fl.err = fmt.Errorf("%s:%d: with the conditions of the jumps that lead here the "+
					"rule asks for more than %d things, more than a policy's rule can; import "+
					"fewer chains (--chain), or split the rule", r.File, r.Line, match.MaxTerms)
				return true
			}
			fl.beside(r)
			if r.Logs != "" && (r.Verb == doLog || r.Limit == NoLimit) {
				fl.out.log(r, m)
			}
			if r.rated {
				all := &c
				if len(skip) > 0 {
					all = nil
				}
				fl.out.limit(r, m, all)
				if r.Verb == DoDrop { // what is below goes on
					continue
				}
			}
			if r.Verb == DoReturn {
				if m.Equal(&c) { // as the end of the chain does
					if r.rated { // the drop behind it is in the limit
						fl.inLimit(ch.Rules[n+1:], &m)
						return false
					}
					fl.tellEnd(r, &r.Alts[i], ch, n)
					return false
				}
				if rest, ok := c.ButNot(&m); ok {
					c, returned = rest, true
					continue
				}
				if ch.allOrNone(n+1, &c, &m) {
					skip, returned = append(skip, m), true
					continue
				}
			}
			if fl.apply(r, ch, n, m, up, base) && m.Equal(&c) &&
				r.Limit != UpTo { // what is above goes on
				fl.tellEnd(r, &r.Alts[i], ch, n)
				return !returned
			}
		}
	}
	return false
}

// apply does what r says with the packets of m, and tells whether they are all decided.
func (fl *flattener) apply(r *ChainRule, ch *Chain, n int, m match.Match, up *frame,
	base int) bool {
	switch r.Verb {
	case doLog: // it is written
		return false
	case DoCount:
		fl.out.rule("count", &m, r.Label, r.Named)
		return false
	case DoAccept:
		if r.Cookie {
			fl.out.cookie(r, m)
		}
		fl.accept(base, m, r, false)
		return true
	case DoDrop:
		fl.out.rule("drop", &m, r.Label, r.Named)
		return true
	case DoReturn:
		fl.resume(up, m, base)
		return true
	}
	depth := 1
	if up != nil {
		depth = up.depth + 1
	}
	if depth > maxDepth || onPath(r.Target, ch, up) {
		fl.err = fmt.Errorf("%s:%d: chain %s is jumped to from itself, or chains are nested "+
			"deeper than %d: no kernel loads this", r.File, r.Line, r.Target.Name, maxDepth)
		return true
	}
	if r.Verb == DoJump {
		return fl.walk(r.Target, 0, m, &frame{ch, n + 1, up, depth}, base)
	}
	if !fl.walk(r.Target, 0, m, &frame{ch, len(ch.Rules), up, depth}, base) {
		fl.resume(up, m, base)
	}
	return true
}

// onPath tells whether chain t is being walked already.
func onPath(t, ch *Chain, up *frame) bool {
	for ; up != nil && t != ch; up = up.up {
		ch = up.chain
	}
	return t == ch
}

// resume does with the packets of m what stands behind the jump that led here.
func (fl *flattener) resume(up *frame, m match.Match, base int) {
	if up == nil {
		b := fl.bases[base]
		if b.Drop || !fl.goesOn(base, m) {
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
