package importer

import (
	"maps"
	"slices"
	"strings"

	"levee/internal/lang/importer/match"
	"levee/internal/lang/importer/state"
)

// natTo is the destination to which a rule of a nat chain sends new connections: to this machine,
// by a redirect, or away from it.
type natTo struct {
	what  string       // the action, as its source says it
	here  bool         // the rules judge the packets, as what they become
	stays bool         // the destination stays, and the port alone changes
	moves bool         // the destination is another in any case
	some  bool         // of the packets of the rule, those that a condition without words is for
	port  *match.Ports // nil if it stays
	addr  *match.Set   // the destination that rules see; nil if it is one of the machine's own
	// it is for packets of any state, and the rules are judged without it where it has no words
	alone   bool
	arrives bool // so it is for some
}

// SentTo notes what an action of nat does with the packets of the rule: its destination becomes an
// address of addr, one of the machine's own if that is none, or stays; its port one of port, or
// stays where that is nil. Nothing is noted where some of addr are of loopback and others are not.
func (p *RuleReader) SentTo(what string, addr match.AddressSpans, stays bool, port *match.Ports) {
	to := &natTo{what: what, here: len(addr) == 0, stays: stays, port: port, moves: len(addr) > 0}
	if len(addr) > 0 {
		to.here = addr.Within(match.Loopback)
		if away := addr.Minus(match.Loopback); !to.here && len(addr.Minus(away)) > 0 {
			return
		}
	}
	to.some = len(p.Rule.Unknown) > 0
	p.Rule.nat = to
}

// Translated notes that pf makes packets of the rule those to another address and port, nil if it
// stays, before its rules judge them; by pass they do not.
func (p *RuleReader) Translated(what string, pass bool, addr *match.Set, port *match.Ports) {
	p.Rule.carryFilled(p.Out.Fills)
	p.Rule.Filled = nil
	p.Rule.nat = &natTo{what: what, here: !pass, addr: addr, port: port, alone: true}
}

// redirected is a rule of a nat chain with the packets, as they arrive, that it is about. Those of
// a rule that sends them nowhere stay as they are.
type redirected struct {
	r    *ChainRule
	m    match.Match
	port *match.PortPart // what becomes of their port; nil if it stays
}

// byPort takes packets of a rule apart by what becomes of their ports. It fails where a policy
// cannot tell.
func (n redirected) byPort() (out []redirected, ok bool) {
	if n.r.nat == nil || n.r.nat.port == nil || !n.r.nat.here {
		return []redirected{n}, true
	}
	if !n.m.HasTransport() {
		return nil, false
	}
	parts, ok := n.r.nat.port.Parts(n.m.Fields[match.Port])
	for _, p := range parts {
		part := redirected{n.r, n.m, &p}
		if len(parts) > 1 {
			part.m = n.m.With(match.Port, p.Of)
		}
		out = append(out, part)
	}
	return out, ok
}

// splits tells whether a rule of a nat chain sends packets elsewhere, by a condition for which a
// policy has no words, and does nothing else: a service of Kubernetes draws one of its containers.
func (r *ChainRule) splits() bool {
	if len(r.Unknown) == 0 || r.nat == nil && !r.Verb.leads() {
		return false
	}
	if r.nat != nil {
		return r.nat.some && !r.nat.here
	}
	for _, of := range Reached(r.Target) {
		for _, r := range of.Rules {
			if r.nat != nil && r.nat.here ||
				r.nat == nil && !r.idle() && !r.Verb.leads() && r.Verb != DoReturn {
				return false
			}
		}
	}
	return true
}

