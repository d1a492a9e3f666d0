package ir

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// reach keeps, by slot, what the passes learned about each rule in all classes together.
type reach struct {
	p        *policy.Policy
	canMatch []bool // in some class, covered or not
	isAlive  []bool // in some class, after it
	idle     []bool // in the present list: covered, and kept
	// slots of the rules that cover it, in the classes where it is covered
	coverers [][]int
	endedBy  [NumClasses]int    // slot of the rule that decides all that is left, by class
	at       map[policy.Pos]int // how many rules a place has, as that of a profile has several
	work     *work
}

func newReach(p *policy.Policy) *reach {
	n := p.DefaultSlot() + 1
	t := &reach{p: p, canMatch: make([]bool, n), isAlive: make([]bool, n), idle: make([]bool, n),
		coverers: make([][]int, n), at: map[policy.Pos]int{}, work: newWork(p)}
	for _, rules := range [][]*policy.Rule{p.Protect, p.Rules} {
		for _, r := range rules {
			t.at[r.Pos]++
		}
	}
	return t
}

func (t *reach) matchable(rules []Rule) {
	for i := range rules {
		t.canMatch[rules[i].Slot] = true
	}
}

// alive notes which rules of a list some packet makes do something. No fragment does that to a
// cookie.
func (t *reach) alive(l *list) {
	whole := slices.ContainsFunc(l.classes, func(c Class) bool { return !c.Fragment })
	for i := range l.rules {
		slot := l.rules[i].Slot
		if !t.idle[slot] && (whole || !l.rules[i].Action.Has(action.Cookie)) {
			t.isAlive[slot] = true
		}
		t.idle[slot] = false
	}
}

func (t *reach) ended(classes []Class, by int) {
	for _, c := range classes {
		t.endedBy[c.Index()] = by
	}
}

func (t *reach) covered(slot, by int) {
	if !slices.Contains(t.coverers[slot], by) {
		t.coverers[slot] = append(t.coverers[slot], by)
	}
}

// findings warns of rules that can never match, of a default that nothing reaches, and of what
// fragments do to rules with ports.
func (t *reach) findings() []Finding {
	var out []Finding
	check := func(r *policy.Rule, slot int) {
		if r.Malformed || t.isAlive[slot] || slices.ContainsFunc(r.Match, asksNothing) {
			return
		}
		out = append(out, t.explain(r, slot))
	}
	for i, r := range t.p.Protect {
		check(r, t.p.ProtectSlot(i))
	}
	for i, r := range t.p.Rules {
		check(r, t.p.RuleSlot(i))
	}
	out = append(out, t.deadMalformed()...)
	out = append(out, fragments(t.p)...)
	out = append(out, alone(t.p, out)...)
	out = append(out, listeners(t.p)...)
	out = append(out, messages(t.p)...)
	return append(out, t.unreached()...)
}

// asksNothing tells whether a term is about a set that is empty on purpose.
func asksNothing(t policy.Term) bool { return t.Set != nil && t.Set.EmptyOnPurpose() }

func (t *reach) explain(r *policy.Rule, slot int) Finding {
	f := Finding{Pos: r.Pos, Hint: "move it up, or remove it"}
	never := "this rule can never match"
	if t.at[r.Pos] > 1 {
		never = fmt.Sprintf("its rule %q can never match", r.Label)
		f.Hint = "move it up, unless that is meant"
	}
	by := t.coverers[slot]
	switch {
	case len(by) > 0:
		first := t.rule(by[0])
		switch {
		case first == nil:
			f.Message = never + ": what it matches has been decided before"
		case len(by) == 1 && sameMatch(first, r, t.work):
			f.Message = fmt.Sprintf("%s: %s matches the same packets and decides first", never,
				t.place(first))
		case len(by) == 1:
			f.Message = fmt.Sprintf("%s: line %d decides all its packets first (%s)", never,
				first.Pos.Line, first.Text)
		default:
			f.Message = fmt.Sprintf("%s: %s decide all its packets first", never, t.lines(by))
		}
	case t.canMatch[slot]:
		f.Message, f.Hint = never, ""
	default:
		if by := t.unconditional(r); by != nil {
			f.Message = fmt.Sprintf("%s: line %d decides every packet before it (%s)", never,
				by.Pos.Line, by.Text)
		} else {
			f.Message = never + ": no packet has all of this"
			f.Hint = "its terms exclude one another, or a set in it is empty"
		}
	}
	return f
}

// place returns the line of a rule, with its label where others stand there, too.
func (t *reach) place(r *policy.Rule) string {
	if t.at[r.Pos] > 1 {
		return fmt.Sprintf("line %d (%q)", r.Pos.Line, r.Label)
	}
	return fmt.Sprintf("line %d", r.Pos.Line)
}

// unconditional finds the first rule without a question that ended a list before r, which could
// have matched there; nil if there is no packet for r.
func (t *reach) unconditional(r *policy.Rule) *policy.Rule {
	all := newAcross(r.Match, t.work)
	first := t.p.DefaultSlot()
	for _, c := range Classes() {
		if all.in(c).possible {
			first = min(first, t.endedBy[c.Index()])
		}
	}
	return t.rule(first)
}

