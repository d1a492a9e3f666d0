package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"levee/internal/lang/diag"
	"levee/internal/lang/field"
)

// Rates are those of a limit by prefix. A packet whose address lies in none of them is not limited;
// of several the longest counts.
type Rates struct {
	Field   field.Field // of the address: SrcAddr or DstAddr
	Entries []PrefixRate
}

// PrefixRate is the rate of a prefix. Its limit has the keys and the unit of time of all.
type PrefixRate struct {
	Prefix netip.Prefix
	*Limit
}

// Text returns the entry as it stands in a list.
func (e *PrefixRate) Text() string { return prefixText(e.Prefix) + " " + e.Rate.Text }

// MaxRates limits the prefixes with rates of a limit.
const MaxRates = 1 << 16

// Of returns the rate of an address, nil if it has none.
func (r *Rates) Of(a netip.Addr) (found *PrefixRate) {
	for i := range r.Entries {
		e := &r.Entries[i]
		if e.Prefix.Contains(a) && (found == nil || e.Prefix.Bits() > found.Prefix.Bits()) {
			found = e
		}
	}
	return found
}

// EntryForm is the hint for what is no prefix with a rate.
const EntryForm = "write a prefix and its rate: 192.0.2.0/24 1kpps, or 192.0.2.0/24 1kpps burst " +
	"2000."

// Settle puts the rates in order and finds what all have in common.
func (l *Limit) Settle() diag.Problem {
	all := l.Rates.Entries
	switch {
	case len(all) == 0:
		return diag.Problemf(EntryForm, "there is no prefix with a rate")
	case len(all) > MaxRates:
		return diag.Problemf("", "a limit has rates for at most %d prefixes", MaxRates)
	}
	slices.SortFunc(all, func(a, b PrefixRate) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()),
			cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	deepest := all[0].Limit
	for i := range all {
		if i > 0 && all[i].Prefix == all[i-1].Prefix {
			return diag.Problemf("remove one of the two.", "%s has two rates, %s and %s",
				prefixText(all[i].Prefix), all[i-1].Rate.Text, all[i].Rate.Text)
		}
		// SetBurst has found both depths to fit.
		most, _ := deepest.depth()
		if debt, _ := all[i].depth(); debt > most {
			deepest = all[i].Limit
		}
	}
	l.Rate, l.Burst, l.Shift = deepest.Rate, deepest.Burst, deepest.Shift
	for i := range all {
		e := &all[i]
		n := uint64(1)
		if e.Rate.Bits {
			n = minFrame
		}
		if ns, _ := e.Rate.Charge(n, 1); l.Shift > 0 && ns < unitsOfCharge<<l.Shift {
			return diag.Problemf("write a second limit for the slower ones.",
				"%s and %s are too far apart for one limit", deepest.Rate.Text, e.Rate.Text)
		}
		e.Shift = l.Shift
	}
	return diag.Problem{}
}

const (
	minFrame = 64 // bytes
	// unitsOfCharge is the number of units of time that a packet of the fastest of several rates
	// costs at least: charges are rounded up to units.
	unitsOfCharge = 64
)