// natRules gathers what the rules of a nat chain, from the first on, do with the packets of m; left
// is how much may yet be looked at, as chains may jump to others often. It fails where a policy
// cannot tell which packets these are.
func natRules(c *Chain, m match.Match, depth int, left *int) (out []redirected, ok bool) {
	if depth > maxDepth {
		return nil, false
	}
	var some []match.Match // what may be sent elsewhere, and may come to the rules behind
	settle := func(m *match.Match, away bool) bool {
		kept := some[:0]
		for _, s := range some {
			if away && s.Within(*m) {
				continue
			}
			if !away && !(s.Compatible(m) && s.And(m).Never) {
				return false
			}
			kept = append(kept, s)
		}
		some = kept
		return true
	}
	defer func() { ok = ok && len(some) == 0 }()
	for _, r := range c.Rules {
		if len(r.Alts) == 0 || r.nat == nil && r.idle() || !meetsNat(r.States) {
			continue
		}
		splits := r.splits()
		if (r.nat == nil || r.nat.some) && len(r.Unknown) > 0 && !splits ||
			r.Limit != NoLimit || len(r.Filled) > 0 ||
			// no policy has RELATED alone
			r.States != nil && !slices.Contains(r.States, state.New) {
			return nil, false
		}
		for i := range r.Alts {
			if !m.Compatible(&r.Alts[i]) {
				return nil, false
			}
			x := m.And(&r.Alts[i])
			if *left -= 1 + x.Weight(); *left < 0 {
				return nil, false
			}
			if x.Never {
				continue
			}
			if splits {
				some = append(some, x)
				continue
			}
			if r.Verb.leads() && r.nat == nil {
				more, ok := natRules(r.Target, x, depth+1, left)
				if !ok {
					return nil, false
				}
				for _, n := range more {
					if !settle(&n.m, n.away()) {
						return nil, false
					}
				}
				out = append(out, more...)
				if r.Verb == DoJump || slices.ContainsFunc(more, func(n redirected) bool {
					return x.Within(n.m)
				}) {
					continue
				}
			} else if !settle(&x, r.nat != nil && !r.nat.here) {
				return nil, false
			}
			switch {
			case r.nat != nil:
				out = append(out, redirected{r: r, m: x})
			case !r.Verb.leads() && r.Verb != DoAccept && r.Verb != DoReturn:
				if slices.ContainsFunc(out, func(o redirected) bool { return x.Within(o.m) }) {
					continue // one in front decides
				}
				return nil, false
			case r.Verb == DoAccept && depth > 0: // of the rules behind the jump neither
				out = append(out, redirected{r: r, m: x})
			case !x.Equal(&m):
				rest, ok := m.ButNot(&x)
				if ok {
					m = rest
					continue
				}
				if depth > 0 { // the rules behind the jump may be about them
					return nil, false
				}
				out = append(out, redirected{r: r, m: x})
			}
			if x.Equal(&m) {
				return out, true
			} // else the first rule in the policy decides there too
		}
	}
	return out, true
}

// away tells whether packets are sent elsewhere.
func (n redirected) away() bool { return n.r.nat != nil && !n.r.nat.here }

// leads tells whether the rules of another chain come next.
func (v Verb) leads() bool { return v == DoJump || v == DoGoto }

// meetsNat tells whether packets of connections that begin have one of the states that a rule asks
// for: no others come to nat.
func meetsNat(states []string) bool {
	return states == nil || slices.Contains(states, state.New) ||
		slices.Contains(states, state.Related)
}

