package policy

import (
	"fmt"
	"slices"

	"levee/internal/lang/ast"
	"levee/internal/lang/field"
)

// scope is which packets can have all that a term asks for, as far as families, protocols and
// tags go. A rule whose terms leave no packet is a mistake that is explained, not a rule.
type scope struct {
	eth    uint8 // bits ethIPv4 ...
	protos [4]uint64
	tags   uint8 // bit n: n tags
}

const (
	ethIPv4 = 1 << iota
	ethIPv6
	ethARP
	ethOther
	ethIP  = ethIPv4 | ethIPv6
	ethAll = ethIP | ethARP | ethOther
)

const allTags = 1<<0 | 1<<1 | 1<<2

var everything = scope{eth: ethAll,
	protos: [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}, tags: allTags}

func (s scope) with(o scope) scope {
	s.eth &= o.eth
	s.tags &= o.tags
	for i := range s.protos {
		s.protos[i] &= o.protos[i]
	}
	return s
}

func (s scope) empty() bool {
	if s.eth&(ethARP|ethOther) == 0 && s.protos == [4]uint64{} {
		return true
	}
	return s.eth == 0 || s.tags == 0
}

func protoSet(values ...uint8) (p [4]uint64) {
	for _, v := range values {
		p[v/64] |= 1 << (v % 64)
	}
	return p
}

// protosOf are the protocols that a term on them asks for. Most rules have one, which asks for one.
func protosOf(t *Term) (p [4]uint64) {
	for _, r := range t.Ranges {
		for v := r.Lo; v <= min(r.Hi, 255); v++ {
			p[v/64] |= 1 << (v % 64)
		}
	}
	if t.Not {
		for i := range p {
			p[i] = ^p[i]
		}
	}
	return p
}

// scopeOf is the scope of a term; that of a set is found once, as sets may be large and used often.
func (r *resolver) scopeOf(t *Term) scope {
	if t.Set == nil || t.Not {
		return scopeOf(t)
	}
	d := r.sets[t.Set.Name]
	if d.scope == nil {
		d.scope = new(scopeOf(t))
	}
	return *d.scope
}

// scopeOf is the scope of a term: the packets that have its field, or of fields that tell packets
// apart those that have what it asks for.
func scopeOf(t *Term) scope {
	s := headerScopes[t.Field.Info().Header]
	switch {
	case t.Field == field.Proto:
		s.protos = protosOf(t)
	case t.Field == field.EtherType:
		s.eth = etherScope(t)
	case t.Field == field.Tags:
		s.tags = 0
		for n := range uint64(3) {
			if holds(t.Ranges, n) != t.Not {
				s.tags |= 1 << n
			}
		}
	case t.Not:
	case len(t.Addresses()) > 0:
		ps := t.Addresses()
		s.eth = 0
		if ps[0].Addr().Is4() { // sorted: IPv4 first
			s.eth |= ethIPv4
		}
		if !ps[len(ps)-1].Addr().Is4() {
			s.eth |= ethIPv6
		}
	case len(t.Endpoints()) > 0:
		s = endpointScope(t.Endpoints())
	case len(t.Services()) > 0:
		s.protos = [4]uint64{}
		for _, sv := range t.Services() {
			s.protos[sv.Proto/64] |= 1 << (sv.Proto % 64)
		}
	}
	return s
}

// headerScopes are the packets that have each header.
var headerScopes = func() (out [field.NumHeaders]scope) {
	for h := range out {
		p := field.Header(h).Presence()
		s := everything
		s.eth = 0
		if p.NotIP {
			s.eth |= ethARP | ethOther
		}
		if p.IPv4 {
			s.eth |= ethIPv4
		}
		if p.IPv6 {
			s.eth |= ethIPv6
		}
		if p.Protos != nil {
			s.protos = protoSet(p.Protos...)
		}
		s.tags &^= 1<<p.Tags - 1
		out[h] = s
	}
	return out
}()

func endpointScope(all []Element) scope {
	s := scope{tags: allTags}
	for _, e := range all {
		s.protos[e.Service.Proto/64] |= 1 << (e.Service.Proto % 64)
		if e.Prefix.Addr().Is4() {
			s.eth |= ethIPv4
		} else {
			s.eth |= ethIPv6
		}
	}
	return s
}

func etherScope(t *Term) (eth uint8) {
	for _, e := range []struct {
		value uint64
		bit   uint8
	}{{0x0800, ethIPv4}, {0x86dd, ethIPv6}, {0x0806, ethARP}} {
		if holds(t.Ranges, e.value) != t.Not {
			eth |= e.bit
		}
	}
	named := []field.Range{{Lo: 0x0800, Hi: 0x0800}, {Lo: 0x0806, Hi: 0x0806},
		{Lo: 0x86dd, Hi: 0x86dd}}
	other := t.Not
	for _, r := range t.Ranges {
		other = other || !slices.Contains(named, r)
	}
	if other {
		eth |= ethOther
	}
	return eth
}

func holds(rs []field.Range, v uint64) bool {
	for _, r := range rs {
		if v >= r.Lo && v <= r.Hi {
			return true
		}
	}
	return false
}

// checkTogether reports terms that are doubled, or that no packet can have together.
func (r *resolver) checkTogether(all []resolvedTerm) {
	if !r.checkTwice(all) {
		return
	}
	so := everything
	for i := range all {
		s := r.scopeOf(&all[i].term)
		if so = so.with(s); !so.empty() {
			continue
		}
		for j := range i {
			if r.scopeOf(&all[j].term).with(s).empty() {
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

func sameValue(a, b *Term) bool {
	return a.Set == b.Set && a.Mask == b.Mask && a.Value == b.Value && a.Bytes.Equal(b.Bytes) &&
		a.Inner == b.Inner && a.Pattern == b.Pattern && a.Unknown == b.Unknown &&
		a.Names == b.Names &&
		slices.Equal(a.Ranges, b.Ranges) && slices.Equal(a.Prefixes, b.Prefixes) &&
		slices.Equal(a.Services(), b.Services()) &&
		slices.Equal(a.Endpoints(), b.Endpoints())
}

// differ tells at a glance that two terms have not the same value: rules may exclude many prefixes
// one by one.
func differ(a, b *Term) bool {
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
			short(a.Value.Elems[0].Text), short(b.Value.Elems[0].Text))
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
	case isAddr(b.term.Field) && scopeOf(&a.term).eth&ethIP == 0:
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
func holdsPorts(t *Term) bool {
	return slices.ContainsFunc(field.InPorts.Presence().Protos,
		func(p uint8) bool { return holds(t.Ranges, uint64(p)) })
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
		switch scopeOf(&t.term).eth {
		case ethIPv4:
			return fmt.Sprintf("%q has IPv4 addresses only.", t.src.Text())
		case ethIPv6:
			return fmt.Sprintf("%q has IPv6 addresses only.", t.src.Text())
		}
	}
	if info.Needs == "" && info.Header == field.InIP {
		return fmt.Sprintf("only ipv4 and ipv6 packets have what %q looks at.", t.src.Words())
	}
	return info.Needs
}
