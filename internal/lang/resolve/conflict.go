package resolve

import (
	"fmt"
	"slices"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
	"levee/internal/lang/scope"
)

// scopeOf returns the scope of a term; that of a set is found once, as sets may be large and used
// often.
func (r *resolver) scopeOf(t *policy.Term) scope.Scope {
	if t.Set == nil || t.Not {
		return scope.Of(t)
	}
	d := r.sets[t.Set.Name]
	if d.scope == nil {
		d.scope = new(scope.Of(t))
	}
	return *d.scope
}

// checkTogether reports terms that are doubled, or that no packet can have together.
func (r *resolver) checkTogether(all []resolvedTerm) {
	if !r.checkTwice(all) {
		return
	}
	so := scope.Everything
	for i := range all {
		s := r.scopeOf(&all[i].term)
		if so = so.With(s); !so.Empty() {
			continue
		}
		for j := range i {
			if r.scopeOf(&all[j].term).With(s).Empty() {
				r.conflict(&all[j], &all[i])
				return
			}
		}
		r.c.Errorf(all[i].src.Pos, because(&all[i]),
			"with %q no packet can match the terms before it", all[i].src.Words())
		return
	}
}

// checkTwice reports the second term about one field, unless a negation makes sense of it.
func (r *resolver) checkTwice(all []resolvedTerm) bool {
	for i := range all {
		b := &all[i]
		for j := range i {
			a := &all[j]
			if a.term.Field != b.term.Field {
				continue
			}
			if a.term.Not && b.term.Not && differ(&a.term, &b.term) {
				continue
			}
			if a.term.Bytes != nil && a.term.Bytes.At != b.term.Bytes.At {
				continue // other bytes
			}
			if a.term.Field == field.Contents && a.term.Pattern != b.term.Pattern {
				continue // a payload may contain both
			}
			same := sameValue(&a.term, &b.term)
			switch {
			case same && a.term.Not != b.term.Not:
				r.c.Errorf(b.src.Pos, "remove one of the two, or the rule.",
					"%q and %q contradict each other: no packet can match", a.src.Text(),
					b.src.Text())
			case a.term.Not != b.term.Not, a.term.Not && !same:
				continue
			case same:
				r.c.Errorf(b.src.Pos, "remove one of the two.", "%q is given twice", b.src.Text())
			default:
				r.c.Errorf(b.src.Pos, twiceHint(a, b),
					"%q and %q are about the same field, and all terms of a rule must hold",
					a.src.Text(), b.src.Text())
			}
			return false
		}
	}
	return true
}

func sameValue(a, b *policy.Term) bool {
	return a.Set == b.Set && a.Mask == b.Mask && a.Value == b.Value && a.Bytes.Equal(b.Bytes) &&
		a.Inner == b.Inner && a.Pattern == b.Pattern && a.Unknown == b.Unknown &&
		a.Names == b.Names &&
		slices.Equal(a.Ranges, b.Ranges) && slices.Equal(a.Prefixes, b.Prefixes) &&
		slices.Equal(a.Services(), b.Services()) &&
		slices.Equal(a.Endpoints(), b.Endpoints())
}

// differ tells at a glance that two terms have not the same value: rules may exclude many prefixes
// one by one.
func differ(a, b *policy.Term) bool {
	return len(a.Prefixes) > 0 && len(b.Prefixes) > 0 && a.Prefixes[0] != b.Prefixes[0]
}

