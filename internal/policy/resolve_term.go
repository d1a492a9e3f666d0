package policy

import (
	"fmt"
	"net/netip"

	"levee/internal/syntax"
)

// match resolves the terms of a rule.
func (r *resolver) match(s *syntax.Rule, rule *Rule) {
	for i := range s.Terms {
		if t := &s.Terms[i]; t.Kind == syntax.Malformed {
			r.malformed(s, t)
			rule.Malformed = true
			return
		}
	}
	errors := r.c.Errors()
	var all []resolvedTerm
	for i := range s.Terms { // in the order of the source, for the diagnostics
		t := &s.Terms[i]
		if term, ok := r.term(t); ok {
			all = append(all, resolvedTerm{t, term})
		}
	}
	if s.Action == "protect" {
		r.protectLimit(all)
	}
	if r.c.Errors() != errors {
		return
	}
	r.checkTogether(all)
	byTerm := make(map[*syntax.Term]Term, len(all))
	for _, t := range all {
		byTerm[t.src] = t.term
	}
	for _, t := range syntax.Ordered(s.Terms) {
		rule.Match = append(rule.Match, byTerm[t])
	}
}

// resolvedTerm is a term with its source.
type resolvedTerm struct {
	src  *syntax.Term
	term Term
}

func (r *resolver) malformed(s *syntax.Rule, t *syntax.Term) {
	switch {
	case t.Not:
		r.c.Errorf(t.Pos, "all other rules are for well-formed packets only; leave it out.", "\"malformed\" cannot be negated")
	case s.Action == "protect":
		r.c.Errorf(t.Pos, "use: pass malformed.", "\"protect\" cannot be given to malformed frames")
	case len(s.Terms) > 1:
		r.c.Errorf(t.Pos, "the fields of a malformed frame mean nothing; remove the other terms.", "\"malformed\" stands alone")
	}
}

// protectLimit holds all protect rules to one look-up in a file or dynamic set.
func (r *resolver) protectLimit(all []resolvedTerm) {
	for _, t := range all {
		if t.term.Set == nil {
			continue
		}
		d := r.sets[t.term.Set.Name]
		if d.set.Kind != Dynamic && !d.file {
			continue
		}
		use := fmt.Sprintf("%s %s", t.src.Words(), d.set.Name)
		switch {
		case len(r.protectSets) == 0:
			r.protectSets = append(r.protectSets, use)
		case r.protectSets[0] != use:
			r.c.Errorf(t.src.Pos, "write the few addresses that must never be locked out as an inline set: set admins = { ... }.",
				"the protect rules use %q already; together they may look up one file or dynamic set", r.protectSets[0])
		}
	}
}

// numeric are the kinds of terms that take numbers.
var numeric = map[syntax.TermKind]struct {
	field Field
	num   *number
}{
	syntax.Port:      {DstPort, &portNumber},
	syntax.FromPort:  {SrcPort, &portNumber},
	syntax.Proto:     {Proto, &protoNumber},
	syntax.Len:       {Len, &lenNumber},
	syntax.TTL:       {TTL, &ttlNumber},
	syntax.DSCP:      {DSCP, &dscpNumber},
	syntax.VLAN:      {VLAN, &vlanNumber},
	syntax.InnerVLAN: {InnerVLAN, &vlanNumber},
	syntax.Ether:     {EtherType, &etherNumber},
}

