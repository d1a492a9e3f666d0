package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"levee/internal/lang/ast"
	"levee/internal/lang/field"
)

// Rates are those of a limit by prefix. A packet whose address lies in none of them is not limited;
// of several the longest counts.
type Rates struct {
	Field   field.Field // of the address: SrcAddr or DstAddr
	Entries []PrefixRate
}

// PrefixRate is what a prefix gets. Its limit has the keys and the unit of time of all.
type PrefixRate struct {
	Prefix netip.Prefix
	*Limit
}

// Text is the entry as it stands in a list.
func (e *PrefixRate) Text() string { return prefixText(e.Prefix) + " " + e.Rate.Text }

// MaxRates is how many prefixes with rates a limit may have.
const MaxRates = 1 << 16

// Of is the rate of an address, nil if it has none.
func (r *Rates) Of(a netip.Addr) (found *PrefixRate) {
	for i := range r.Entries {
		e := &r.Entries[i]
		if e.Prefix.Contains(a) && (found == nil || e.Prefix.Bits() > found.Prefix.Bits()) {
			found = e
		}
	}
	return found
}

// prefixes are those of all entries, merged.
func (r *Rates) prefixes() []netip.Prefix {
	all := make([]netip.Prefix, len(r.Entries))
	for i := range r.Entries {
		all[i] = r.Entries[i].Prefix
	}
	return MergePrefixes(all)
}

const entryForm = "write a prefix and its rate: 192.0.2.0/24 1kpps, or 192.0.2.0/24 1kpps burst " +
	"2000."

// add reads the words of an entry.
func (r *Rates) add(words []string) problem {
	if len(words) != 2 && (len(words) != 4 || words[2] != "burst") {
		return problemf(entryForm, "%q is no prefix with a rate", short(strings.Join(words, " ")))
	}
	at, p := parsePrefix(words[0])
	if p.found() {
		return p
	}
	e := PrefixRate{at, &Limit{}}
	if p = e.rate(words[1]); p.found() {
		return p
	}
	burst := ""
	if len(words) == 4 {
		burst = words[3]
		e.Rate.Text += " burst " + burst
	}
	if p = e.setBurst(burst); p.found() {
		return p
	}
	if len(r.Entries) > 0 && r.Entries[0].Rate.Bits != e.Rate.Bits {
		return problemf("write a second limit for the others.",
			"some of the rates are of packets, and %s is not", short(words[1]))
	}
	r.Entries = append(r.Entries, e)
	return problem{}
}

// rates reads the rates of a limit.
func (r *resolver) rates(s *ast.Rates, l *Limit) {
	l.Rates = &Rates{Field: field.DstAddr}
	if s.Side.Text == "from" {
		l.Rates.Field = field.SrcAddr
	}
	at := s.Side.Pos
	if s.Path != nil {
		at = s.Path.Pos
		if !r.rateFile(*s.Path, l.Rates) {
			return
		}
	} else {
		errors := r.c.Errors()
		for i := range s.List.Elems {
			e := &s.List.Elems[i]
			if p := l.Rates.add(strings.Fields(e.Text)); p.found() {
				r.problem(e.Pos, p)
			}
		}
		if r.c.Errors() != errors {
			return
		}
	}
	r.spend(at, len(l.Rates.Entries))
	if p := l.settle(); p.found() {
		r.problem(at, p)
	}
}

// rateFile reads rates from a file.
func (r *resolver) rateFile(path ast.Word, to *Rates) bool {
	in := r.openFile(path, path.Text)
	if in == nil {
		return false
	}
	defer in.Close()
	f := newSetFile(in, path.Text)
	f.each = func() {
		text, col := f.content()
		if len(text) == 0 {
			return
		}
		if p := to.add(strings.Fields(string(text))); p.found() {
			f.report(f.pos(col, col+utf8.RuneCount(text)), p)
		} else if len(to.Entries) > MaxRates {
			f.bad = maxBadLines // which ends the reading
			f.report(f.pos(col, col+1), problemf("", "more than %d rates", MaxRates))
		}
	}
	ds := f.read()
	r.fileDiags = append(r.fileDiags, ds...)
	return !ds.HasErrors()
}

// settle puts the rates in order and finds what all have in common.
func (l *Limit) settle() problem {
	all := l.Rates.Entries
	switch {
	case len(all) == 0:
		return problemf(entryForm, "there is no prefix with a rate")
	case len(all) > MaxRates:
		return problemf("", "a limit has rates for at most %d prefixes", MaxRates)
	}
	slices.SortFunc(all, func(a, b PrefixRate) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()),
			cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	deepest := all[0].Limit
	for i := range all {
		if i > 0 && all[i].Prefix == all[i-1].Prefix {
			return problemf("remove one of the two.", "%s has two rates, %s and %s",
				prefixText(all[i].Prefix), all[i-1].Rate.Text, all[i].Rate.Text)
		}
		// setBurst has found both depths to fit.
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
		if ns, _ := e.Rate.charge(n, 1); l.Shift > 0 && ns < unitsOfCharge<<l.Shift {
			return problemf("write a second limit for the slower ones.",
				"%s and %s are too far apart for one limit", deepest.Rate.Text, e.Rate.Text)
		}
		e.Shift = l.Shift
	}
	return problem{}
}

const (
	minFrame = 64 // bytes
	// unitsOfCharge is how many units of time a packet of the fastest of several rates costs at
	// least: charges are rounded up to units.
	unitsOfCharge = 64
)

// rateKeys gives the keys of a limit to its rates.
func (r *resolver) rateKeys(s *ast.Limit, l *Limit) {
	for i := range l.Keys {
		if l.Keys[i].Times != 1 {
			r.c.Errorf(s.By[i].Times.Pos, "leave it out.",
				"prefixes have rates of their own, which have no factor")
			return
		}
	}
	for i := range l.Rates.Entries {
		l.Rates.Entries[i].Keys = l.Keys
	}
}
