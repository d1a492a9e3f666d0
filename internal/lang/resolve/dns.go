package resolve

import (
	"slices"
	"strconv"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// maxNameLists is the largest number of lists of names that rules may ask for: each has a table and
// a function.
const maxNameLists = 64

// fileType resolves `of TYPE` behind the path of a file; nil after an error.
func (r *resolver) fileType(of ast.Word) *policy.SetType {
	for t := policy.Addresses; t <= policy.Names; t++ {
		if of.Text == t.String() {
			return &t
		}
	}
	hint := "write: of addresses, of ports, of services, of endpoints or of names."
	r.problem(of.Pos, diag.Problemf(hint, "%q is not a type that a file can have",
		diag.Clip(of.Text)))
	return nil
}

// dnsNames resolves the value of `dns name`.
func (r *resolver) dnsNames(t *policy.Term, s *ast.Term) bool {
	v, e := s.Value, &s.Value.Elems[0]
	if !v.List && !ast.IsQuoted(e.Text) {
		if literal.CheckSetName(e.Text).Found() {
			r.c.Errorf(e.Pos, "write the name in quotes: dns name \""+diag.Clip(e.Text)+"\".",
				"%q cannot name a set", diag.Clip(e.Text))
			return false
		}
		d := r.lookup(e)
		if d == nil {
			return false
		}
		if d.set.Type != policy.Names {
			r.c.Errorf(e.Pos, useHint(d.set, e.Text), "%q is a set of %s, not of names",
				diag.Clip(e.Text), d.set.Type.String())
			return false
		}
		t.Set = d.set
		for _, l := range r.pol.NameLists {
			if l.Set == d.set {
				t.Names = l
				return true
			}
		}
		return r.nameList(t, s, d.set.Patterns)
	}
	l := r.newList(len(v.Elems))
	ok := l.all(v, policy.Names, listOf+policy.Names.String())
	r.merge(&l.Elements, v.Pos)
	names := slices.Clone(l.Names)
	r.done(&l)
	return ok && !r.overspent && r.nameList(t, s, names)
}

// nameList gives a term a list of names of its own.
func (r *resolver) nameList(t *policy.Term, s *ast.Term, patterns []dnsname.Pattern) bool {
	n := len(r.pol.NameLists)
	if n == maxNameLists {
		r.c.Errorf(s.Pos, "put the names of several rules into one set.",
			"rules ask for more than %d lists of names", maxNameLists)
		return false
	}
	t.Names = &policy.NameList{Patterns: patterns, Number: n, Set: t.Set}
	r.pol.NameLists = append(r.pol.NameLists, t.Names)
	return true
}

// dnsTerms says where terms on DNS messages cannot stand: in rules to protect, which promise what
// is read off every packet, and within tunnels.
func (r *resolver) dnsTerms(all []resolvedTerm, why string) {
	for i := range all {
		if t := &all[i]; t.term.Field.OfMessage() {
			r.c.Errorf(t.src.Pos, "ask for addresses and ports there.",
				"%s cannot look into DNS messages", why)
		}
	}
}

// nameKey resolves the key `dns-name` of a limit, and how many labels count.
func (r *resolver) nameKey(k *ast.Key, out policy.Key) (policy.Key, bool) {
	if k.Bits != nil {
		n, err := strconv.ParseUint(k.Bits.Text, 10, 8)
		if err != nil || n < 1 || n > dnsname.MaxLabels {
			r.c.Errorf(k.Bits.Pos, "write how many labels at the end of the name count: "+
				"dns-name/2 is example.com of www.example.com.",
				"%q is not a number of labels from 1 to %d", diag.Clip(k.Bits.Text),
				dnsname.MaxLabels)
			return out, false
		}
		out.Labels = int(n)
	}
	return r.keyTimes(k, out)
}
