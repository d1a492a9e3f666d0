package oracle

import (
	"net/netip"
	"slices"
	"time"

	"levee/internal/lang/policy"
)

// endpointSet holds endpoints by their prefix, so that a look-up is one map look-up for each length
// that occurs, and a walk over what stands there. Services are endpoints without a prefix.
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

func (s *endpointSet) del(e policy.Element) {
	if !s.has(e) {
		return
	}
	delete(s.entries, e)
	left := slices.DeleteFunc(s.at[e.Prefix], func(v policy.Service) bool { return v == e.Service })
	if s.at[e.Prefix] = left; len(left) > 0 {
		return
	}
	delete(s.at, e.Prefix)
	if s.lengths[lengthOf(e.Prefix)]--; s.lengths[lengthOf(e.Prefix)] == 0 {
		delete(s.lengths, lengthOf(e.Prefix))
	}
}

func (s *endpointSet) size() int { return len(s.entries) }

// inUse returns the number of entries after those whose lease has ended are gone.
func (s *endpointSet) inUse(now time.Time) int {
	for e, expires := range s.entries {
		if !current(expires, now) {
			s.del(e)
		}
	}
	return len(s.entries)
}

// offers says whether a service that has not expired is that of a packet with this protocol and
// port.
func (s *endpointSet) offers(proto uint8, port uint16, now time.Time) bool {
	for _, v := range s.at[netip.Prefix{}] {
		if v.Holds(proto, port) && current(s.entries[policy.Element{Service: v}], now) {
			return true
		}
	}
	return false
}

// contains says whether an entry that has not expired holds a packet with this address, protocol
// and port.
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
			if v.Holds(proto, port) && current(s.entries[policy.Element{Prefix: p, Service: v}],
				now) {
				return true
			}
		}
	}
	return false
}
