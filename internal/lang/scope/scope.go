// Package scope tells which packets can have what a term asks for, as far as families, protocols
// and tags go.
//
// In goes a term, out comes its scope; scopes intersect. It must never refuse a packet that a term
// matches: a scope may be too wide, and never too narrow.
package scope

import (
	"slices"

	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Scope says which packets can have all that a term asks for, as far as families, protocols and
// tags go. A rule whose terms leave no packet is a mistake that is explained, not a rule.
type Scope struct {
	Ether     uint8 // bits IPv4 ...
	Protocols [4]uint64
	Tags      uint8 // bit n: n tags
}

const (
	IPv4 = 1 << iota
	IPv6
	ARP
	Other
	IP  = IPv4 | IPv6
	All = IP | ARP | Other
)

const allTags = 1<<0 | 1<<1 | 1<<2

// Everything is the scope of a rule without terms.
var Everything = Scope{Ether: All,
	Protocols: [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}, Tags: allTags}

// With returns the scope of packets that are in both.
func (s Scope) With(o Scope) Scope {
	s.Ether &= o.Ether
	s.Tags &= o.Tags
	for i := range s.Protocols {
		s.Protocols[i] &= o.Protocols[i]
	}
	return s
}

// Empty reports whether no packet is in the scope.
func (s Scope) Empty() bool {
	if s.Ether&(ARP|Other) == 0 && s.Protocols == [4]uint64{} {
		return true
	}
	return s.Ether == 0 || s.Tags == 0
}

// Protocols returns a set of protocols, a bit for each number.
func Protocols(values ...uint8) (p [4]uint64) {
	for _, v := range values {
		p[v/64] |= 1 << (v % 64)
	}
	return p
}

// protosOf returns the protocols that a term on them asks for. Most rules have one, which asks for
// one.
func protosOf(t *policy.Term) (p [4]uint64) {
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

// Of returns the scope of a term: the packets that have its field. For fields that define scopes
// themselves, such as the protocol, it is the packets with the values of the term.
func Of(t *policy.Term) Scope {
	s := headerScopes[t.Field.Info().Header]
	switch {
	case t.Field == field.Proto:
		s.Protocols = protosOf(t)
	case t.Field == field.EtherType:
		s.Ether = etherScope(t)
	case t.Field == field.Tags:
		s.Tags = 0
		for n := range uint64(3) {
			if Holds(t.Ranges, n) != t.Not {
				s.Tags |= 1 << n
			}
		}
	case t.Not:
	case len(t.Addresses()) > 0:
		ps := t.Addresses()
		s.Ether = 0
		if ps[0].Addr().Is4() { // sorted: IPv4 first
			s.Ether |= IPv4
		}
		if !ps[len(ps)-1].Addr().Is4() {
			s.Ether |= IPv6
		}
	case len(t.Endpoints()) > 0:
		s = endpointScope(t.Endpoints())
	case len(t.Services()) > 0:
		s.Protocols = [4]uint64{}
		for _, sv := range t.Services() {
			s.Protocols[sv.Proto/64] |= 1 << (sv.Proto % 64)
		}
	}
	return s
}

// headerScopes are the packets that have each header.
var headerScopes = func() (out [field.NumHeaders]Scope) {
	for h := range out {
		p := field.Header(h).Presence()
		s := Everything
		s.Ether = 0
		if p.NotIP {
			s.Ether |= ARP | Other
		}
		if p.IPv4 {
			s.Ether |= IPv4
		}
		if p.IPv6 {
			s.Ether |= IPv6
		}
		if p.Protos != nil {
			s.Protocols = Protocols(p.Protos...)
		}
		s.Tags &^= 1<<p.Tags - 1
		out[h] = s
	}
	return out
}()

func endpointScope(all []policy.Element) Scope {
	s := Scope{Tags: allTags}
	for _, e := range all {
		s.Protocols[e.Service.Proto/64] |= 1 << (e.Service.Proto % 64)
		if e.Prefix.Addr().Is4() {
			s.Ether |= IPv4
		} else {
			s.Ether |= IPv6
		}
	}
	return s
}

func etherScope(t *policy.Term) (eth uint8) {
	for _, e := range []struct {
		value uint64
		bit   uint8
	}{{0x0800, IPv4}, {0x86dd, IPv6}, {0x0806, ARP}} {
		if Holds(t.Ranges, e.value) != t.Not {
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
		eth |= Other
	}
	return eth
}

// Holds reports whether a value is in one of the ranges.
func Holds(rs []field.Range, v uint64) bool {
	for _, r := range rs {
		if v >= r.Lo && v <= r.Hi {
			return true
		}
	}
	return false
}