// term resolves one term; it returns false after an error.
func (r *resolver) term(s *syntax.Term) (Term, bool) {
	t := Term{Not: s.Not, Pos: pos(s.Pos)}
	if n, ok := numeric[s.Kind]; ok {
		t.Field = n.field
		return t, r.numbers(&t, s, n.num)
	}
	switch s.Kind {
	case syntax.Family:
		t.Field = EtherType
		rg, _ := etherByName(s.Name)
		t.Ranges = []Range{rg}
	case syntax.ProtoName:
		t.Field = Proto
		rg, _ := protoByName(s.Name)
		t.Ranges = []Range{rg}
	case syntax.Untagged:
		t.Field, t.Ranges = Tags, []Range{{0, 0}}
	case syntax.Fragments:
		t.Field, t.Ranges = Fragment, []Range{{1, 1}}
	case syntax.Syn:
		t.Field, t.Mask, t.Value = TCPFlags, flagSYN|flagACK, flagSYN
	case syntax.Flags:
		t.Field = TCPFlags
		return t, r.flags(&t, s)
	case syntax.ICMPType:
		t.Field = ICMPType
		if s.Name == "icmp6" {
			t.Field = ICMP6Type
		}
		return t, r.each(s, func(text string) problem {
			rg, p := parseICMP(text, s.Name == "icmp6")
			t.Ranges = append(t.Ranges, rg)
			return p
		}, func() { t.Ranges = mergeRanges(t.Ranges) })
	case syntax.EtherFrom, syntax.EtherTo:
		t.Field = SrcMAC
		if s.Kind == syntax.EtherTo {
			t.Field = DstMAC
		}
		return t, r.each(s, func(text string) problem {
			m, p := parseMAC(text)
			t.Ranges = append(t.Ranges, Range{m, m})
			return p
		}, func() { t.Ranges = mergeRanges(t.Ranges) })
	case syntax.From, syntax.To:
		return t, r.address(&t, s)
	}
	return t, true
}

// each parses every element of a value, reports what is wrong and what is doubled, and calls done
// if all were right.
func (r *resolver) each(s *syntax.Term, parse func(string) problem, done func()) bool {
	ok := true
	var seen map[string]bool
	if len(s.Value.Elems) > 1 {
		seen = make(map[string]bool)
	}
	for i := range s.Value.Elems {
		e := &s.Value.Elems[i]
		if p := parse(e.Text); p.found() {
			r.problem(e.Pos, p)
			ok = false
		} else if seen[e.Text] {
			r.c.Warnf(e.Pos, "remove one of them.", "%s stands in the list already", short(e.Text))
		}
		if seen != nil {
			seen[e.Text] = true
		}
	}
	if ok {
		done()
	}
	return ok
}

// numbers resolves the value of a numeric term.
func (r *resolver) numbers(t *Term, s *syntax.Term, num *number) bool {
	v := s.Value
	isPort := s.Kind == syntax.Port || s.Kind == syntax.FromPort
	if isPort && (v.List || v.Op == "") && hasName(v) {
		return r.ports(t, s)
	}
	if v.Op != "" {
		e := &v.Elems[0]
		rg, p := num.one(e.Text)
		if !p.found() && rg.Lo != rg.Hi && v.Op != "!=" && v.Op != "=" {
			p = problemf("", "%q is more than one value", short(e.Text))
		}
		if !p.found() {
			t.Ranges, p = num.compare(v.Op, rg)
		}
		if p.found() {
			r.problem(e.Pos, p)
			return false
		}
		return true
	}
	return r.each(s, func(text string) problem {
		rg, p := num.element(text)
		t.Ranges = append(t.Ranges, rg)
		return p
	}, func() { t.Ranges = mergeRanges(t.Ranges) })
}

// hasName tells whether the name of a set stands in a value.
func hasName(v *syntax.Value) bool {
	for i := range v.Elems {
		if isName(v.Elems[i].Text) {
			return true
		}
	}
	return false
}

// ports resolves ports with the name of a set among them.
func (r *resolver) ports(t *Term, s *syntax.Term) bool {
	v := s.Value
	for i := range v.Elems { // names of services are no sets
		e := &v.Elems[i]
		if _, known := wellKnown[e.Text]; known && r.sets[e.Text] == nil || e.Text == "all" && r.sets["all"] == nil {
			r.problem(e.Pos, problemf(portHint(e.Text), "%q is not a port", e.Text))
			return false
		}
	}
	if !v.List {
		e := &v.Elems[0]
		d := r.lookup(e)
		if d == nil {
			return false
		}
		if d.set.Type != Ports || d.set.Kind == Dynamic {
			r.c.Errorf(e.Pos, useHint(d.set, e.Text), "%q is a set of %s, not of ports", short(e.Text), d.set.Type.plural())
			return false
		}
		t.Set = d.set
		return true
	}
	l, ok := r.list(v, Ports, "ports")
	t.Ranges = mergeRanges(l.ports)
	return ok
}

