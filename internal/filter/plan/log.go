package plan

import (
	"hash/fnv"

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
func (l *Log) Number() uint32 { return LogNumber(l.Rule.ID) }

// LogNumber is the number of a rule by its identity.
func LogNumber(id string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(id)) // which does not fail
	return h.Sum32()
}

// LogRow is the size of one CPU's row of losses for so many logs, a multiple of 64: how many events
// the CPU has sent in the present jiffy, and for each log, u64, those above the bound and those
// that found nobody, or no place.
func LogRow(logs int) int { return (8 + 16*logs + 63) &^ 63 }

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
