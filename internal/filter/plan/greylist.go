package plan

import (
	"levee/internal/filter/greylist"
	"levee/internal/filter/logging"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

// Greylist is a greylist that packets may reach.
type Greylist struct {
	*policy.Greylist
	Rule  *policy.Rule
	Slot  int // of the rule
	Meter int // in the memory; it goes with the identity of the rule
}

// Salt returns what tells the clients of one greylist from those of another in the memory of all.
func (g *Greylist) Salt() uint32 { return logging.Number(g.Rule.ID) }

// findGreylists lists the greylists that packets may reach.
func (p *planner) findGreylists() {
	reached := p.reached(action.Greylist)
	taken := map[int]bool{}
	for i, r := range p.Program.Policy.Rules {
		slot := p.Program.Policy.RuleSlot(i)
		if !reached[slot] {
			continue
		}
		meter := int(logging.Number(r.ID) % uint32(greylist.Meters))
		for taken[meter] {
			meter = (meter + 1) % greylist.Meters
		}
		taken[meter] = true
		p.Greylists = append(p.Greylists, Greylist{r.Greylist, r, slot, meter})
	}
}

// reached returns the slots of rules that have the effect of and that packets can reach.
func (p *planner) reached(of action.Action) map[int]bool {
	out := map[int]bool{}
	for _, rules := range p.Program.Lists {
		for i := range rules {
			if rules[i].Action.Has(of) {
				out[rules[i].Slot] = true
			}
		}
	}
	return out
}
