package importer

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
)

// natTo is where a rule of a nat chain sends new connections: to this machine, by a redirect, or
// away from it.
type natTo struct {
	what string // the action, as its source says it
	here bool
	port spans // nil if it stays
}

// natTo reads where DNAT or REDIRECT sends packets: 192.0.2.1:80-90, [2001:db8::1]:80, :80, 80.
func (p *ipRule) natTo() {
	addr, port := "", p.to
	if p.target == "DNAT" {
		addr, port = p.to, ""
		if i := strings.LastIndexByte(p.to, ':'); i >= 0 && (!p.tab.six ||
			strings.HasPrefix(p.to, "[") && i > strings.IndexByte(p.to, ']')) {
			addr, port = p.to[:i], p.to[i+1:]
		}
	}
	p.sentTo(p.target, strings.Trim(addr, "[]"), port)
}

// sentTo notes what an action of nat does with the packets of the rule: addr is "" if they stay
// here.
func (p *ruleReader) sentTo(what, addr, port string) {
	to := &natTo{what: what, here: addr == ""}
	if addr != "" {
		first, _, _ := strings.Cut(addr, "-")
		a, err := netip.ParseAddr(first)
		if err != nil {
			return
		}
		to.here = a.IsLoopback()
	}
	if port != "" {
		s, err := parseSpansOf(port, "-", 0xffff)
		if err != nil {
			return
		}
		to.port = s
	}
	if len(p.r.unknown) == 0 {
		p.r.nat = to
	}
}

// natTo reads a statement dnat or redirect.
func (p *nftRule) natTo(key string, inner json.RawMessage) {
	var to struct{ Addr, Port json.RawMessage }
	_ = json.Unmarshal(inner, &to)
	addr, _ := scalar(to.Addr)
	port, _ := scalar(to.Port)
	if len(to.Addr) > 0 && addr == "" || len(to.Port) > 0 && port == "" {
		return // taken from a map, or one of several
	}
	p.sentTo(key, addr, port)
}

// redirected is a rule of a nat chain with the packets, as they arrive, that it is about.
type redirected struct {
	r *chainRule
	m match
}

// natRules gathers what the rules of a nat chain, from the first on, do with the packets of m. It
// fails where a policy cannot tell which packets these are.
func natRules(c *chain, m match, depth int) (out []redirected, ok bool) {
	if depth > maxDepth {
		return nil, false
	}
	for _, r := range c.rules {
		if len(r.alts) == 0 || r.nat == nil && r.idle() {
			continue
		}
		if r.nat == nil && len(r.unknown) > 0 || r.states != nil || r.limit != noLimit ||
			len(r.filled) > 0 {
			return nil, false
		}
		for i := range r.alts {
			if !m.compatible(&r.alts[i]) {
				return nil, false
			}
			x := m.and(&r.alts[i])
			if x.never {
				continue
			}
			switch {
			case r.nat != nil:
				out = append(out, redirected{r, x})
			case r.verb == doJump:
				more, ok := natRules(r.target, x, depth+1)
				if !ok {
					return nil, false
				}
				out = append(out, more...)
				continue
			case r.verb != doAccept && r.verb != doReturn:
				return nil, false
			}
			if x.equal(&m) {
				return out, true
			}
			if r.nat != nil { // the first rule in the policy decides there too
				continue
			}
			if m, ok = m.butNot(&x); !ok {
				return nil, false
			}
		}
	}
	return out, true
}

// readNat puts what nat chains do in front of the policy: levee sees packets as they arrive. What
// is sent to a port of this machine is judged as the rules judge that port; what is sent elsewhere
// never comes to them.
func (fl *flattener) readNat(chains []*chain) {
	var front []statement
	for _, c := range chains {
		found, ok := natRules(c, c.family, 0)
		if !ok {
			continue
		}
		var of []statement
		for _, n := range found {
			parts, err := fl.tracked(n.m)
			ok = ok && err == nil
			for i := 0; ok && i < len(parts); i++ {
				var is []statement
				is, ok = fl.judged(n.r, parts[i])
				of = append(of, is...)
			}
		}
		if !ok || len(of) > growthMin {
			continue
		}
		for _, n := range found {
			kind, text, hint := Changed, n.r.nat.what+" sends these elsewhere, where FORWARD "+
				"judges them: they pass", "keep the rules of FORWARD in the kernel; where the "+
				"address is this machine's own, give its port a rule in place of this one"
			if n.r.nat.here {
				kind, text, hint = Noticed, n.r.nat.what+" sends these to this machine: they are "+
					"judged, as they arrive, as the rules judge what they become", ""
			}
			fl.out.rep.add(n.r.remark(kind, text, hint))
		}
		markMet(c, 0)
		front = append(front, of...)
	}
	fl.out.pending = append(front, fl.out.pending...)
}

// tracked are the packets of m that conntrack has connections of, as nat is for these alone.
func (fl *flattener) tracked(m match) (out []match, err error) {
	if fl.out.stateless {
		return []match{m}, nil
	}
	alts, _ := newStateSet([]string{stNew, stEstablished, stRelated}).packets(doAccept)
	parts, err := narrow([]match{m}, alts, &fl.out.written)
	for i := range parts {
		if !slices.ContainsFunc(parts, func(p match) bool {
			return !p.equal(&parts[i]) && parts[i].within(p)
		}) {
			out = append(out, parts[i])
		}
	}
	return out, err
}

// markMet notes that the rules of a chain, and of those that it leads to, were looked at.
func markMet(c *chain, depth int) {
	if c.met = true; depth > maxDepth {
		return
	}
	for _, r := range c.rules {
		if r.target != nil {
			markMet(r.target, depth+1)
		}
	}
}

// judged is what the policy does with packets of a rule of nat.
func (fl *flattener) judged(r *chainRule, m match) (out []statement, ok bool) {
	write := func(action string, m match) {
		fl.out.keeps = fl.out.keeps || m.f[fKnown] != nil
		out = append(out, statement{action: action, m: m, label: r.label, named: true})
	}
	if !r.nat.here {
		write("pass", m)
		return out, true
	}
	as, port := m, m.f[fPort]
	if r.nat.port != nil {
		if as.f[fPort] = r.nat.port; !as.hasTransport() {
			return nil, false
		}
	}
	for _, s := range fl.out.pending {
		if s.action == "" || s.action == "count" || s.action == "log" {
			continue
		}
		if !as.compatible(&s.m) {
			return nil, false
		}
		both := as.and(&s.m)
		if both.never || beginsNone(&as, &s.m) {
			continue
		}
		if s.action != "pass" && s.action != "drop" {
			return nil, false
		}
		both.f[fPort] = port
		write(s.action, both)
		if as.within(s.m) {
			return out, true
		}
	}
	for _, c := range fl.out.closed {
		both := as.and(&c.family)
		if both.never {
			continue
		}
		both.f[fPort] = port
		write(map[bool]string{true: "drop", false: "pass"}[c.drop], both)
		if as = as.unseen(c); as.never {
			break
		}
	}
	return out, true
}