func (t *reach) rule(slot int) *policy.Rule { return ruleAt(t.p, slot) }

// ruleAt returns the rule of a slot, nil for a built-in one.
func ruleAt(p *policy.Policy, slot int) *policy.Rule {
	i := slot - p.ProtectSlot(0)
	if i >= 0 && i < len(p.Protect) {
		return p.Protect[i]
	}
	i -= len(p.Protect)
	if i >= 0 && i < len(p.Rules) {
		return p.Rules[i]
	}
	return nil
}

// unreached warns of a default that no packet comes to, as rules decide all packets of each class.
func (t *reach) unreached() []Finding {
	if t.p.Default.Pos.Line == 0 { // nobody has written it
		return nil
	}
	var by []int
	for _, slot := range t.endedBy {
		if slot == t.p.DefaultSlot() {
			return nil
		}
		if !slices.Contains(by, slot) {
			by = append(by, slot)
		}
	}
	slices.Sort(by)
	last := t.rule(by[len(by)-1])
	if len(by) > 1 && !t.takesAll(last) {
		return []Finding{{t.p.Default.Pos,
			fmt.Sprintf("the default can never be reached: %s decide every packet before it",
				t.lines(by)),
			"let one of them decide less, or remove those that decide as the default does"}}
	}
	return []Finding{{t.p.Default.Pos,
		fmt.Sprintf("the default can never be reached: line %d decides every packet before it (%s)",
			last.Pos.Line, last.Text),
		"say in the rule which packets it is for, or remove it and let the default decide the " +
			"rest"}}
}

// takesAll says whether a rule matches every packet.
func (t *reach) takesAll(r *policy.Rule) bool {
	all := newAcross(r.Match, t.work)
	return !slices.ContainsFunc(Classes(), func(c Class) bool {
		asks := all.in(c)
		return !asks.possible || len(asks.conds) > 0
	})
}

func (t *reach) lines(slots []int) string {
	s := ""
	for i, slot := range slots {
		switch {
		case i > 0 && i == len(slots)-1:
			s += " and "
		case i > 0:
			s += ", "
		}
		if r := t.rule(slot); r != nil {
			s += t.place(r)
		} else {
			s += "a built-in rule"
		}
	}
	return s
}

// sameMatch compares two rules by what they ask in every class.
func sameMatch(a, b *policy.Rule, w *work) bool {
	allA, allB := newAcross(a.Match, w), newAcross(b.Match, w)
	for _, c := range Classes() {
		inA, inB := allA.in(c), allB.in(c)
		ra, rb := Rule{Conds: inA.conds}, Rule{Conds: inB.conds}
		steps := 0 // which nothing bounds here
		if inA.possible != inB.possible || inA.possible &&
			!(covers(&ra, &rb, &steps) && covers(&rb, &ra, &steps)) {
			return false
		}
	}
	return true
}

// deadMalformed finds `malformed` rules behind the one that decides.
func (t *reach) deadMalformed() []Finding {
	var out []Finding
	var decided *policy.Rule
	for _, r := range t.p.Rules {
		if !r.Malformed {
			continue
		}
		if decided != nil {
			out = append(out, Finding{r.Pos,
				fmt.Sprintf("this rule can never match: line %d decides every malformed frame "+
					"first", decided.Pos.Line), "remove it"})
		} else if r.Action.Decides() {
			decided = r
		}
	}
	return out
}

// fragments warns once of rules with ports, or that ask for connections, in a policy that says
// nothing about fragments: a non-first fragment has no ports, and so belongs to no connection. It
// slips past a drop or a limit, or is cut off a service or an answer. The match of a limit has
// what its keys ask for.
func fragments(p *policy.Policy) []Finding {
	var drops, passes *policy.Rule
	for _, r := range p.Rules {
		switch a := whatFragmentsMeet(r); {
		case a.said, a.all && r.Action == action.Pass && p.Default.Action == action.Drop:
			return nil
		case a.lack == "":
		case r.Action == action.Drop || r.Action == action.Limit:
			drops = cmp.Or(drops, r)
		case r.Action == action.Pass && a.udp:
			passes = cmp.Or(passes, r)
		}
	}
	switch {
	case p.Leaves() && p.Default.Action == action.Drop && passes != nil:
		return []Finding{{passes.Pos,
			"large datagrams break: a non-first fragment " + whatFragmentsMeet(passes).lack +
				", so this rule does not match it and it reaches `out default drop`",
			"add `out pass fragments`: without their first, which is judged, they are nothing"}}
	case p.Leaves(): // of what follows a first that is dropped, nobody makes anything
	case p.Default.Action == action.Pass && drops != nil:
		what := "rule does not match"
		if drops.Limit != nil {
			what = "limit does not count"
		}
		return []Finding{{drops.Pos,
			"fragments slip by: a non-first fragment " + whatFragmentsMeet(drops).lack +
				", so this " + what + " it and it reaches `default pass`",
			"add `fragments track`, which passes only those whose first has passed, or `pass " +
				"fragments` to say that this is meant"}}
	case p.Default.Action == action.Drop && passes != nil:
		return []Finding{{passes.Pos,
			"large datagrams break: a non-first fragment " + whatFragmentsMeet(passes).lack +
				", so this rule does not match it and it reaches `default drop`",
			"add `fragments track`, which passes those whose first has passed, or `drop " +
				"fragments` to say that this is meant"}}
	}
	return nil
}

