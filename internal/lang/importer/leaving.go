package importer

import (
	"fmt"
	"slices"

	"levee/internal/quantity"
)

// This file has the other side of an import: chains about what the machine sends become rules of
// `out`. They are read and written as those about what arrives are, by an output of their own,
// which is kept only if it cuts nothing that the source lets leave: a rule that passes and has no
// word leaves the side out as a whole.

// outside is the output for what leaves, of the same policy.
func (o *output) outside() *output {
	side := newOutput(o.names, o.tool, Rulesets{Device: o.device, Stateless: o.stateless})
	side.leaves, side.labels, side.taken = true, o.labels, o.taken
	side.logs, side.limits = o.logs, o.limits
	return side
}

// leavingChains reads the base chains for what leaves, for an output. why says why they are not
// carried over, whatever their rules are; "" if they may be.
type leavingChains func(*output) (bases []*chain, why string, err error)

// takeSide writes the chains for what leaves, or notes why it does not, and counts their rules.
func (o *output) takeSide(given int, leaving leavingChains) error {
	side := o.outside()
	bases, why, err := leaving(side)
	if o.sideWhy = why; err != nil || len(bases) == 0 {
		return o.unlessLeftOut(err)
	}
	if why == "" && slices.ContainsFunc(bases, func(c *chain) bool {
		return c.drop && len(c.rules) == 0
	}) {
		o.sideWhy = "it has no rule, so that nothing would leave: it may be a part of a file"
		return nil
	}
	fl := &flattener{bases: bases, given: given, out: side}
	if err := fl.run(); err != nil {
		return o.unlessLeftOut(err)
	}
	drops := slices.ContainsFunc(bases, func(c *chain) bool { return c.drop }) ||
		slices.ContainsFunc(side.pending, func(s statement) bool {
			return s.action == "drop" || s.action == "limit"
		})
	cuts := drops
	for _, r := range fl.order {
		if !fl.gone[r] || r.verb.watches() || r.verb == doAccept && !drops ||
			r.verb == doDrop && drops {
			continue
		}
		if cuts = true; o.sideWhy == "" {
			o.sideWhy = "a rule of it, " + quote(r.text) + ", " + reasons(r)
		}
	}
	switch {
	case !cuts:
		return nil
	case o.sideWhy != "":
		o.rep.Leaving = fl.leftOut()
		return nil
	}
	o.side = side
	o.rep.Leaving = side.rep.Fates
	for _, m := range side.rep.Remarks {
		m.Widens = false // which is of what arrives
		o.rep.add(m)
	}
	return nil
}

// unlessLeftOut is an error of reading what leaves, nil where that is left out in any case.
func (o *output) unlessLeftOut(err error) error {
	if o.sideWhy != "" {
		return nil
	}
	return err
}

// leftOut is what became of rules for what leaves of which none is carried over. Where a chain
// drops by its policy, each of them stands for what may leave and did not.
func (fl *flattener) leftOut() Fates {
	f := fl.out.rep.Fates
	out := Fates{Given: f.Given, Elsewhere: f.Elsewhere, Loopback: f.Loopback,
		LeftOut: f.Given - f.Elsewhere - f.Loopback}
	if slices.ContainsFunc(fl.bases, func(c *chain) bool { return c.drop }) {
		out.Widened = out.LeftOut
		return out
	}
	for _, r := range fl.order {
		if r.verb == doDrop && !r.absent && !r.loopback {
			out.Widened++
		}
	}
	return out
}

// addSide puts the rules for what leaves behind the others.
func (o *output) addSide() {
	last := o.side.endingOut()
	o.side.flush()
	o.body.Write(o.side.body.Bytes())
	o.body.WriteString(last)
	o.sets = append(o.sets, o.side.sets...)
	o.rules += o.side.rules
}

// reasons are what a policy has no words for in a rule.
func reasons(r *chainRule) string {
	if len(r.unknown) == 0 {
		return "has no word"
	}
	return r.unknown[0].what
}

