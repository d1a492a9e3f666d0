package plan

import (
	"levee/internal/filter/ir"
	"levee/internal/filter/state"
	"levee/internal/lang/action"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// asks returns what rules ask of memories.
func asks(p *policy.Policy, t Target) *state.Use {
	u := &state.Use{Asks: map[field.Field]bool{}}
	for _, f := range field.Remembered() {
		u.Asks[f] = p.Asks(f)
	}
	if t.judgesLeaving() { // which has the memory of what arrives
		u.Asks[field.Flow] = p.Tracks()
	}
	return u
}

// fillUse says what the program asks of memories.
func (p *planner) fillUse() {
	u := p.State
	u.CPUs, u.HZ, u.Link, u.TCX = p.CPUs, p.Target.Rate(), p.Target.Link, p.Target.Hook.OfSKB()
	u.Frags, u.Plain, u.Leaves = p.Target.Frags, p.Target.Plain, p.Target.Leaves
	u.Service = p.Target.Hook.OfService()
	u.Tracks, u.Cookies = p.Tracks(), len(p.Cookies)
	for _, k := range p.Cookies {
		u.Answered[k.Rule.Cookie.Answers] = true
	}
	u.Greylists = len(p.Greylists)
	u.Proves = p.ProvesSources()
	u.JudgedBytes, u.Families = p.Target.Shadow.RowBytes, p.families()
	u.Reached = map[field.Field]bool{}
	for _, c := range p.Chains {
		for _, f := range field.Remembered() {
			u.Reached[f] = u.Reached[f] || c.Asks[f]
		}
		if c.Tracked {
			u.Protocols = append(u.Protocols, c.Classes[0].Proto())
		}
	}
	for _, l := range p.Limits {
		u.Limits = append(u.Limits, state.Limit{Limit: l.Limit, ID: l.Rule.ID,
			Name: p.nameOf(l.Slot), Map: l.Map, Families: l.Families})
	}
	if p.Target.Hook == XDP && !p.Target.IsShadow() {
		u.Rings, u.RingsReached = p.Program.Policy.Rings(), p.ringsReached()
	}
	for i := range p.Logs {
		u.Logs = append(u.Logs, p.Logs[i].Number())
	}
	u.LogsBefore = p.Target.LogsBefore
	u.AllLogs = u.LogsBefore + len(u.Logs)
	if out := p.Program.Out; out != nil {
		u.AllLogs += len(logsOf(out))
	}
	if p.Fragments {
		u.Fragments = p.fragmentFunctions()
	}
}

// families counts, for each effect that the program has, the families of which packets may reach
// a rule with it.
func (p *planner) families() map[action.Action]int {
	type met struct {
		effect action.Action
		family ir.Family
	}
	seen, out := map[met]bool{}, map[action.Action]int{}
	for _, c := range ir.Classes() {
		rules := p.Program.Lists[c.Index()]
		for i := range rules {
			for _, e := range rules[i].Action.Effects {
				is := met{e.Action, c.Family}
				if seen[is] || p.Target.IsShadow() && e.Action.Info().May&action.MayShadow == 0 {
					continue
				}
				seen[is] = true
				out[e.Action]++
			}
		}
	}
	return out
}

// ringsReached counts the rings to which packets may come.
func (p *planner) ringsReached() int {
	reached := map[string]bool{}
	for _, rules := range append(p.Program.Lists[:], p.Program.Malformed) {
		for i := range rules {
			for _, e := range rules[i].Action.Effects {
				reached[e.Ring] = true
			}
		}
	}
	delete(reached, "")
	return len(reached)
}
