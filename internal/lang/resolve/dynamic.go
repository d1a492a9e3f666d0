package resolve

import (
	"slices"
	"strconv"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
	"levee/internal/lang/syntax"
)

func (r *resolver) dynamicSet(d *setDef) {
	dyn := d.stmt.Dynamic
	d.set.Kind = policy.Dynamic
	d.set.RollUp = dyn.RollUp
	d.set.Keep = dyn.Keep
	n, err := strconv.ParseUint(dyn.Max.Text, 10, 32)
	if err != nil || n < 1 || n > maxDynamic {
		r.problem(dyn.Max.Pos, literal.MaxProblem("max", dyn.Max.Text, maxDynamic))
	}
	d.set.Max = int(n)
	if dyn.Of != nil {
		r.dynamicType(d, *dyn.Of)
	}
	if dyn.Lease != nil {
		lease, p := literal.Lease(dyn.Lease.Text)
		r.problem(dyn.Lease.Pos, p)
		d.set.Lease = lease
	}
	r.begin(d)
}

// begin resolves the entries that a set begins with.
func (r *resolver) begin(d *setDef) {
	dyn := d.stmt.Dynamic
	var at diag.Pos
	switch {
	case dyn.From != nil:
		at = dyn.From.Pos
		for i := range dyn.From.Elems {
			e := &dyn.From.Elems[i]
			all, err := literal.ParseElements(e.Text)
			for i := 0; err == nil && i < len(all); i++ {
				err = all[i].Check(d.set.Type)
			}
			if err != nil {
				r.c.Errorf(e.Pos, "", "%q cannot be an entry: %v", diag.Clip(e.Text), err)
				return
			}
			d.set.Begin = append(d.set.Begin, all...)
		}
	case dyn.Path != nil:
		at = dyn.Path.Pos
		in := r.openFile(*dyn.Path, dyn.Path.Text)
		if in == nil {
			return
		}
		defer in.Close()
		all, ds := literal.ReadElementsOf(in, dyn.Path.Text, d.set.Type)
		if r.fileDiags = append(r.fileDiags, ds...); ds.HasErrors() {
			return
		}
		d.set.Begin = all
	}
	r.spend(at, len(d.set.Begin))
	if n := len(d.set.Begin); n > d.set.Max && d.set.Max > 0 {
		r.c.Errorf(at, "raise max.", "the set begins with %d entries, and holds at most %d", n,
			d.set.Max)
	}
}

// maxDynamic is the largest number of entries of a dynamic set; of services, endpoints and names,
// whose entries are larger, half of it.
const maxDynamic = 1 << 24

// dynamicType resolves `of TYPE`.
func (r *resolver) dynamicType(d *setDef, of ast.Word) {
	switch of.Text {
	case "addresses":
	case "services":
		d.set.Type = policy.Services
	case "endpoints":
		d.set.Type = policy.Endpoints
	case "names":
		d.set.Type = policy.Names
	default:
		r.problem(of.Pos, typeProblem(of.Text))
		return
	}
	switch {
	case d.set.Type == policy.Addresses:
	case d.set.RollUp:
		r.c.Errorf(of.Pos, "leave \"rollup\" out, or keep the addresses in a set of their own.",
			"a set of %s cannot roll up: only hosts are covered by /24 and /64", of.Text)
	case d.set.Max > maxDynamic/2 && d.set.Max <= maxDynamic:
		r.c.Errorf(d.stmt.Dynamic.Max.Pos, "",
			"max of a set of %s is a number from 1 to %d, not %d", of.Text, maxDynamic/2, d.set.Max)
	}
}

func typeProblem(text string) diag.Problem {
	hint := "write: of addresses, of services, of endpoints or of names."
	if of := syntax.EntryType(text); of != "" {
		hint = diag.DidYouMean("of " + of)
	}
	return diag.Problemf(hint, "%q is not a type of entries that a dynamic set can have",
		diag.Clip(text))
}

// checkRollUp refuses a set that rolls up beside protect rules whose addresses are not known until
// run time: it must never cover one of them.
func (r *resolver) checkRollUp() {
	for _, d := range r.order {
		if !d.set.RollUp {
			continue
		}
		for _, rule := range r.pol.Protect {
			if slices.ContainsFunc(rule.Match,
				func(t policy.Term) bool { return t.Set != nil && t.Set.Kind == policy.Dynamic }) {
				r.c.Errorf(d.stmt.Name.Pos, "protect addresses of an inline or file set, or "+
					"leave \"rollup\" out.",
					"set %q must never cover a protected address, but the protect rule in line "+
						"%d asks a dynamic set", d.set.Name, rule.Pos.Line)
			}
		}
	}
}