// endingOut is the default of what leaves, or closing rules where the chains see a part of it.
func (o *output) endingOut() string {
	if len(o.closed) > 0 && slices.Equal(o.sees, bothIP) &&
		!slices.ContainsFunc(o.closed, func(c *chain) bool { return !c.drop }) {
		return "out default drop\n"
	}
	for _, c := range o.closed {
		if m := c.family; c.drop {
			o.rule("drop", &m, c.name+" policy", true)
		}
	}
	return ""
}

// carryLeaving is carryStates for a rule about what leaves, of which a policy knows no states. They
// are told by headers, so that nothing is cut: of TCP the SYN is new and the rest known, of UDP and
// of protocols without connections any packet may be either.
func (r *chainRule) carryLeaving(written *int) {
	if r.states == nil || r.verb == doNothing {
		return
	}
	s := newStateSet(r.states)
	var alts []match
	switch {
	case r.verb == doAccept && s.fresh && s.is:
		r.widen(bothText, "", r.alts)
		return
	case r.verb == doAccept:
		alts = s.mayLeave()
	case r.verb == doDrop:
		alts = s.mustLeave()
	}
	if alts == nil {
		r.unknown = append(r.unknown, reason{"asks for a connection state, which `out` does " +
			"not know", ""})
		return
	}
	out, err := narrow(r.alts, settled(alts), written)
	if err != nil {
		r.unknown = append(r.unknown, reason{err.Error(), "split the rule"})
		return
	}
	r.widen(leavesText, "", r.alts)
	r.alts = out
}

const leavesText = "`out` knows no states: of TCP the SYN is a new connection and all else a " +
	"known one, UDP passes as either, and no rule drops it for its state"

// mayLeave are the packets that leave and may have one of the states.
func (s stateSet) mayLeave() (out []match) {
	if s.fresh {
		out = append(out, tcpSyn, match{}.with(fICMP, requests), match{}.with(fICMP6, requests6))
	}
	if s.is {
		out = append(append(out, tcpGoesOn()...), match{}.with(fICMP, requests.not(0xffff)),
			match{}.with(fICMP6, requests6.not(0xffff)))
	} else if s.related {
		out = append(out, match{}.with(fICMP, icmpErrors), match{}.with(fICMP6, errors6))
	}
	if s.fresh || s.is {
		out = append(out, udpOnly, match{}.with(fProto, noTracked.not(255)))
	}
	if s.invalid {
		out = append(out, tcpNever()...)
	}
	if s.untracked {
		out = append(out, match{}.with(fICMP6, untracked))
	}
	return out
}

// mustLeave are the packets that leave and cannot have another state than these; nil for none.
func (s stateSet) mustLeave() (out []match) {
	if s.fresh {
		out = append(out, tcpSyn, match{}.with(fICMP, requests), match{}.with(fICMP6, requests6))
	}
	if s.invalid {
		out = append(out, tcpNever()...)
	}
	return out
}

const forwardsToo = "it is about what this machine sends itself, and the machine forwards too, " +
	"which rules of `out` judge alike"

// leaving are the chains OUTPUT of the table filter, read once more as rules for what leaves.
func (t *ipTables) leaving(side *output) ([]*chain, string, error) {
	out := &ipTables{opts: t.opts, out: side, sets: t.sets, recent: map[string][]*chainRule{},
		leaves: true}
	out.opts.Chains = []string{"filter/OUTPUT"}
	why := ""
	for _, tab := range t.tables {
		if tab.forwards() {
			why = forwardsToo
		}
		if tab.name == "filter" && tab.byName["OUTPUT"] != nil {
			out.tables = append(out.tables, tab.again())
		}
	}
	var bases []*chain
	for _, tab := range out.tables {
		bases = append(bases, tab.byName["OUTPUT"])
	}
	return bases, why, out.parseRules()
}

// forwards tells whether the table is about packets that the machine forwards.
func (t *ipTable) forwards() bool {
	name := map[string]string{"filter": "FORWARD", "nat": "POSTROUTING"}[t.name]
	return t.byName[name] != nil && len(t.byName[name].rules) > 0
}

