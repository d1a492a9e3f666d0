package policy

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
	"levee/internal/lang/syntax"
)

func (r *resolver) dynamicSet(d *setDef) {
	dyn := d.stmt.Dynamic
	d.set.Kind = Dynamic
	d.set.RollUp = dyn.RollUp
	d.set.Keep = dyn.Keep
	n, err := strconv.ParseUint(dyn.Max.Text, 10, 32)
	if err != nil || n < 1 || n > maxDynamic {
		r.problem(dyn.Max.Pos, maxProblem("max", dyn.Max.Text, maxDynamic))
	}
	d.set.Max = int(n)
	if dyn.Of != nil {
		r.dynamicType(d, *dyn.Of)
	}
	if dyn.Lease != nil {
		lease, p := parseLease(dyn.Lease.Text)
		if p.found() {
			r.problem(dyn.Lease.Pos, p)
		}
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
			all, err := ParseElements(e.Text)
			for i := 0; err == nil && i < len(all); i++ {
				err = all[i].Check(d.set.Type)
			}
			if err != nil {
				r.c.Errorf(e.Pos, "", "%q cannot be an entry: %v", short(e.Text), err)
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
		f := newSetFile(in, dyn.Path.Text)
		f.typed, f.typ = true, d.set.Type
		all, ds := readEntries(f, func(e Element, _ time.Duration) Element { return e })
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

// maxDynamic is the largest number of entries of a dynamic set; of services and endpoints, whose
// entries are larger, half of it.
const maxDynamic = 1 << 24

// dynamicType resolves `of TYPE`.
func (r *resolver) dynamicType(d *setDef, of ast.Word) {
	switch of.Text {
	case "addresses":
	case "services":
		d.set.Type = Services
	case "endpoints":
		d.set.Type = Endpoints
	default:
		r.problem(of.Pos, typeProblem(of.Text))
		return
	}
	switch {
	case d.set.Type == Addresses:
	case d.set.RollUp:
		r.c.Errorf(of.Pos, "leave \"rollup\" out, or keep the addresses in a set of their own.",
			"a set of %s cannot roll up: only hosts are covered by /24 and /64", of.Text)
	case d.set.Max > maxDynamic/2 && d.set.Max <= maxDynamic:
		r.c.Errorf(d.stmt.Dynamic.Max.Pos, "",
			"max of a set of %s is a number from 1 to %d, not %d", of.Text, maxDynamic/2, d.set.Max)
	}
}

func typeProblem(text string) problem {
	hint := "write: of addresses, of services or of endpoints."
	if of := syntax.EntryType(text); of != "" {
		hint = didYouMean("of " + of)
	}
	return problemf(hint, "%q is not a type of entries that a dynamic set can have", short(text))
}

func maxProblem(what, text string, most int) problem {
	hint := ""
	plain := strings.NewReplacer("_", "", "'", "").Replace(text)
	switch {
	case plain != text && allDigits(plain):
		hint = didYouMean(plain)
	case len(text) > 1 && allDigits(text[:len(text)-1]) &&
		strings.ContainsAny(text[len(text)-1:], "kKmM"):
		zeros := "000"
		if strings.ContainsAny(text[len(text)-1:], "mM") {
			zeros = "000000"
		}
		hint = didYouMean(text[:len(text)-1] + zeros)
	}
	return problemf(hint, "%s is a number from 1 to %d, not %s", what, most, short(text))
}

// Bounds of a lease.
const (
	minLease = time.Millisecond
	MaxLease = 520 * 7 * 24 * time.Hour // about ten years
)

var leaseUnits = []struct {
	suffix string
	unit   time.Duration
}{
	{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour},
	{"d", 24 * time.Hour}, {"w", 7 * 24 * time.Hour},
}

// parseLease reads a whole number with one unit.
func parseLease(text string) (time.Duration, problem) {
	const example = "write a duration such as 500ms, 30s, 10m, 12h, 7d or 2w."
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit := text[len(digits):]
	if !allDigits(digits) {
		return 0, problemf(example, "%q is not a duration", short(text))
	}
	if unit == "" {
		return 0, problemf(didYouMean(short(digits)+"s"), "the duration %s has no unit",
			short(text))
	}
	for _, u := range leaseUnits {
		if u.suffix != unit {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n > uint64(MaxLease/u.unit) {
			return 0, problemf("leave \"lease\" out for entries that stay until they are deleted.",
				"a lease is at most 520w")
		}
		if d := time.Duration(n) * u.unit; d >= minLease {
			return d, problem{}
		}
		return 0, problemf("leave \"lease\" out for entries that stay until they are deleted.",
			"a lease of 0 would end at once")
	}
	return 0, problemf(unitHint(digits, unit), "%q is not a unit of time", short(unit))
}

func unitHint(digits, unit string) string {
	for _, u := range []struct{ words, unit string }{
		{"sec secs second seconds S", "s"}, {"min mins minute minutes M", "m"},
		{"hr hrs hour hours H", "h"},
		{"day days D", "d"}, {"week weeks W", "w"}, {"msec millis milliseconds", "ms"},
	} {
		for _, w := range strings.Fields(u.words) {
			if w == unit {
				return didYouMean(digits + u.unit)
			}
		}
	}
	return "units are ms, s, m, h, d and w."
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
				func(t Term) bool { return t.Set != nil && t.Set.Kind == Dynamic }) {
				r.c.Errorf(d.stmt.Name.Pos, "protect addresses of an inline or file set, or "+
					"leave \"rollup\" out.",
					"set %q must never cover a protected address, but the protect rule in line "+
						"%d asks a dynamic set", d.set.Name, rule.Pos.Line)
			}
		}
	}
}

// ParseLease reads a lease as policies write it.
func ParseLease(text string) (time.Duration, error) {
	d, p := parseLease(text)
	if p.found() {
		return 0, errors.New(p.msg + ": " + p.hint)
	}
	return d, nil
}
