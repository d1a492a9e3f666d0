package resolve

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/field"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/lang/scope"
)

const (
	maxLimits = 32
	minMemory = 4 << 10
	maxMemory = 256 << 20
)

// limit resolves what stands behind the match of a limit.
func (r *resolver) limit(s *ast.Limit, rule *policy.Rule) {
	l := &policy.Limit{}
	rule.Limit = l
	if r.limits++; r.limits == maxLimits+1 {
		r.c.Errorf(s.Rate.Pos, "put what is limited alike into one rule.",
			"a policy has at most %d limits", maxLimits)
	}
	errors := r.c.Errors()
	mostKeys := policy.MaxKeys
	if s.Rates != nil {
		mostKeys-- // the prefix is one
		r.rates(s.Rates, l)
	} else if p := l.SetRate(s.Rate.Text); p.Message != "" {
		r.problem(s.Rate.Pos, p)
	}
	for i := range s.By {
		if k, ok := r.key(&s.By[i], s.By[:i]); ok {
			l.Keys = append(l.Keys, k)
		}
	}
	if len(s.By) > mostKeys {
		what := ""
		if s.Rates != nil {
			what = " beside its prefixes"
		}
		r.c.Errorf(s.By[mostKeys].Name.Pos, "write a second limit.",
			"a limit has at most %d keys%s", mostKeys, what)
	}
	if s.Memory != nil {
		r.limitMemory(s.Memory, l)
	}
	if r.c.Errors() != errors {
		return
	}
	if l.Rates != nil {
		r.rateKeys(s, l)
		return
	}
	for i := range l.Keys {
		if _, ok := l.Rate.Charge(1, l.Keys[i].Times); !ok ||
			float64(l.Rate.Amount)*float64(l.Keys[i].Times)/l.Rate.Per.Seconds() > l.Rate.Most() {
			r.c.Errorf(s.By[i].Times.Pos, "", "%s times %s is more than a limit can count",
				s.By[i].Times.Text[1:], diag.Clip(l.Rate.Text))
			return
		}
	}
	r.burst(s, l)
}

// burst reads the burst, or takes what the rate gives in a second.
func (r *resolver) burst(s *ast.Limit, l *policy.Limit) {
	at, text := s.Rate.Pos, ""
	if s.Burst != nil {
		at, text = s.Burst.Pos, s.Burst.Text
	}
	if p := l.SetBurst(text); p.Found() {
		r.problem(at, p)
	}
}

func (r *resolver) limitMemory(w *ast.Word, l *policy.Limit) {
	const example = "write a power of two from 4kB to 256MB, such as 512kB or 8MB."
	text := w.Text
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	n, err := strconv.ParseUint(digits, 10, 40)
	factor, ok := policy.SizeUnit(text[len(digits):])
	if err != nil || !ok {
		r.c.Errorf(w.Pos, example, "%q is not a size", diag.Clip(text))
		return
	}
	n *= factor
	switch {
	case n < minMemory || n > maxMemory || n&(n-1) != 0:
		r.c.Errorf(w.Pos, example, "a limit cannot have %s of memory", diag.Clip(text))
	case l.One():
		r.c.Errorf(w.Pos, "leave it out, or say by what: by source.",
			"a limit without \"by\" has one budget, which takes no memory")
	}
	l.Memory = int(n)
}

// key resolves one key.
func (r *resolver) key(k *ast.Key, before []ast.Key) (out policy.Key, ok bool) {
	out = policy.Key{Fields: policy.KeyFields[k.Name.Text], Times: 1, Text: k.Text()}
	for i := range before {
		if before[i].Text() == out.Text {
			r.c.Errorf(k.Name.Pos, "remove one of the two.", "%q is given twice",
				diag.Clip(out.Text))
			return out, false
		}
	}
	if out.Fields == nil {
		r.c.Errorf(k.Name.Pos, literal.KeyHint(k.Name.Text), "%q is not a key",
			diag.Clip(k.Name.Text))
		return out, false
	}
	if address := len(out.Fields) == 1 && out.Fields[0].Info().Compare == field.ByPrefix; address {
		out.Bits4, out.Bits6 = 32, 128
	} else if out.Fields[0] == field.DNSName {
		return r.nameKey(k, out)
	} else if k.Bits != nil {
		r.c.Errorf(k.Bits.Pos, "only source and destination have prefixes.",
			"%q has no prefix length", k.Name.Text)
		return out, false
	}
	if k.Bits != nil {
		if out.Bits4, out.Bits6, ok = r.prefixBits(k.Bits, k.Name.Text); !ok {
			return out, false
		}
	}
	return r.keyTimes(k, out)
}

