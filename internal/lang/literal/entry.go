package literal

import (
	"levee/internal/lang/diag"
	"levee/internal/lang/policy"
)

// Entry reads one entry of a dynamic set of a type.
func Entry(t policy.SetType, text string) (policy.Element, diag.Problem) {
	var all Elements
	if got := LooksLike(text); got != t && got != policy.Ports && !all.Parse(got, text).Found() {
		return policy.Element{}, diag.Problemf(policy.EntryHint(t),
			"%s is %s, and the set is of %s", diag.Clip(text),
			got.One(), t.String())
	}
	switch t {
	case policy.Services:
		s, p := Service(text)
		return policy.Element{Service: s}, p
	case policy.Names:
		n, p := Name(text)
		return policy.Element{Name: n.String()}, p
	case policy.Endpoints:
		list, p := Endpoint(nil, text)
		if !p.Found() && len(list) != 1 {
			p = diag.Problemf("write one step for each.", "%s is %d entries", diag.Clip(text),
				len(list))
		}
		if p.Found() {
			return policy.Element{}, p
		}
		return list[0], p
	}
	pfx, p := Prefix(text)
	return policy.Element{Prefix: pfx}, p
}