// twiceHint says how to write what two terms about one field were probably meant to be.
func twiceHint(first, second *resolvedTerm) string {
	a, b := first.src, second.src
	switch {
	case b.Kind == ast.Family && a.Kind == ast.Family:
		return "a rule without a family matches IPv4 and IPv6; otherwise write one rule for each."
	case b.Field == field.Inner:
		return "write all terms in one pair of parentheses."
	case b.Field == field.Payload:
		return "for either of them write two rules."
	case b.Field == field.DNSName:
		return "for any of them write a list: dns name in { \"a.org\", \"b.org\" }."
	case b.Field == field.EtherType:
		return "for either of them write a list: ether { ipv4, arp }."
	case b.Kind == ast.ProtoName && a.Kind == ast.ProtoName:
		return fmt.Sprintf("for either of them write: proto { %s, %s }.", a.Name, b.Name)
	case b.Field == field.Proto:
		return "for either of them write a list: proto { tcp, udp }."
	case b.Field == field.TCPFlags:
		return "write all flags in one term: flags syn/syn,ack,rst."
	case a.Value != nil && a.Value.Op != ast.NoOp && b.Value != nil && b.Value.Op != ast.NoOp:
		x, y := first.term.Ranges, second.term.Ranges
		if lo, hi := max(x[0].Lo, y[0].Lo), min(x[len(x)-1].Hi, y[len(y)-1].Hi); len(x) == 1 &&
			len(y) == 1 && lo <= hi {
			return fmt.Sprintf("write a range: %s %d-%d.", b.Words(), lo, hi)
		}
		return "no value is both."
	case b.Value != nil && b.Value.Op == ast.NoOp && !b.Value.List &&
		a.Value.Op == ast.NoOp && !a.Value.List:
		return fmt.Sprintf("for either of them write a list: %s { %s, %s }.", b.Words(),
			diag.Clip(a.Value.Elems[0].Text), diag.Clip(b.Value.Elems[0].Text))
	}
	return fmt.Sprintf("for either of them write one list: %s { ..., ... }.", b.Words())
}

// conflict reports two terms, a before b, that no packet can have together.
func (r *resolver) conflict(a, b *resolvedTerm) {
	at, first, second := b.src.Pos, a.src.Text(), b.src.Text()
	if weight(a) > weight(b) {
		a, b = b, a
	}
	hint := because(b)
	isICMP := b.term.Field == field.ICMPType || b.term.Field == field.ICMP6Type
	isAddr := func(f field.Field) bool { return f.Info().Compare == field.ByPrefix }
	switch {
	case isICMP && a.term.Field == field.Proto:
		hint = fmt.Sprintf("\"%s type\" names the protocol; leave %q out.", b.src.Name,
			a.src.Text())
	case isAddr(a.term.Field) && isAddr(b.term.Field):
		hint = "source and destination of a packet are of one family; write a rule for each."
	case isAddr(b.term.Field) && scope.Of(&a.term).Ether&scope.IP == 0:
		hint = "only ipv4 and ipv6 packets have IP addresses."
	case len(b.term.Services()) > 0 && a.term.Field == field.Proto &&
		(a.src.Kind != ast.ProtoName || holdsPorts(&a.term)):
		hint = fmt.Sprintf("%q has services of other protocols only.", b.src.Text())
	case len(b.term.Endpoints()) > 0:
		hint = fmt.Sprintf("%q has endpoints of other families or protocols only.", b.src.Text())
	}
	r.c.Errorf(at, hint, "%q and %q contradict each other: no packet can match", first, second)
}

// holdsPorts says whether a term names a protocol with ports.
func holdsPorts(t *policy.Term) bool {
	return slices.ContainsFunc(field.InPorts.Presence().Protos,
		func(p uint8) bool { return scope.Holds(t.Ranges, uint64(p)) })
}

// weight orders reasons: the more particular one is given.
func weight(t *resolvedTerm) int {
	info := t.term.Field.Info()
	p := info.Header.Presence()
	switch {
	case info.Compare == field.ByPair && info.Address != field.None:
		return 4
	case p.Protos != nil || p.Tags > 0:
		return 3
	case info.Compare == field.ByPrefix:
		return 2
	}
	return 1
}

// because says what a term needs.
func because(t *resolvedTerm) string {
	info := t.term.Field.Info()
	if info.Compare == field.ByPrefix {
		switch scope.Of(&t.term).Ether {
		case scope.IPv4:
			return fmt.Sprintf("%q has IPv4 addresses only.", t.src.Text())
		case scope.IPv6:
			return fmt.Sprintf("%q has IPv6 addresses only.", t.src.Text())
		}
	}
	if info.Needs == "" && info.Header == field.InIP {
		return fmt.Sprintf("only ipv4 and ipv6 packets have what %q looks at.", t.src.Words())
	}
	return info.Needs
}