// readNat puts what nat chains do in front of the chains at input: levee sees packets as they
// arrive. What is sent to a port of this machine is judged as the rules judge that port; what is
// sent elsewhere never comes to them.
func (fl *flattener) readNat(chains []*Chain) {
	fronts := map[int][]statement{}
	var lost []*Chain
	also := func(c *Chain, of []*Chain) bool { // one of them rewrites packets that c sees
		return slices.ContainsFunc(of, func(o *Chain) bool {
			both := c.Family.And(&o.Family)
			return !both.Never && o.Rewrites()
		})
	}
	lose := func(c *Chain, at int) {
		lost = append(lost, c)
		fl.loseNat(c, at)
	}
	for i, c := range chains {
		at, ok := fl.inputBegins(c)
		if !ok {
			lose(c, 0)
			continue
		}
		if at < 0 { // what stands before it decides all
			c.MarkMet()
			continue
		}
		left := growthMin
		fresh := c.Family.With(match.Sent, match.Just(0)) // what comes to nat was sent nowhere
		found, ok := natRules(c, fresh, 0, &left)
		// what one chain accepts or cannot say, the next may send elsewhere
		ok = ok && !also(c, lost) && !(also(c, chains[i+1:]) &&
			slices.ContainsFunc(found, func(n redirected) bool { return n.r.nat == nil }))
		if !ok {
			lose(c, at)
			continue
		}
		var of []statement
		for _, n := range found {
			ports, apart := n.byPort()
			ok = ok && apart
			for i := 0; ok && i < len(ports); i++ {
				var is []statement
				if is, ok = fl.sent(ports[i], at); ok {
					of = append(of, is...)
				}
			}
		}
		if !ok || len(of) > growthMin {
			lose(c, at)
			continue
		}
		for _, n := range found {
			if fl.told[n.r] || n.r.nat == nil && len(n.r.passes) == 0 {
				continue
			}
			if fl.tellNat(n.r); n.r.nat == nil || n.r.nat.alone {
				continue
			}
			kind, text, hint := Changed, n.r.nat.what+" sends these elsewhere, where FORWARD "+
				"judges them: they pass", "keep the rules of FORWARD in the kernel; where the "+
				"address is this machine's own, give its port a rule in place of this one"
			if n.r.nat.here {
				kind, text, hint = Noticed, n.r.nat.what+" sends these to this machine: they are "+
					"judged, as they arrive, as the rules judge what they become", ""
			}
			fl.out.Report.Add(n.r.Remark(kind, text, hint))
		}
		c.MarkMet()
		fronts[at] = append(fronts[at], of...)
	}
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(fronts))) {
		fl.out.pending = slices.Insert(fl.out.pending, at, fronts[at]...)
	}
}

// sent returns what the policy does with packets of a rule of nat.
func (fl *flattener) sent(n redirected, at int) (out []statement, ok bool) {
	parts, err := fl.tracked(n)
	if err != nil {
		return nil, false
	}
	for _, m := range parts {
		is, ok := fl.judged(redirected{n.r, m, n.port}, at)
		if !ok && n.r.nat != nil && n.r.nat.alone {
			is, ok = fl.asArrives(n.r, m, at), true
		}
		if !ok {
			return nil, false
		}
		if n.r.Logs != "" {
			out = append(out, fl.logOf(n.r, m)...)
		}
		for _, s := range is {
			if s.action != "limit" {
				continue
			}
			if fl.out.limits++; fl.out.limits > maxLimits {
				return nil, false
			}
			what := "the chain of nat leaves these alone: what comes there"
			if n.r.nat != nil {
				what = n.r.nat.what + ": what it sends to this machine"
			}
			n.r.Widen(what+" has the limits of the rules once more, in a budget of its own", "",
				[]match.Match{s.m})
		}
		out = append(out, is...)
	}
	if n.r.nat != nil && n.r.nat.here && !n.r.nat.alone && !fl.out.stateless {
		out = append(out, fl.strays(n, at)...)
	}
	return out, true
}

// loseNat notes which packets the policy may pass as they arrive, of those that a chain of nat
// sends elsewhere which is not imported.
func (fl *flattener) loseNat(c *Chain, at int) {
	for _, of := range Reached(c) {
		for _, r := range of.Rules {
			sends := r.nat != nil || r.Verb == DoNothing && len(r.Unknown) > 0
			for i := range r.Alts {
				m := c.Family.And(&r.Alts[i])
				if sends && !m.Never && !fl.droppedBehind(at, &m) {
					c.loses = true
					fl.out.Report.pass(&m)
				}
			}
		}
	}
}

// Translates says of a chain that rewrites destinations that it is not imported.
func (o *Output) Translates(c *Chain, what string) {
	m := c.Remark(Changed, what+"it rewrites destinations before the other chains look at "+
		"packets, and levee sees them as they arrive", "write rules with the addresses and ports "+
		"before the rewriting")
	if m.Widens = c.loses; m.Widens {
		f := &o.Report.Fates
		f.Given, f.LeftOut, f.Widened = f.Given+1, f.LeftOut+1, f.Widened+1
	}
	o.Report.Add(m)
}

