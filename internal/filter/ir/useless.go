package ir

import (
	"fmt"
	"net/netip"
	"slices"

	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/packet"
)

// inVain warns of cookies behind which no rule passes a SYN that they let on: who is proven cannot
// connect either. What cannot be told without the contents of sets, and long lists, may pass one.
func (t *reach) inVain(prog *Program) (out []Finding) {
	p := prog.Policy
	if p.Default.Action == action.Pass {
		return nil
	}
	for i, r := range p.Rules {
		slot := p.RuleSlot(i)
		if r.Cookie == nil || !t.isAlive[slot] || prog.connects(slot, IPv4) ||
			prog.connects(slot, IPv6) {
			continue
		}
		switch r.Cookie.Answers {
		case action.A2SQueries:
			out = append(out, Finding{r.Pos, "no query ever passes: no rule passes one of a flow " +
				"that is proven", "add `pass udp proven flow` for these ports"})
			continue
		case action.DNSQueries:
			out = append(out, Finding{r.Pos, "no client can ask again: no rule passes a SYN to " +
				"these ports", "add `pass tcp syn port 53` for them"})
			continue
		}
		out = append(out, Finding{r.Pos, "no client can connect: a SYN that this cookie lets on " +
			"reaches `default drop`, as no rule behind it passes one",
			"put `pass tcp syn` for these ports behind it"})
	}
	return out
}

// neverTold warns of rules that ask what no memory ever tells, and of memories that nobody asks.
func neverTold(p *policy.Policy) []Finding {
	return slices.Concat(neverProven(p), neverEchoed(p), neverKnown(p), neverSearched(p))
}

// neverProven warns of the first rule that asks for proven sources in a policy that proves none.
// With a detector there is no warning: the agent may add a cookie.
func neverProven(p *policy.Policy) []Finding {
	proves := func(r *policy.Rule) bool {
		return r.Cookie != nil && r.Cookie.Answers == action.SYNs
	}
	if slices.ContainsFunc(p.Rules, proves) || p.Tracks() || len(p.Detects) > 0 {
		return nil
	}
	rules := slices.Concat(p.Protect, p.Rules)
	// first what costs clients most, and whose mend serves the others
	for _, r := range rules {
		if r.Cookie != nil && r.Cookie.Answers == action.DNSQueries {
			return []Finding{{r.Pos, "nobody is ever proven, and all use TCP: no rule asks " +
				"for `established`", "add `pass established` behind it: handshakes then prove " +
				"clients"}}
		}
	}
	for _, r := range rules {
		for i := range r.Match {
			if t := &r.Match[i]; t.Field == field.Proven {
				return []Finding{{t.Pos, "nobody is ever proven: this policy has no cookie, and " +
					"no rule asks for `established`",
					"add `cookie tcp port N`, for ports that clients connect to"}}
			}
		}
	}
	return nil
}

// neverKnown warns of room for connections in a policy that asks for none.
func neverKnown(p *policy.Policy) []Finding {
	if p.MaxConnections == 0 || p.Tracks() {
		return nil
	}
	return []Finding{{p.ConnectionsPos, "no connection is ever known: no rule asks for " +
		"`established`", "remove this line, or add `pass established`"}}
}

// neverSearched warns of rules that search streams behind one that passes all segments of known
// connections.
func neverSearched(p *policy.Policy) (out []Finding) {
	first := slices.IndexFunc(p.Rules, func(r *policy.Rule) bool {
		return r.Action == action.Pass && passesKnown(r.Match)
	})
	if first < 0 {
		return nil
	}
	for _, r := range p.Rules[first+1:] {
		for i := range r.Match {
			if t := &r.Match[i]; t.Field == field.Stream {
				out = append(out, Finding{t.Pos, fmt.Sprintf("no stream is searched here: the "+
					"rule in line %d passes the segments of connections", p.Rules[first].Pos.Line),
					"put it in front of that one"})
			}
		}
	}
	return out
}

