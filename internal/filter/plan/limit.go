package plan

import (
	"fmt"

	"levee/internal/filter/ir"
	"levee/internal/filter/limit"
	"levee/internal/lang/policy"
)

// Limit is a limit that packets may reach. It is one function, whatever the number of chains.
type Limit struct {
	*policy.Limit
	Rule *policy.Rule
	Slot int    // of the rule
	Map  string // with its memory
	// Families are those of the packets that come to it.
	Families limit.Families
}

// findLimits lists the limits that packets may reach.
func (p *planner) findLimits() {
	reached := map[*policy.Limit]limit.Families{}
	for _, c := range ir.Classes() {
		rules := p.Program.Lists[c.Index()]
		for i := range rules {
			if l := limitOf(&rules[i]); l != nil {
				of := reached[l]
				of.Add(c.Family == ir.IPv6)
				reached[l] = of
			}
		}
	}
	side := ""
	if p.Target.Leaves {
		side = "out_"
	}
	for i, r := range p.Program.Policy.Rules {
		if of, ok := reached[r.Limit]; ok && r.Limit != nil {
			p.Limits = append(p.Limits, Limit{
				Limit: r.Limit, Rule: r, Slot: p.Program.Policy.RuleSlot(i), Families: of,
				Map: fmt.Sprintf("%slimit_%d", side, len(p.Limits)),
			})
		}
	}
}

// limitOf returns the limit that a rule is, nil if it is none.
func limitOf(r *ir.Rule) *policy.Limit {
	for _, e := range r.Action.Effects {
		if e.Limit != nil {
			return e.Limit
		}
	}
	return nil
}

// rates returns the table of rates by prefix, nil if the limit has one rate.
func (l *Limit) rates(name string) *Table {
	if l.Rates == nil {
		return nil
	}
	all := limit.RatesBytes(l.Limit)
	return &Table{
		Name: limit.RatesOf(l.Map), For: "rates of " + name, Kind: "sorted starts of prefixes",
		Why: "a rate by prefix, found by halving", Bytes: len(all), Rates: all,
	}
}
