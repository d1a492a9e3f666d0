package oracle

import (
	"net/netip"
	"time"
)

// addressSet holds prefixes by their length, so that a look-up is one map look-up for each length
// that occurs.
type addressSet struct {
	entries map[netip.Prefix]time.Time // until when; the zero time is for good
	lengths map[length]int             // prefixes of that family and length
}

type length struct{ family, bits int }

func newAddressSet(prefixes []netip.Prefix) *addressSet {
	a := &addressSet{
		entries: make(map[netip.Prefix]time.Time, len(prefixes)),
		lengths: map[length]int{},
	}
	for _, p := range prefixes {
		a.add(p, time.Time{})
	}
	return a
}

func lengthOf(p netip.Prefix) length { return length{p.Addr().BitLen(), p.Bits()} }

func (a *addressSet) has(p netip.Prefix) bool {
	_, ok := a.entries[p]
	return ok
}

func (a *addressSet) add(p netip.Prefix, expires time.Time) {
	if !a.has(p) {
		a.lengths[lengthOf(p)]++
	}
	a.entries[p] = expires
}

func (a *addressSet) del(p netip.Prefix) {
	if !a.has(p) {
		return
	}
	delete(a.entries, p)
	if a.lengths[lengthOf(p)]--; a.lengths[lengthOf(p)] == 0 {
		delete(a.lengths, lengthOf(p))
	}
}

func (a *addressSet) size() int { return len(a.entries) }

// inUse returns the number of entries after those whose lease has ended are gone.
func (a *addressSet) inUse(now time.Time) int {
	for p, expires := range a.entries {
		if !current(expires, now) {
			a.del(p)
		}
	}
	return len(a.entries)
}

// contains says whether an entry that has not expired holds addr.
func (a *addressSet) contains(addr netip.Addr, now time.Time) bool {
	for l := range a.lengths {
		if l.family != addr.BitLen() {
			continue
		}
		p, err := addr.Prefix(l.bits)
		if err != nil {
			return false
		}
		if expires, ok := a.entries[p]; ok && current(expires, now) {
			return true
		}
	}
	return false
}

// current: an entry holds before the instant it expires, not at it.
func current(expires, now time.Time) bool { return expires.IsZero() || now.Before(expires) }
