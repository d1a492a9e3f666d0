package policy

import (
	"fmt"
	"net/netip"
	"strings"

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
	seen := make(map[string]bool)
	for i := range s.Value.Elems {
		e := &s.Value.Elems[i]
		if p := parse(e.Text); p.found() {
			r.problem(e.Pos, p)
			ok = false
		} else if seen[e.Text] {
			r.c.Warnf(e.Pos, "remove one of them.", "%s stands in the list already", short(e.Text))
		}
		seen[e.Text] = true
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
	case Services:
		return fmt.Sprintf("a set of services is used as: to %s, or from %s.", name, name)
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
	addr, service := SrcAddr, SrcService
	if s.Kind == syntax.To {
		addr, service = DstAddr, DstService
	}
	t.Field = addr
	v, e := s.Value, &s.Value.Elems[0]
	switch {
	case v.List:
		return r.addressList(t, s, service)
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
		if d.set.Type == Services {
			t.Field = service
		}
		t.Set = d.set
		return true
	}
	return r.addressList(t, s, service)
}

// addressList resolves addresses or services that stand in the rule itself.
func (r *resolver) addressList(t *Term, s *syntax.Term, service Field) bool {
	v := s.Value
	want := Addresses
	for i := range v.Elems { // the first that shows its type
		text := v.Elems[i].Text
		if d := r.sets[text]; d != nil {
			want = d.set.Type
			break
		}
		if c := classify(text); c == Services && !isName(text) {
			want = Services
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
	what := "addresses"
	if want == Services {
		what, t.Field = "services", service
	}
	l, ok := r.list(v, want, what)
	t.Prefixes = mergePrefixes(l.prefixes)
	t.Services = mergeServices(l.services)
	return ok
}

func portForm(s *syntax.Term, text string) string {
	if s.Kind == syntax.From {
		return "from port " + short(text)
	}
	return "port " + short(text)
}

// TCP flags (RFC 9293 section 3.1, RFC 3168).
const (
	flagSYN = 0x02
	flagACK = 0x10
)

var flagBits = map[string]uint8{
	"fin": 0x01, "syn": flagSYN, "rst": 0x04, "psh": 0x08, "ack": flagACK, "urg": 0x20, "ece": 0x40, "cwr": 0x80,
}

// flags resolves `flags F` and `flags F/M`.
func (r *resolver) flags(t *Term, s *syntax.Term) bool {
	e := &s.Value.Elems[0]
	set, mask, slash := strings.Cut(e.Text, "/")
	if m := pfFlags(set); m != "" {
		if slash {
			m += "/" + pfFlags(mask)
		}
		r.c.Errorf(e.Pos, fmt.Sprintf("did you mean \"flags %s\"?", m), "%q are not TCP flags of levee", short(e.Text))
		return false
	}
	value, none, p := parseFlags(set)
	if !p.found() && slash {
		var noMask bool
		t.Mask, noMask, p = parseFlags(mask)
		switch {
		case p.found():
		case noMask:
			p = problemf("after the slash stand the flags that are looked at.", "\"none\" cannot stand after the slash")
		case value&^t.Mask != 0:
			p = problemf("name before the slash only flags that stand after it too.", "%q can never hold: it wants a flag set that it does not look at", short(e.Text))
		}
	} else if !p.found() {
		t.Mask = value
		if none {
			p = problemf("say which flags must be clear: flags none/fin,syn,rst,psh,ack,urg.", "\"flags none\" looks at no flag")
		}
	}
	if p.found() {
		r.problem(e.Pos, p)
		return false
	}
	t.Value = value
	return true
}

// pfFlags translates the flag letters of pf and tcpdump, or returns "".
func pfFlags(letters string) string {
	var names []string
	for _, c := range letters {
		name, ok := map[rune]string{'F': "fin", 'S': "syn", 'R': "rst", 'P': "psh", 'A': "ack", 'U': "urg", 'E': "ece", 'W': "cwr"}[c]
		if !ok || len(letters) > len(flagBits) || letters == "PUSH" {
			return ""
		}
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

// parseFlags reads "syn,ack" or "none".
func parseFlags(text string) (bits uint8, none bool, p problem) {
	if text == "none" {
		return 0, true, problem{}
	}
	for name := range strings.SplitSeq(text, ",") {
		b, ok := flagBits[name]
		if !ok {
			return 0, false, flagProblem(name)
		}
		bits |= b
	}
	return bits, false, problem{}
}

func flagProblem(name string) problem {
	if name == "none" {
		return problemf("\"none\" stands alone: flags none/syn,ack.", "\"none\" cannot be combined with other flags")
	}
	hint := "flags are fin, syn, rst, psh, ack, urg, ece, cwr and none."
	lower := strings.ToLower(name)
	if _, ok := flagBits[lower]; ok {
		hint = didYouMean(lower)
	} else if long, ok := map[string]string{"push": "psh", "reset": "rst", "urgent": "urg"}[lower]; ok {
		hint = didYouMean(long)
	}
	return problemf(hint, "%q is not a TCP flag", short(name))
}

// parseICMP reads a type, a range of types, a name, or either with a code: 8, 3/4, echo-request.
func parseICMP(text string, six bool) (Range, problem) {
	types := number{what: "an ICMP type", max: 255, hint: func(s string) string { return icmpHint(s, six) }, names: func(s string) (Range, bool) {
		v, ok := icmpNames(six)[s]
		return Range{uint64(v), uint64(v)}, ok
	}}
	typ, code, slash := strings.Cut(text, "/")
	rg, p := types.element(typ)
	if p.found() {
		return rg, p
	}
	if !slash {
		return Range{rg.Lo << 8, rg.Hi<<8 | 255}, problem{}
	}
	if rg.Lo != rg.Hi {
		return rg, problemf("write each type with its code: { 3/4, 11/0 }.", "a code belongs to one type, not to a range")
	}
	codes := number{what: "an ICMP code", max: 255}
	c, p := codes.element(code)
	return Range{rg.Lo<<8 | c.Lo, rg.Lo<<8 | c.Hi}, p
}

// parseMAC reads six pairs of hex digits with colons between them.
func parseMAC(text string) (uint64, problem) {
	const form = "write six pairs of hex digits: 02:00:00:00:00:01."
	parts := strings.Split(text, ":")
	var v uint64
	if len(parts) == 6 {
		for i, s := range parts {
			n, err := parseUint("0x" + s)
			if len(s) != 2 || err != nil {
				break
			}
			if v = v<<8 | n; i == 5 {
				return v, problem{}
			}
		}
	}
	hint := form
	if strings.Count(text, "-") == 5 && len(text) == 17 {
		hint = didYouMean(strings.ReplaceAll(text, "-", ":"))
	}
	return 0, problemf(hint, "%q is not an Ethernet address", short(text))
}