// meeting describes a rule's view of non-first fragments.
type meeting struct {
	said bool   // it speaks of them
	lack string // what it asks for and they lack, if anything
	udp  bool   // it may be about UDP
	all  bool   // it is about all of UDP
}

func whatFragmentsMeet(r *policy.Rule) meeting {
	m := meeting{udp: true, all: true}
	for i := range r.Match {
		t := &r.Match[i]
		switch {
		case t.Field == field.Fragment:
			return meeting{said: true}
		case t.Field == field.Proto:
			m.udp = m.udp && contains(t.Ranges, 17) != t.Not
			continue
		case t.Field == field.Flow:
			m.lack = cmp.Or(m.lack, "belongs to no connection that is known")
		case t.Field.Info().Header == field.InPorts:
			m.lack = "has no ports"
		case isEndpoint(t.Field):
			if asksPorts(t) {
				m.lack = "has no ports"
			}
			m.udp = m.udp && mayBeUDP(t)
		}
		m.all = false
	}
	m.all = m.all && m.udp
	return m
}

// alone warns once of an element that names a protocol with ports alone, such as `192.0.2.1 udp` in
// braces: it asks for a port, which a non-first fragment does not have. The same words outside
// braces are two terms, which such a fragment has. What is warned of fragments already says enough.
func alone(p *policy.Policy, said []Finding) []Finding {
	var at *policy.Rule
	var is policy.Element
	for _, r := range slices.Concat(p.Protect, p.Rules) {
		for i := range r.Match {
			t := &r.Match[i]
			if t.Field == field.Fragment {
				return nil
			}
			if at != nil || !isEndpoint(t.Field) || !r.Action.Decides() {
				continue
			}
			n := slices.IndexFunc(t.Endpoints(), func(e policy.Element) bool {
				return e.Prefix.IsValid() && e.Service.AnyPort() &&
					policy.HasPorts(e.Service.Proto)
			})
			if n >= 0 {
				at, is = r, t.Endpoints()[n]
			}
		}
	}
	if at == nil || slices.ContainsFunc(said, func(f Finding) bool { return f.Pos == at.Pos }) {
		return nil
	}
	return []Finding{{at.Pos, fmt.Sprintf("%q asks for a port, as it is an element: a non-first "+
		"fragment has none and does not match, as it does where the address and the protocol are "+
		"terms of the rule", is),
		"add `fragments track` before it, or write the address and the protocol as terms"}}
}

// groups4 are the IPv4 multicast groups of which switches that snoop forget who listens (RFC 4541
// section 2.1.2): all but the link's own.
var groups4 = without(prefixes("224.0.0.0/4"), prefixes("224.0.0.0/24"))

// listeners warns of the first rule that passes packets to IPv4 groups in a policy that drops the
// queries of who listens, as it says nothing about IGMP.
func listeners(p *policy.Policy) []Finding {
	if p.Leaves() {
		return nil
	}
	const igmp = 2
	var to *policy.Rule
	for _, r := range slices.Concat(p.Protect, p.Rules) {
		for i := range r.Match {
			t := &r.Match[i]
			switch {
			case t.Field == field.Proto && !t.Not && contains(t.Ranges, igmp):
				return nil
			case to == nil && t.Field == field.DstAddr && !t.Not && r.Action.Decides() &&
				r.Action.Verdict() == action.Pass && isOfGroups(t.Addresses()):
				to = r
			}
		}
	}
	if to == nil || p.Default.Action == action.Pass {
		return nil
	}
	return []Finding{{to.Pos,
		"a switch that snoops forgets that this machine listens to these groups, " +
			"as IGMP queries are dropped",
		"add `pass igmp ttl 1`, or `drop igmp` to say that this is meant"}}
}

// isOfGroups says whether some of the addresses are such groups, and none is anything else than
// multicast.
func isOfGroups(ps []netip.Prefix) bool {
	steps := 0
	return len(common(ofFamily(ps, IPv4), groups4)) > 0 &&
		prefixesWithin(ofFamily(ps, IPv4), prefixes("224.0.0.0/4"), &steps)
}

// asksPorts says whether an endpoint is of a protocol with ports; of a dynamic set that has to be
// assumed.
func asksPorts(t *policy.Term) bool {
	return t.Not || slices.ContainsFunc(t.Endpoints(),
		func(e policy.Element) bool { return policy.HasPorts(e.Service.Proto) }) ||
		t.Set != nil && t.Set.Kind == policy.Dynamic
}

// mayBeUDP says whether datagrams, which are fragmented where they are large, may be among the
// packets.
func mayBeUDP(t *policy.Term) bool {
	return t.Not || slices.ContainsFunc(t.Endpoints(),
		func(e policy.Element) bool { return e.Service.Proto == 17 }) ||
		t.Set != nil && t.Set.Kind == policy.Dynamic
}