// again is the table before its rules were understood.
func (t *ipTable) again() *ipTable {
	out := *t
	out.chains, out.byName, out.lines = nil, map[string]*chain{}, nil
	of := map[*chain]*chain{}
	for name, c := range t.byName {
		fresh := *c
		fresh.rules, fresh.met = nil, false
		of[c], out.byName[name] = &fresh, &fresh
	}
	for _, c := range t.chains {
		out.chains = append(out.chains, of[c])
	}
	for _, l := range t.lines {
		l.chain = of[l.chain]
		out.lines = append(out.lines, l)
	}
	return &out
}

// leaves tells whether the chain judges what the machine sends.
func (c *nftChain) leaves() bool {
	return c.base && c.kind == "filter" && c.hook == "output" && !c.table.dormant &&
		c.table.family != "bridge" && c.table.family != "arp"
}

// leaving are the filter chains at the hook output, read once more as rules for what leaves.
func (n *nftables) leaving(side *output) ([]*chain, string, error) {
	out := *n
	out.out, out.leaves, out.chains = side, true, nil
	out.opts.Chains = []string{"output"}
	why, tables := "", map[*nftTable]*nftTable{}
	var picked []*nftChain
	for _, c := range n.chains {
		if c.base && len(c.raw) > 0 && (c.hook == "forward" && c.kind == "filter" ||
			c.hook == "postrouting" && c.kind == "nat") {
			why = forwardsToo
		}
		t := tables[c.table]
		if t == nil {
			fresh := *c.table
			fresh.chains = map[string]*nftChain{}
			t, tables[c.table] = &fresh, &fresh
		}
		fresh := *c
		fresh.rules, fresh.met, fresh.table = nil, false, t
		for name, known := range c.table.chains {
			if known == c {
				t.chains[name] = &fresh
			}
		}
		out.chains = append(out.chains, &fresh)
		if c.leaves() {
			picked = append(picked, &fresh)
		}
	}
	if len(picked) == 0 {
		return nil, why, nil
	}
	out.parseRules()
	slices.SortStableFunc(picked, func(a, b *nftChain) int { return a.prio - b.prio })
	var bases []*chain
	for _, c := range picked {
		bases = append(bases, &c.chain)
	}
	return bases, why, nil
}

// pfLeaving is a rule of pf that is about what leaves, too.
type pfLeaving struct {
	at    origin
	s     pfStatement
	under match
	only  bool // about what leaves alone
}

// leaving are the rules of pf for what leaves, as far as they need no states: those that block at
// once, in front of all that pass, and say whereto, as answers go to who was let in. What no rule
// matches passes.
func (p *pf) leaving(side *output) ([]*chain, string, error) {
	if p.skips {
		return nil, "", nil
	}
	out := *p
	out.out, out.leaves, out.first, out.last, out.outs, out.own = side, true, nil, nil, nil, nil
	var rules []*chainRule
	for _, l := range p.outs {
		n := len(out.first)
		if out.rule(l.at, l.s, l.under); n == len(out.first) {
			continue
		}
		r := out.first[n]
		if r.verb != doDrop {
			break
		}
		if p.states && slices.ContainsFunc(r.alts, func(m match) bool {
			return m.to.pos == nil && m.f[fPort] == nil
		}) {
			continue
		}
		if rules = append(rules, r); l.only {
			p.carried++
		}
	}
	if out.tellOwn(); len(rules) == 0 {
		return nil, "", nil
	}
	return []*chain{{name: "pf", base: true, family: match{}.with(fEther, bothIP),
		origin: origin{file: p.reader.name}, rules: rules}}, "", nil
}

// aboutSide says what became of a chain for what leaves that stands in no rule.
func (o *output) aboutSide(c *chain) {
	what := fmt.Sprintf("chain %s (%s) is not imported: ", c.name,
		quantity.Plural(len(c.rules), "rule"))
	switch {
	case o.sideWhy == "":
		o.rep.add(c.remark(Noticed, what+"it drops nothing that leaves", ""))
	default:
		o.rep.add(c.remark(LeftOut, what+o.sideWhy, leavesHint))
	}
}
