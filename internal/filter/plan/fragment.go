package plan

import "levee/internal/lang/action"

// fragmentFunctions counts those that follow fragments: the fate of first ones is noted, and later
// ones ask for it if they may come to a rule.
func (p *planner) fragmentFunctions() int {
	for _, rules := range p.Program.Lists {
		for i := range rules {
			if rules[i].Action.Has(action.Track) {
				return 2
			}
		}
	}
	return 1
}