// inputBegins returns where the statements begin of the chains behind a chain of nat, or -1 if
// there are none. It fails where statements of chains in front of it stand there, too.
func (fl *flattener) inputBegins(nat *Chain) (at int, ok bool) {
	at = -1
	var first *Chain
	for _, e := range fl.entries {
		both := nat.Family.And(&e.of)
		switch {
		case both.Never:
		case first == nil && !e.chain.before:
			first, at = e.chain, e.at
		case first != nil && (e.chain == first || e.chain.before):
			return 0, false
		}
	}
	return at, true
}

// tracked returns the packets of n that conntrack has connections of, as nat is for these alone.
func (fl *flattener) tracked(n redirected) (out []match.Match, err error) {
	if fl.out.stateless || n.r.nat == nil || n.r.nat.alone {
		return []match.Match{n.m}, nil
	}
	alts, _ := state.Of([]string{state.New, state.Established, state.Related}).Packets(false)
	parts, err := Narrow([]match.Match{n.m}, alts, &fl.out.Written)
	for i := range parts {
		if !slices.ContainsFunc(parts, func(p match.Match) bool {
			return !p.Equal(&parts[i]) && parts[i].Within(p)
		}) {
			out = append(out, parts[i])
		}
	}
	return out, err
}

// strays returns the drops of what conntrack picks up in the middle of a connection, and nat sends
// to a port where it is dropped, as far as the rules for the port that it has would pass it.
func (fl *flattener) strays(n redirected, at int) (out []statement) {
	parts, err := Narrow([]match.Match{n.m}, []match.Match{state.TCPBare.With(match.Known,
		match.Just(0)).Settle()}, &fl.out.Written)
	if err != nil {
		return nil
	}
	for _, m := range parts {
		is, ok := fl.judged(redirected{n.r, m, n.port}, at)
		if !ok {
			return nil
		}
		for _, s := range is {
			if s.action == "drop" && !fl.droppedBehind(at, &s.m) {
				out = append(out, s)
			}
		}
	}
	return out
}

// MarkMet marks the rules of a chain, and of all chains reached from it, as seen.
func (c *Chain) MarkMet() {
	for _, c := range Reached(c) {
		c.Met = true
	}
}

