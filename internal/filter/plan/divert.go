package plan

import (
	"levee/internal/filter/ir"
	"levee/internal/lang/action"
)

// diverts counts the families of which packets may come to a rule that diverts them. A shadow
// diverts nothing.
func (p *planner) diverts() (n int) {
	if p.Target.IsShadow() {
		return 0
	}
	seen := map[ir.Family]bool{}
	for _, c := range ir.Classes() {
		rules := p.Program.Lists[c.Index()]
		for i := range rules {
			if rules[i].Action.Has(action.Divert) && !seen[c.Family] {
				seen[c.Family] = true
				n++
			}
		}
	}
	return n
}