// keyTimes resolves how many rates each budget of a key has.
func (r *resolver) keyTimes(k *ast.Key, out policy.Key) (policy.Key, bool) {
	if k.Times == nil {
		return out, true
	}
	n, err := strconv.ParseUint(k.Times.Text[1:], 10, 20)
	if err != nil || n == 0 {
		r.c.Errorf(k.Times.Pos, "write how many rates the budget has: x32.",
			"%q is not a number from 1 to 1048575", diag.Clip(k.Times.Text))
		return out, false
	}
	out.Times = n
	return out, true
}

// prefixBits reads the prefix lengths behind a word.
func (r *resolver) prefixBits(w *ast.Word, what string) (bits4, bits6 int, ok bool) {
	bits4, bits6, p := literal.PrefixBits(w.Text, what)
	r.problem(w.Pos, p)
	return bits4, bits6, !p.Found()
}

// everyAddress holds the prefixes of a term that asks only whether there is an address.
var everyAddress = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// keyTerms are terms that hold for packets that have all that the keys of a limit are about. A
// packet that lacks it has no budget, and the rule does not match it.
func (r *resolver) keyTerms(s *ast.Limit, rule *policy.Rule, all []resolvedTerm) []resolvedTerm {
	so := scope.Everything
	for i := range all {
		so = so.With(r.scopeOf(&all[i].term))
	}
	if rates := rule.Limit.Rates; rates != nil {
		t := policy.Term{Field: rates.Field, Prefixes: ratePrefixes(rates)}
		if so = so.With(scope.Of(&t)); so.Empty() {
			r.c.Errorf(s.Rates.Side.Pos, "limit packets that have such an address.",
				"no packet that the rule matches has an address of these prefixes")
			return all
		}
		all = append(all, resolvedTerm{src: presence(t.Field), term: t})
	}
	for i := range rule.Limit.Keys {
		k := &rule.Limit.Keys[i]
		var ok bool
		if all, ok = present(k.Fields, &so, all); !ok {
			r.c.Errorf(s.By[i].Name.Pos, "limit packets that have it, or leave \"by\" out.",
				"no packet that the rule matches has what %q is about", k.Text)
			return all
		}
	}
	return all
}

// present adds terms for fields that a packet has to have, of those in a scope; false if none has
// them.
func present(fields []field.Field, so *scope.Scope, all []resolvedTerm) ([]resolvedTerm, bool) {
	for _, f := range fields {
		t := policy.Term{Field: f, Ranges: []field.Range{{Lo: 0, Hi: math.MaxUint16}}}
		switch {
		case f == field.Proto:
			continue // as ports are there
		case f == field.DNSName: // where there is a question, there is a name
			f = field.DNSType
			t.Field = f
		case f.Info().Compare == field.ByPrefix:
			t.Ranges, t.Prefixes = nil, everyAddress
		}
		if *so = so.With(scope.Of(&t)); so.Empty() {
			return all, false
		}
		if !slices.ContainsFunc(all, func(a resolvedTerm) bool { return a.term.Field == f }) {
			all = append(all, resolvedTerm{src: presence(f), term: t})
		}
	}
	return all, true
}

// presence returns how a term would be written that only asks for a field.
func presence(f field.Field) *ast.Term {
	kind := ast.Number
	switch f {
	case field.SrcAddr:
		kind = ast.From
	case field.DstAddr:
		kind = ast.To
	}
	return &ast.Term{Kind: kind, Field: f}
}
