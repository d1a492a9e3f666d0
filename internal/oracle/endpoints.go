package oracle

import (
	"net/netip"
	"time"

	"levee/internal/policy"
)

// endpointSet holds endpoints by their prefix, so that a look-up is one map look-up for each length that
// occurs, and a walk over what stands there. Services are endpoints without a prefix.
type endpointSet struct {
	entries map[policy.Element]time.Time // until when; the zero time is for good
	at      map[netip.Prefix][]policy.Service
	lengths map[length]int // prefixes of that family and length
}

func newEndpointSet(all []policy.Element) *endpointSet {
	s := &endpointSet{
		entries: make(map[policy.Element]time.Time, len(all)),
		at:      map[netip.Prefix][]policy.Service{},
		lengths: map[length]int{},
	}
	for _, e := range all {
		s.add(e, time.Time{})
	}
	return s
}

func (s *endpointSet) has(e policy.Element) bool {
	_, ok := s.entries[e]
	return ok
}

func (s *endpointSet) add(e policy.Element, expires time.Time) {
	if !s.has(e) {
		if len(s.at[e.Prefix]) == 0 {
			s.lengths[lengthOf(e.Prefix)]++
		}
		s.at[e.Prefix] = append(s.at[e.Prefix], e.Service)
	}
	s.entries[e] = expires
}

// contains says whether an entry that has not expired holds a packet with this address, protocol and port.
func (s *endpointSet) contains(addr netip.Addr, proto uint8, port uint16, now time.Time) bool {
	for l := range s.lengths {
		if l.family != addr.BitLen() {
			continue
		}
		p, err := addr.Prefix(l.bits)
		if err != nil {
			return false
		}
		for _, v := range s.at[p] {
			if v.Holds(proto, port) && current(s.entries[policy.Element{Prefix: p, Service: v}], now) {
				return true
			}
		}
	}
	return false
}
