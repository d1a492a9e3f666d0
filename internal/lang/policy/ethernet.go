package policy

import (
	"slices"

	"levee/internal/lang/ast"
	"levee/internal/lang/diag"
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

// WithoutEthernet are errors for the terms that packets without an Ethernet header lack; where says
// which packets these are.
func (p *Policy) WithoutEthernet(tree *ast.File, where string) diag.Diagnostics {
	c := &diag.Collector{File: tree.Name}
	for _, t := range p.Ethernet() {
		name := t.Term.Field.Info().Name
		if t.Term.Field == field.EtherType {
			name += " but those of IPv4 and IPv6"
		}
		c.Errorf(t.Term.Pos.Mark(), "", "%s have no Ethernet header, and so no %s", where, name)
	}
	return tree.Diagnostics(c)
}

// AsksTags reports whether a rule is about VLAN tags of the frame. Those of a packet within a
// tunnel no device takes off.
func (p *Policy) AsksTags() bool {
	return slices.ContainsFunc(p.Ethernet(), func(t RuleTerm) bool { return t.Term.AsksTags() })
}

// AsksTags reports whether a term is about VLAN tags of the frame.
func (t *Term) AsksTags() bool {
	return t.Field == field.Tags || t.Field.Info().Header.Presence().Tags > 0
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
