package resolve

import (
	"net/netip"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// ratePrefixes returns those of all entries, merged.
func ratePrefixes(r *policy.Rates) []netip.Prefix {
	all := make([]netip.Prefix, len(r.Entries))
	for i := range r.Entries {
		all[i] = r.Entries[i].Prefix
	}
	return literal.MergePrefixes(all)
}

// addRate reads the words of an entry.
func addRate(r *policy.Rates, words []string) diag.Problem {
	if len(words) != 2 && (len(words) != 4 || words[2] != "burst") {
		return diag.Problemf(policy.EntryForm, "%q is no prefix with a rate",
			diag.Clip(strings.Join(words, " ")))
	}
	at, p := literal.Prefix(words[0])
	if p.Found() {
		return p
	}
	e := policy.PrefixRate{Prefix: at, Limit: &policy.Limit{}}
	if p = e.SetRate(words[1]); p.Found() {
		return p
	}
	burst := ""
	if len(words) == 4 {
		burst = words[3]
		e.Rate.Text += " burst " + burst
	}
	if p = e.SetBurst(burst); p.Found() {
		return p
	}
	if len(r.Entries) > 0 && r.Entries[0].Rate.Bits != e.Rate.Bits {
		return diag.Problemf("write a second limit for the others.",
			"some of the rates are of packets, and %s is not", diag.Clip(words[1]))
	}
	r.Entries = append(r.Entries, e)
	return diag.Problem{}
}

// rates reads the rates of a limit.
func (r *resolver) rates(s *ast.Rates, l *policy.Limit) {
	l.Rates = &policy.Rates{Field: field.DstAddr}
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
			if p := addRate(l.Rates, strings.Fields(e.Text)); p.Found() {
				r.problem(e.Pos, p)
			}
		}
		if r.c.Errors() != errors {
			return
		}
	}
	r.spend(at, len(l.Rates.Entries))
	if p := l.Settle(); p.Found() {
		r.problem(at, p)
	}
}

// rateFile reads rates from a file.
func (r *resolver) rateFile(path ast.Word, to *policy.Rates) bool {
	in := r.openFile(path, path.Text)
	if in == nil {
		return false
	}
	defer in.Close()
	ds := literal.ReadLines(in, path.Text, func(words []string) (p diag.Problem, last bool) {
		if p = addRate(to, words); !p.Found() && len(to.Entries) > policy.MaxRates {
			p, last = diag.Problemf("", "more than %d rates", policy.MaxRates), true
		}
		return p, last
	})
	r.fileDiags = append(r.fileDiags, ds...)
	return !ds.HasErrors()
}

// rateKeys gives the keys of a limit to its rates.
func (r *resolver) rateKeys(s *ast.Limit, l *policy.Limit) {
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
