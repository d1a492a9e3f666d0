package plan

import (
	"levee/internal/filter/ir"
	"levee/internal/filter/logging"
	"levee/internal/lang/action"
	"levee/internal/lang/policy"
)

// Log is a log that packets may reach.
type Log struct {
	Rule *policy.Rule
	Slot int // of the rule
}

// Number names the rule in events. It goes with the identity of the rule, so that who watches knows
// it also after a replace.
func (l *Log) Number() uint32 { return logging.Number(l.Rule.ID) }

// findLogs lists the logs that packets may reach.
func (p *planner) findLogs() {
	if !p.Target.IsShadow() {
		p.Logs = logsOf(p.Program)
	}
}

// logsOf lists the logs to which packets of one side may come.
func logsOf(prog *ir.Program) (all []Log) {
	reached := map[int]bool{} // by slot
	for _, rules := range append(prog.Lists[:], prog.Malformed) {
		for i := range rules {
			if rules[i].Action.Has(action.Log) {
				reached[rules[i].Slot] = true
			}
		}
	}
	for i, r := range prog.Policy.Rules {
		if slot := prog.Policy.RuleSlot(i); reached[slot] {
			all = append(all, Log{r, slot})
		}
	}
	return all
}
