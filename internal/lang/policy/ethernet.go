package policy

import (
	"slices"

	"levee/internal/lang/field"
)

// RuleTerm is one term of one rule.
type RuleTerm struct {
	Rule *Rule
	Term *Term
}

// Ethernet lists the terms that are about an Ethernet header or its tags, rule by rule. A policy
// that has one cannot be put on a device whose packets begin with IP. That a packet is IPv4 or IPv6
// its IP header says too.
func (p *Policy) Ethernet() []RuleTerm {
	var all []RuleTerm
	for _, r := range slices.Concat(p.Protect, p.Rules) {
		for i := range r.Match {
			if r.Match[i].ethernet() {
				all = append(all, RuleTerm{r, &r.Match[i]})
			}
		}
	}
	return all
}

func (t *Term) ethernet() bool {
	info := t.Field.Info()
	if !info.Ethernet {
		return false
	}
	if t.Field != field.EtherType {
		return true
	}
	families := append(slices.Clone(info.Values.IPv4), info.Values.IPv6...)
	return slices.ContainsFunc(t.Ranges,
		func(r field.Range) bool { return !slices.Contains(families, r) })
}
