package resolve

import (
	"fmt"
	"net/netip"
	"slices"

	"levee/internal/lang/action"
	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// match resolves the terms of a rule.
func (r *resolver) match(s *ast.Rule, rule *policy.Rule) {
	for i := range s.Terms {
		if t := &s.Terms[i]; t.Kind == ast.Malformed {
			r.malformed(s, t, rule)
			rule.Malformed = true
			return
		}
	}
	errors := r.c.Errors()
	all := r.resolveTerms(s.Terms, r.terms[:0])
	r.terms = all
	if rule.Action.First() {
		r.protectLimit(all)
	}
	if r.c.Errors() != errors {
		return
	}
	r.checkTogether(all)
	if of := rule.Action.Info().Connection; of != nil && s.Answers == action.SYNs {
		r.connectionTerms(s, all, of)
	}
	if s.Answers != action.SYNs {
		r.overUDP(s, all)
	}
	if rule.Action == action.Track {
		r.fragmentTerms(all)
	}
	if rule.Limit != nil {
		all = r.keyTerms(s.Limit, rule, all)
		r.terms = all
	}
	if rule.Greylist != nil {
		all = r.flowTerms(s, all)
		r.terms = all
	}
	if rule.Action.First() {
		r.protectInner(all)
		r.dnsTerms(all, "a protect rule")
	}
	rule.Match = r.keep(all)
}

// resolveTerms appends what terms mean to all, but for those with errors.
func (r *resolver) resolveTerms(terms []ast.Term, all []resolvedTerm) []resolvedTerm {
	for i := range terms { // in the order of the source, for the diagnostics
		all = append(all, resolvedTerm{src: &terms[i]})
		if t := &all[len(all)-1]; !r.term(&t.term, t.src) {
			all = all[:len(all)-1]
		}
	}
	return all
}

// keep gives terms their place, in the order in which they are printed.
func (r *resolver) keep(all []resolvedTerm) []policy.Term {
	slices.SortStableFunc(all, func(a, b resolvedTerm) int { return a.src.Rank() - b.src.Rank() })
	if len(all) == 0 {
		return nil
	}
	match := r.keptTerms.Take(len(all))
	for i := range all {
		match[i] = all[i].term
	}
	return match
}

// resolvedTerm is a term with its source.
type resolvedTerm struct {
	src  *ast.Term
	term policy.Term
}

func (r *resolver) malformed(s *ast.Rule, t *ast.Term, rule *policy.Rule) {
	info := rule.Action.Info()
	switch {
	case t.Not:
		r.c.Errorf(t.Pos, "all other rules are for well-formed packets only; leave it out.",
			"\"malformed\" cannot be negated")
	case info.Effect && info.May&action.MayMeetMalformed == 0:
		r.c.Errorf(t.Pos, "malformed frames are dropped without it.",
			"%q cannot be given to malformed frames", s.Action)
	case rule.Action.First():
		r.c.Errorf(t.Pos, "use: pass malformed.", "%q cannot be given to malformed frames",
			s.Action)
	case len(s.Terms) > 1:
		r.c.Errorf(t.Pos, "the fields of a malformed frame mean nothing; remove the other terms.",
			"\"malformed\" stands alone")
	}
}

// protectLimit holds all protect rules to one look-up in a file or dynamic set.
func (r *resolver) protectLimit(all []resolvedTerm) {
	for _, t := range all {
		if t.term.Set == nil {
			continue
		}
		d := r.sets[t.term.Set.Name]
		if d.set.Kind != policy.Dynamic && !d.file {
			continue
		}
		use := fmt.Sprintf("%s %s", t.src.Words(), d.set.Name)
		switch {
		case len(r.protectSets) == 0:
			r.protectSets = append(r.protectSets, use)
		case r.protectSets[0] != use:
			r.c.Errorf(t.src.Pos, "write the few addresses that must never be locked out as an "+
				"inline set: set admins = { ... }.",
				"the protect rules use %q already; together they may look up one file or "+
					"dynamic set", r.protectSets[0])
		}
	}
}

// term resolves one term into t, which is zero; it returns false after an error.
func (r *resolver) term(t *policy.Term, s *ast.Term) bool {
	t.Not, t.Pos, t.Field = s.Not, r.pos(s.Pos), s.Field
	switch s.Kind {
	case ast.Number:
		return r.numbers(t, s)
	case ast.Family, ast.ProtoName:
		rg, _ := s.Field.Named(s.Name)
		t.Ranges = r.keptRanges.Keep([]field.Range{rg})
	case ast.Alone:
		ph := s.Phrase()
		if t.Mask, t.Value = ph.Mask, ph.Value; t.Mask == 0 {
			t.Ranges = r.keptRanges.Keep([]field.Range{ph.Range})
		}
	case ast.Flags:
		return r.flags(t, s)
	case ast.ICMPType:
		return r.each(t, s, func(text string) (field.Range, diag.Problem) {
			return literal.ICMP(text, s.Field)
		})
	case ast.EtherAddr:
		return r.each(t, s, func(text string) (field.Range, diag.Problem) {
			m, p := literal.MAC(text)
			return field.Range{Lo: m, Hi: m}, p
		})
	case ast.Bytes:
		e := &s.Value.Elems[0]
		b, p := literal.Bytes(e.Text)
		if p.Found() {
			r.problem(e.Pos, p)
			return false
		}
		t.Bytes = b
		r.look(s)
	case ast.Pattern:
		if !r.search(t, s) {
			return false
		}
		r.look(s)
	case ast.Inner:
		return r.inner(t, s)
	case ast.DNSName:
		return r.dnsNames(t, s)
	case ast.Sender:
		return r.sender(t, s)
	case ast.Suffix:
		return r.each(t, s, literal.Suffix)
	case ast.From, ast.To:
		return r.address(t, s)
	}
	return true
}

// maxLooks is the largest number of terms on the payload in a policy: each is code of its own, and
// the kernel's verifier takes a million instructions.
const maxLooks = 1024

// look counts a term on the payload.
func (r *resolver) look(s *ast.Term) {
	if r.looks++; r.looks == maxLooks+1 {
		r.c.Errorf(s.Pos, "compare the bytes that many of them share.",
			"a policy has at most %d terms on the payload", maxLooks)
	}
}

// each parses every element of a value into ranges, and reports what is wrong and what is doubled.
func (r *resolver) each(t *policy.Term, s *ast.Term,
	parse func(string) (field.Range, diag.Problem)) bool {
	ok, all := true, r.scratch.Ports[:0]
	r.duplicates.begin(len(s.Value.Elems))
	for i := range s.Value.Elems {
		e := &s.Value.Elems[i]
		rg, p := parse(e.Text)
		double := r.duplicates.add(e.Text)
		if p.Found() {
			r.problem(e.Pos, p)
			ok = false
		} else if double {
			r.c.Warnf(e.Pos, "remove one of them.", "%s stands in the list already",
				diag.Clip(e.Text))
		}
		all = append(all, rg)
	}
	r.scratch.Ports = all
	if ok {
		t.Ranges = r.keptRanges.Keep(field.Join(all))
	}
	return ok
}

// numbers resolves the value of a numeric term.
func (r *resolver) numbers(t *policy.Term, s *ast.Term) bool {
	v, num := s.Value, literal.Numbers[s.Field]
	if s.Field.Info().Header == field.InPorts && (v.List || v.Op == ast.NoOp) && hasName(v) {
		return r.ports(t, s)
	}
	if v.Op != ast.NoOp {
		e := &v.Elems[0]
		rg, p := num.One(e.Text)
		if !p.Found() && rg.Lo != rg.Hi && v.Op != ast.NotEqual && v.Op != ast.Equal {
			p = diag.Problemf("", "%q is more than one value", diag.Clip(e.Text))
		}
		if !p.Found() {
			t.Ranges, p = num.Compare(v.Op, rg)
		}
		if p.Found() {
			r.problem(e.Pos, p)
			return false
		}
		return true
	}
	return r.each(t, s, num.Element)
}

// hasName tells whether the name of a set stands in a value.
func hasName(v *ast.Value) bool {
	for i := range v.Elems {
		if literal.IsName(v.Elems[i].Text) {
			return true
		}
	}
	return false
}

// ports resolves ports with the name of a set among them.
func (r *resolver) ports(t *policy.Term, s *ast.Term) bool {
	v := s.Value
	for i := range v.Elems { // names of services are no sets
		e := &v.Elems[i]
		if _, known := literal.WellKnown[e.Text]; known && r.sets[e.Text] == nil ||
			e.Text == "all" &&
				r.sets["all"] == nil {
			r.problem(e.Pos, diag.Problemf(literal.PortHint(e.Text), "%q is not a port", e.Text))
			return false
		}
	}
	if !v.List {
		e := &v.Elems[0]
		d := r.lookup(e)
		if d == nil {
			return false
		}
		if d.set.Type != policy.Ports || d.set.Kind == policy.Dynamic {
			r.c.Errorf(e.Pos, useHint(d.set, e.Text), "%q is a set of %s, not of ports",
				diag.Clip(e.Text), d.set.Type.String())
			return false
		}
		t.Set = d.set
		return true
	}
	l := r.newList(len(v.Elems))
	ok := l.all(v, policy.Ports, "a list of ports")
	t.Ranges = r.keptRanges.Keep(field.Join(l.Ports))
	r.done(&l)
	return ok
}

// useHint says how a set of this type is used.
func useHint(s *policy.Set, name string) string {
	switch s.Type {
	case policy.Ports:
		return fmt.Sprintf("a set of ports is used as: port %s, or from port %s.", name, name)
	case policy.Services, policy.Endpoints:
		return fmt.Sprintf("a set of %s is used as: to %s, or from %s.", s.Type.String(), name,
			name)
	case policy.Names:
		return fmt.Sprintf("a set of names is used as: dns name in %s.", name)
	}
	return fmt.Sprintf("a set of addresses is used as: from %s, or to %s.", name, name)
}

// all resolves a list in a rule whose elements are of type want; what says so.
func (l *list) all(v *ast.Value, want policy.SetType, what string) bool {
	errors := l.r.c.Errors()
	l.typed, l.typ, l.what = true, want, what
	for i := range v.Elems {
		l.add(&v.Elems[i])
	}
	return l.r.c.Errors() == errors
}

// address resolves the value of from and to.
func (r *resolver) address(t *policy.Term, s *ast.Term) bool {
	t.Field = fieldOf(s.Kind, policy.Addresses)
	v, e := s.Value, &s.Value.Elems[0]
	switch {
	case v.List:
		return r.addressList(t, s)
	case e.Text == "any":
		if s.Not {
			r.c.Errorf(s.Pos, "remove the rule, or the \"not\".", "\"not %s any\" can never hold",
				s.Words()[len("not "):])
			return false
		}
		t.Prefixes = []netip.Prefix{
			netip.PrefixFrom(netip.IPv4Unspecified(), 0),
			netip.PrefixFrom(netip.IPv6Unspecified(), 0),
		}
		return true
	case literal.IsName(e.Text):
		if e.Text == "all" && r.sets["all"] == nil {
			r.problem(e.Pos, diag.Problemf(diag.DidYouMean("any"), "there is no set named \"all\""))
			return false
		}
		d := r.lookup(e)
		if d == nil {
			return false
		}
		if d.set.Type == policy.Names {
			r.c.Errorf(e.Pos, useHint(d.set, e.Text), "%q is a set of names, not of addresses",
				diag.Clip(e.Text))
			return false
		}
		if d.set.Type == policy.Ports {
			r.c.Errorf(e.Pos, fmt.Sprintf("write: %s.", portForm(s, e.Text)),
				"%q is a set of ports, not of addresses", diag.Clip(e.Text))
			return false
		}
		t.Field, t.Set = fieldOf(s.Kind, d.set.Type), d.set
		return true
	}
	return r.addressList(t, s)
}

// fieldOf returns what from or to looks at, by the type of what stands behind it.
func fieldOf(k ast.TermKind, t policy.SetType) field.Field {
	from := k == ast.From
	switch {
	case t == policy.Services && from:
		return field.SrcService
	case t == policy.Services:
		return field.DstService
	case t == policy.Endpoints && from:
		return field.SrcEndpoint
	case t == policy.Endpoints:
		return field.DstEndpoint
	case from:
		return field.SrcAddr
	}
	return field.DstAddr
}

// addressList resolves addresses, services or endpoints that stand in the rule itself.
func (r *resolver) addressList(t *policy.Term, s *ast.Term) bool {
	v := s.Value
	if len(v.Elems) == 1 { // most of them
		if p, ok := literal.PlainIPv4(v.Elems[0].Text); ok && r.elements < r.most {
			r.elements++
			t.Prefixes = r.keptPrefixes.Keep([]netip.Prefix{p})
			return true
		}
	}
	want := policy.Addresses
	for i := range v.Elems { // the first that shows its type
		text := v.Elems[i].Text
		if literal.MayBeName(text) {
			if d := r.named(text); d != nil {
				want = d.set.Type
				break
			}
		}
		if c := literal.LooksLike(text); (c == policy.Services || c == policy.Endpoints) &&
			!literal.IsName(text) {
			want = c
			break
		}
	}
	for i := range v.Elems {
		e := &v.Elems[i]
		if want == policy.Addresses && literal.LooksLike(e.Text) == policy.Ports {
			r.c.Errorf(e.Pos, fmt.Sprintf("for a port write: %s.", portForm(s, e.Text)),
				"%s is a number, not an address", diag.Clip(e.Text))
			return false
		}
	}
	t.Field = fieldOf(s.Kind, want)
	l := r.newList(len(v.Elems))
	ok := l.all(v, want, listOf+want.String())
	r.merge(&l.Elements, v.Pos)
	t.Prefixes = r.keptPrefixes.Keep(l.Prefixes)
	if len(l.Services)+len(l.Endpoints) > 0 {
		t.Given = r.keptGiven.One()
		t.Given.Services = r.keptServices.Keep(l.Services)
		t.Given.Endpoints = r.keptEndpoints.Keep(l.Endpoints)
	}
	r.done(&l)
	return ok && !r.overspent
}

func portForm(s *ast.Term, text string) string {
	if s.Kind == ast.From {
		return "from port " + diag.Clip(text)
	}
	return "port " + diag.Clip(text)
}