// judged returns what the policy does from statement at on with packets of a rule of nat.
func (fl *flattener) judged(n redirected, at int) (out []statement, ok bool) {
	r, m := n.r, n.m
	write := func(action string, m match.Match) {
		fl.out.keeps = fl.out.keeps || m.Fields[match.Known] != nil
		out = append(out, statement{action: action, m: m, label: r.Label, named: true})
	}
	if r.nat != nil && !r.nat.here {
		write("pass", m)
		return out, true
	}
	as, addr := m, r.nat != nil && r.nat.addr != nil
	as.Fields[match.Sent] = nil
	if is, told := n.isSent(); told {
		as.Fields[match.Sent] = match.Just(uint64(match.Int(is)))
	}
	here := r.nat != nil && r.nat.here && !r.nat.alone && !r.nat.stays
	if n.port != nil {
		as.Fields[match.Port] = n.port.As
	}
	if addr {
		as.To = match.Address{In: r.nat.addr}
	} else if here {
		as.To = match.Address{}
	}
	lo := addr && r.nat.addr.Addresses.Within(match.Loopback)
	back := func(both *match.Match) bool {
		both.Fields[match.Sent] = nil
		if addr || here {
			both.To = m.To
		}
		if n.port == nil {
			return true
		}
		arrived, ok := n.port.Arrived(both.Fields[match.Port])
		if both.Fields[match.Port] = arrived; m.Fields[match.Port] == nil && n.port.One {
			both.Fields[match.Port] = nil
		}
		return ok
	}
	for _, s := range fl.out.pending[at:] {
		if s.action == "" || s.action == "count" || s.action == "log" {
			continue
		}
		if fl.looks++; fl.looks > maxLooks {
			return nil, false
		}
		is, asked := s.m, match.Address{}
		switch {
		case lo && asksOwn(&is): // pf's `self` has it, and the addresses of an interface do not
			if is.To.In = nil; notOwn(&is) && as.Compatible(&is) {
				if both := as.And(&is); both.Never || beginsNone(&as, &is) {
					continue
				}
			}
			return nil, false
		case addr && !notOwn(&is), here && !ownUnicast(&is):
			continue
		case here:
			asked, is.To = is.To, match.Address{}
		}
		if !Meet(as, is) {
			continue
		}
		if !as.Compatible(&is) || addr && slices.ContainsFunc(is.To.Not, isDynamic) {
			return nil, false
		}
		both := as.And(&is)
		if both.Never || beginsNone(&as, &is) {
			continue
		}
		if addr && asksSome(r.nat.addr.Addresses, is.To) {
			return nil, false
		}
		if is.Fields[match.Sent] != nil && as.Fields[match.Sent] == nil {
			return nil, false
		}
		if s.action != "pass" && s.action != "drop" && s.action != "limit" || !back(&both) {
			return nil, false
		}
		byAddress := asked.In != nil || len(asked.Not) > 0
		if s.action == "limit" {
			if byAddress || s.of != nil && s.of.Verb == DoAccept && fl.passesSent(at) {
				return nil, false
			}
			s.m, s.named = both, true
			out = append(out, s)
			continue
		}
		if byAddress {
			fl.byAddress(r, both)
			arrives := match.Match{To: asked}
			if !both.Compatible(&arrives) {
				return nil, false
			}
			if both = both.And(&arrives); !both.Never {
				write(s.action, both)
			}
			continue
		}
		write(s.action, both)
		if as.Within(is) {
			return out, true
		}
	}
	for _, c := range fl.out.closed {
		both := as.And(&c.Family)
		if both.Never {
			continue
		}
		if !back(&both) {
			return nil, false
		}
		write(map[bool]string{true: "drop", false: "pass"}[c.Drop], both)
		if as = unseen(as, c); as.Never {
			break
		}
	}
	return out, true
}

// isSent tells whether conntrack notes another destination of the packets. That is not told where
// some may get the one that they have.
func (n redirected) isSent() (is, told bool) {
	to := n.r.nat
	switch {
	case to == nil:
		return false, true
	case to.moves:
		return true, true
	case to.alone || n.port == nil || n.m.Fields[match.Port] == nil:
		return false, false
	}
	return true, len(n.m.Fields[match.Port].And(n.port.As)) == 0
}

// passesSent tells whether one of statement i and those behind it passes what nat has sent here
// and nothing else.
func (fl *flattener) passesSent(i int) bool {
	return slices.ContainsFunc(fl.out.pending[i:], func(s statement) bool {
		return s.action == "pass" && s.ofSent()
	})
}

// ofSent tells whether the statement is about what nat has sent elsewhere alone.
func (s *statement) ofSent() bool { return slices.Equal(s.m.Fields[match.Sent], match.Just(1)) }

// takeSent takes what is about packets that nat has sent elsewhere out of the statements: readNat
// has put these in front, and the others come as they are.
func (fl *flattener) takeSent() {
	for i := range fl.out.pending {
		s := &fl.out.pending[i]
		if s.ofSent() {
			*s = statement{}
			continue
		}
		s.m.Fields[match.Sent] = nil
	}
}

func isDynamic(s *match.Set) bool { return s.Dynamic }

// ownUnicast takes out of a match what each of the machine's own addresses fulfils, which are no
// group's, and tells whether it may hold for one.
func ownUnicast(m *match.Match) bool {
	m.To.Not = slices.DeleteFunc(slices.Clone(m.To.Not), (*match.Set).OfGroups)
	const all = 1<<48 - 1 // a broadcast address of a network is that of frames to all alone
	return !m.ToGroup() && !(m.To.In == match.Self &&
		slices.Equal(m.Fields[match.EtherTo], match.Just(all)))
}