// passesKnown reports whether a match is of all connections over TCP that are known.
func passesKnown(match []policy.Term) bool {
	known := false
	for i := range match {
		t := &match[i]
		switch {
		case t.Not:
			return false
		case t.Field == field.Flow:
			known = true
		case t.Field != field.Proto || t.Set != nil ||
			!slices.Equal(t.Ranges, one(packet.ProtoTCP)):
			return false
		}
	}
	return known
}

// neverEchoed warns of rules that ask for proven flows in a policy that proves none, and of `prove`
// statements for which no rule asks.
func neverEchoed(p *policy.Policy) []Finding {
	asks := p.Asks(field.ProvenFlow)
	if !asks && len(p.Proves) > 0 {
		return []Finding{{p.Proves[0].Pos, "this proves nothing: no rule asks for `proven flow`",
			"remove this line, or add a rule such as `limit udp port N not proven flow " +
				"rate 1kpps`"}}
	}
	asksForNumbers := slices.ContainsFunc(p.Rules, func(r *policy.Rule) bool {
		return r.Cookie != nil && r.Cookie.Answers == action.A2SQueries
	})
	if !asks || len(p.Proves) > 0 || asksForNumbers {
		return nil
	}
	for _, r := range slices.Concat(p.Protect, p.Rules) {
		for i := range r.Match {
			if t := &r.Match[i]; t.Field == field.ProvenFlow {
				return []Finding{{t.Pos, "no flow is ever proven: this policy has no `prove`",
					"add a line such as `prove \"a2s\" udp port N reply payload at 4 41 " +
						"echo 4 bytes at 5 in request at 25, 5`"}}
			}
		}
	}
	return nil
}

// connects says whether a rule behind the cookie of a slot may pass a SYN that it lets on, or any
// rule what the client of a query sends then: a SYN by which it asks again, or the query of a flow
// that is proven.
func (prog *Program) connects(slot int, f Family) bool {
	class := Class{Family: f, Transport: TCP}
	if k := prog.Policy.Slots()[slot].Rule.Cookie; k.Answers == action.A2SQueries {
		class.Transport = UDP
	}
	rules := prog.Lists[class.Index()]
	of := func(r Rule) bool { return r.Slot == slot }
	at := slices.IndexFunc(rules, of)
	var conds []Cond
	if at >= 0 && class.Transport == TCP {
		conds = told(&rules[at])
	} else {
		queries := prog.Lists[Class{Family: f, Transport: UDP}.Index()]
		i := slices.IndexFunc(queries, of)
		if i < 0 {
			return false
		}
		at = -1
		conds = slices.DeleteFunc(told(&queries[i]), func(c Cond) bool {
			return c.Field != field.SrcAddr && c.Field != field.DstAddr && c.Field != field.DstPort
		})
	}
	b := &box{}
	for f := range field.NumFields {
		b.numbers[f] = domains[f][class.Index()]
	}
	b.numbers[field.Flow] = one(0)
	if class.Transport == TCP {
		b.numbers[field.TCPFlags] = flagRanges(&aSYN)
	} else {
		b.numbers[field.ProvenFlow] = one(1)
	}
	every := prefixes("0.0.0.0/0")
	if f == IPv6 {
		every = prefixes("::/0")
	}
	b.addrs = [2][]netip.Prefix{every, every}
	syns, _ := b.cut(conds)
	return syns != nil && slices.ContainsFunc(rules[at+1:], func(r Rule) bool {
		if r.Action.Verdict != Pass {
			return false
		}
		passed, _ := syns.cut(told(&r))
		return passed != nil
	})
}

// told gives the conditions of a rule that a box of many packets tells without leaving any out.
func told(r *Rule) (conds []Cond) {
	for i := range r.Conds {
		c := &r.Conds[i]
		if c.inBoxes() && !c.Dynamic() && c.Pairs == nil && len(c.Prefixes) <= maxPrefixes/4 &&
			(c.Prefixes == nil || !c.Not) {
			conds = append(conds, *c)
		}
	}
	return conds
}