// useHint says how a set of this type is used.
func useHint(s *Set, name string) string {
	switch s.Type {
	case Ports:
		return fmt.Sprintf("a set of ports is used as: port %s, or from port %s.", name, name)
	case Services, Endpoints:
		return fmt.Sprintf("a set of %s is used as: to %s, or from %s.", s.Type.plural(), name, name)
	}
	return fmt.Sprintf("a set of addresses is used as: from %s, or to %s.", name, name)
}

// list resolves a list in a rule whose elements are of type want.
func (r *resolver) list(v *syntax.Value, want SetType, what string) (list, bool) {
	errors := r.c.Errors()
	l := list{r: r, dup: make(map[string]bool), typed: true, typ: want, what: "a list of " + what}
	for i := range v.Elems {
		l.add(&v.Elems[i])
	}
	return l, r.c.Errors() == errors
}

// address resolves the value of from and to.
func (r *resolver) address(t *Term, s *syntax.Term) bool {
	t.Field = fieldOf(s.Kind, Addresses)
	v, e := s.Value, &s.Value.Elems[0]
	switch {
	case v.List:
		return r.addressList(t, s)
	case e.Text == "any":
		if s.Not {
			r.c.Errorf(s.Pos, "remove the rule, or the \"not\".", "\"not %s any\" can never hold", s.Words()[len("not "):])
			return false
		}
		t.Prefixes = []netip.Prefix{
			netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0),
		}
		return true
	case isName(e.Text):
		if e.Text == "all" && r.sets["all"] == nil {
			r.problem(e.Pos, problemf(didYouMean("any"), "there is no set named \"all\""))
			return false
		}
		d := r.lookup(e)
		if d == nil {
			return false
		}
		if d.set.Type == Ports {
			r.c.Errorf(e.Pos, fmt.Sprintf("write: %s.", portForm(s, e.Text)), "%q is a set of ports, not of addresses", short(e.Text))
			return false
		}
		t.Field, t.Set = fieldOf(s.Kind, d.set.Type), d.set
		return true
	}
	return r.addressList(t, s)
}

// fieldOf is what from or to looks at, by the type of what stands behind it.
func fieldOf(k syntax.TermKind, t SetType) Field {
	from := k == syntax.From
	switch {
	case t == Services && from:
		return SrcService
	case t == Services:
		return DstService
	case t == Endpoints && from:
		return SrcEndpoint
	case t == Endpoints:
		return DstEndpoint
	case from:
		return SrcAddr
	}
	return DstAddr
}

// addressList resolves addresses, services or endpoints that stand in the rule itself.
func (r *resolver) addressList(t *Term, s *syntax.Term) bool {
	v := s.Value
	want := Addresses
	for i := range v.Elems { // the first that shows its type
		text := v.Elems[i].Text
		if d := r.sets[text]; d != nil {
			want = d.set.Type
			break
		}
		if c := classify(text); (c == Services || c == Endpoints) && !isName(text) {
			want = c
			break
		}
	}
	for i := range v.Elems {
		e := &v.Elems[i]
		if classify(e.Text) == Ports && want == Addresses {
			r.c.Errorf(e.Pos, fmt.Sprintf("for a port write: %s.", portForm(s, e.Text)), "%s is a number, not an address", short(e.Text))
			return false
		}
	}
	t.Field = fieldOf(s.Kind, want)
	l, ok := r.list(v, want, want.plural())
	t.Prefixes = mergePrefixes(l.prefixes)
	t.Services = mergeServices(l.services)
	t.Endpoints = mergeEndpoints(l.endpoints)
	return ok
}

func portForm(s *syntax.Term, text string) string {
	if s.Kind == syntax.From {
		return "from port " + short(text)
	}
	return "port " + short(text)
}