// byAddress says that a rule for some destinations judges packets of a rule of nat that gives them
// one of the machine's own, which the policy does not know.
func (fl *flattener) byAddress(r *ChainRule, m match.Match) {
	const text = "what it sends to this machine gets one of its addresses, such as the first of " +
		"the interface: rules for some destinations see the one that packets come with"
	if n := len(r.Remarks); n > 0 && strings.HasSuffix(r.Remarks[n-1].Text, text) {
		r.passes = append(r.passes, m)
		return
	}
	r.Widen(r.nat.what+": "+text, "write rules for the port before the redirect, without "+
		"destinations", []match.Match{m})
}

// asksOwn tells whether a match is about the machine's own addresses, or about others.
func asksOwn(m *match.Match) bool {
	own := func(s *match.Set) bool { return s.Own }
	return m.To.In != nil && m.To.In.Own || slices.ContainsFunc(m.To.Not, own)
}

// Meet tells whether a packet may be of both.
func Meet(a, b match.Match) bool {
	if !a.Compatible(&b) { // what a dynamic set holds is not known
		a.From, a.To, a.FromDyn, a.ToDyn = match.Address{}, match.Address{}, nil, nil
	}
	return !a.And(&b).Never
}

// asksSome tells whether a rule about destinations is for some of these addresses and not for the
// others.
func asksSome(of match.AddressSpans, to match.Address) bool {
	if to.In != nil && !of.Within(to.In.Addresses) {
		return true
	}
	return slices.ContainsFunc(to.Not, func(s *match.Set) bool {
		return !of.Within(s.Addresses) && !of.Within(of.Minus(s.Addresses))
	})
}

// notOwn takes conditions on the machine's own addresses out of a match for packets to an address
// that is none of these, and tells whether it holds for any.
func notOwn(m *match.Match) bool {
	own := func(s *match.Set) bool { return s.Own }
	m.To.Not = slices.DeleteFunc(slices.Clone(m.To.Not), own)
	return m.To.In == nil || !m.To.In.Own
}

// asArrives returns what the policy does with packets of a rule of pf that translates them in a way
// for which it has no words: the rules judge them as they arrive, which may let more pass.
func (fl *flattener) asArrives(r *ChainRule, m match.Match, at int) []statement {
	r.Widen(r.nat.what+" changes the destination before pf's rules judge these, in a way that "+
		"the policy cannot follow: they are judged as they arrive", "write rules with the "+
		"addresses and ports before the translation", []match.Match{m})
	as := *r
	as.nat, r.nat.arrives = nil, true
	out, _ := fl.judged(redirected{r: &as, m: m}, at)
	return out
}

// logOf returns a log of packets of a rule, if there is room for another.
func (fl *flattener) logOf(r *ChainRule, m match.Match) []statement {
	n := len(fl.out.pending)
	fl.out.log(r, m)
	of := slices.Clone(fl.out.pending[n:])
	fl.out.pending = fl.out.pending[:n]
	return of
}

// tellNat says what became of a rule that translates packets, and counts it if it decides
// something: of netfilter, those by which more may pass.
func (fl *flattener) tellNat(r *ChainRule) {
	fl.told[r] = true
	alone := r.nat != nil && r.nat.alone
	if alone && r.nat.addr != nil && !r.nat.arrives {
		of := ", which is taken for none of this machine's own addresses"
		if r.nat.addr.Addresses.Within(match.Loopback) {
			of = ""
		}
		fl.out.Report.Add(r.Remark(Noticed, r.nat.what+" sends these to another destination"+of+
			": they are judged, as they arrive, as the rules judge what they become",
			"keep the rewriting where it is"))
	}
	widened := false
	for _, m := range r.Remarks {
		if m.Widens || alone {
			fl.out.Report.Add(m)
		}
		widened = widened || m.Widens
	}
	for i := range r.passes {
		fl.out.Report.pass(&r.passes[i])
	}
	if f := &fl.out.Report.Fates; widened || alone && !r.nat.here {
		f.Given, f.Changed = f.Given+1, f.Changed+1
		if widened {
			f.Widened++
		}
	}
}
