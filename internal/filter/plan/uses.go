package plan

import "levee/internal/filter/state"

// uses is what the program asks of memories.
func (p *planner) uses() *state.Use {
	u := &state.Use{
		CPUs: p.CPUs, HZ: p.Target.Rate(), Link: p.Target.Link, TCX: p.Target.Hook == TCX,
		Frags: p.Target.Frags, Plain: p.Target.Plain,
		Tracks: p.Tracks(), Cookies: len(p.Cookies), Proves: p.ProvesSources(),
		AsksProven: p.asksProven, Diverts: p.Diverts,
		JudgedBytes: p.Target.Shadow.RowBytes,
	}
	for _, c := range p.Chains {
		if c.Tracked {
			u.Protocols = append(u.Protocols, c.Classes[0].Proto())
		}
	}
	for _, l := range p.Limits {
		u.Limits = append(u.Limits, state.Limit{Limit: l.Limit, ID: l.Rule.ID,
			Name: p.nameOf(l.Slot), Map: l.Map})
	}
	for i := range p.Logs {
		u.Logs = append(u.Logs, p.Logs[i].Number())
	}
	if p.Fragments {
		u.Fragments = p.fragmentFunctions()
	}
	return u
}
