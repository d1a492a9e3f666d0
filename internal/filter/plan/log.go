package plan

import (
	"levee/internal/filter/logging"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

// Log is a log that packets may come to.
type Log struct {
	Rule *policy.Rule
	Slot int // of the rule
}

// Number names the rule in events. It goes with the identity of the rule, so that who watches knows
// it also after a replace.
func (l *Log) Number() uint32 { return logging.Number(l.Rule.ID) }

// findLogs lists the logs that packets may come to.
func (p *planner) findLogs() {
	if p.Target.IsShadow() {
		return
	}
	reached := map[int]bool{} // by slot
	for _, rules := range append(p.Program.Lists[:], p.Program.Malformed) {
		for i := range rules {
			if rules[i].Action.Has(action.Log) {
				reached[rules[i].Slot] = true
			}
		}
	}
	for i, r := range p.Program.Policy.Rules {
		if slot := p.Program.Policy.RuleSlot(i); reached[slot] {
			p.Logs = append(p.Logs, Log{r, slot})
		}
	}
}
