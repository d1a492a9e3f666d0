package episode

import (
	"slices"
	"time"

	"levee/internal/agent/incident"
)

// found takes what came of a search.
func (m *Machine) found(now time.Time, r Found) {
	p := m.pending
	if p == nil || p.flood == nil {
		return
	}
	m.pending = nil
	u, f := m.find(p.flood.ID)
	if f == nil {
		return
	}
	f.moved, f.was = p.moved, f.alarm.All
	for i := range r.Rules {
		p.rules = append(p.rules, &rule{Rule: r.Rules[i], detector: f.Detector})
	}
	u.share(f, p.rules, r.Kinds)
	if r.Err == "" && len(p.rules) > 0 && f.acts && f.State == incident.Open {
		p.found, p.live = &r, append(slices.Clone(m.live), p.rules...)
		m.put(p, r.Steps)
		m.save(f)
		for _, f := range p.owners() {
			m.save(f) // nobody sees a rule in the kernel without its incident
		}
		return
	}
	m.searched(f, now, &r, r.Err)
	if len(p.rules) == 0 || f.State != incident.Open {
		return
	}
	for _, r := range p.rules {
		r.of.rules = append(r.of.rules, r)
	}
	for _, f := range p.owners() {
		f.become(incident.Proposed)
		m.save(f)
		m.do(Effect{Log: "incident " + f.ID + ": " + f.Sentence + "; levee agent apply " + f.ID +
			" puts them into force"})
	}
}

// owners are the floods that have rules.
func (p *pending) owners() (out []*flood) {
	for _, r := range p.rules {
		if !slices.Contains(out, r.of) {
			out = append(out, r.of)
		}
	}
	return out
}

// waited says whether a flood waits for what becomes of a search or of a change.
func (m *Machine) waited(f *flood) bool {
	return m.pending != nil && (m.pending.flood == f || slices.Contains(m.pending.owners(), f))
}

// searched notes that a search is over.
func (m *Machine) searched(f *flood, now time.Time, r *Found, failed string) {
	f.rounds++
	f.Searches, f.Failed, f.dirty = f.Searches+1, failed, true
	first := f.rests.IsZero()
	if f.rests = now; !first {
		f.rests = now.Add(min(retryMost, costly*r.Took))
	}
	if f.retry = now.Add(min(retryMost, retrySoon<<f.failed)); f.retry.Before(f.rests) {
		f.retry = f.rests
	}
	f.failed, f.tries = min(f.failed+1, 8), f.alarm.All
	f.top = max(f.top, f.alarm.All)
	f.Seen.Sources = max(f.Seen.Sources, r.Sources)
	f.Seen.Forged = f.Seen.Forged || r.Forged
	for _, n := range r.Notes {
		f.note("%s", n)
	}
	if failed != "" {
		f.note("%s", failed)
	}
	if f.Collateral.Packets == 0 {
		f.Collateral.Packets = r.Good
	}
}

// put asks for a change in the kernel.
func (m *Machine) put(p *pending, steps []incident.Step) {
	rules := m.wanted(p.live)
	p.texts, p.written = Texts(rules), slices.Clone(m.written)
	m.pending = p
	m.do(Effect{Put: &Put{Rules: rules, Steps: steps,
		Cookie: slices.ContainsFunc(p.rules, func(r *rule) bool { return r.Action == "cookie" })}})
}

// applied takes what became of a change.
func (m *Machine) applied(now time.Time, a *Applied) {
	p := m.pending
	if p == nil {
		return
	}
	m.pending = nil
	if a.Err != "" {
		if m.waits = now.Add(RetryAfter); len(a.Unfit) > 0 || a.Other {
			m.waits = now
		}
		m.loseAll(a.Unfit)
		m.refused(p, a.Err)
	} else {
		if p.found == nil { // rules come back
			m.each(func(_ *unit, f *flood) { f.put = now })
		}
		m.cameBack(now)
		m.live, m.loaded = p.live, p.texts
		for _, w := range p.written {
			w.fresh = false
		}
		m.leased(now)
	}
	if p.flood == nil {
		return
	}
	u, f := m.find(p.flood.ID)
	if f == nil { // it ended meanwhile: the next change takes its rules back
		for _, r := range p.rules {
			r.of.turn(r, incident.Gone, now, "the flood is over")
		}
		return
	}
	if p.found != nil {
		m.searched(f, now, p.found, a.Err)
		u.join(p)
	}
	if a.Err != "" { // they were never in force
		return
	}
	for _, r := range p.rules {
		if p.found != nil {
			r.of.rules = append(r.of.rules, r)
		}
		if r.of.State == incident.Undone {
			r.of.turn(r, incident.Gone, now, byCommand)
		} else {
			r.of.turn(r, incident.Live, now, "")
		}
	}
	m.leased(now)
	for _, f := range p.owners() {
		if p.found != nil && f.Acted == nil {
			f.Steps = a.Steps
		}
		if p.found != nil && f.Collateral.Packets == 0 { // the search was for another one
			f.Collateral.Packets = p.found.Good
		}
		f.acted(now)
	}
	if p.found != nil {
		m.do(Effect{Strict: &Strict{u.Name, now.Add(u.Quiet)}})
	} else {
		f.become(incident.Open)
		f.acts = true
	}
	m.do(Effect{Reset: true})
	for _, f := range p.owners() {
		m.save(f)
		m.log(f)
	}
}

// cameBack notes that rules which were loosened drop again: what comes from now on says whether
// they help.
func (m *Machine) cameBack(now time.Time) {
	m.each(func(_ *unit, f *flood) {
		if f.back {
			f.on, f.since, f.back = false, now, false
			m.do(Effect{Reset: true})
		}
	})
}

// acted notes that rules of a flood came into force. What comes from now on says whether they help.
func (f *flood) acted(now time.Time) {
	if f.Acted == nil {
		at := now
		f.Acted = &at
	}
	f.on, f.retry, f.since, f.failed, f.rests = false, time.Time{}, now, 0, time.Time{}
	f.put, f.held, f.top = now, false, 0
}

// leased notes that the lease of live rules has begun anew.
func (m *Machine) leased(now time.Time) {
	m.renewed = now
	until := now.Add(LeaseOf(m.Live()))
	m.each(func(_ *unit, f *flood) {
		for _, r := range f.rules {
			if r.IsLive() {
				r.Until, f.dirty = &until, true
			}
		}
	})
}

// lost notes that other rules are in force than should be. What those dropped passes until they are
// back, and is no other flood.
func (m *Machine) lost(now time.Time, texts string) {
	m.loaded = texts
	if texts != Texts(m.Live()) {
		m.each(func(_ *unit, f *flood) { f.put, f.drops, f.held, f.was = now, 0, false, 0 })
	}
}

// kept takes what became of a renewal.
func (m *Machine) kept(now time.Time, r *Renewed) {
	switch {
	case r.Lost:
		m.lost(now, "")
	case r.Err == "":
		m.leased(now)
	}
	m.saveDirty()
}

// second loosens, tightens and removes rules, closes incidents, and renews what is in force.
func (m *Machine) second(now time.Time) {
	m.each(func(u *unit, f *flood) { m.age(u, f, now) })
	m.expire(now)
	m.change(now)
	m.saveDirty()
}

// change has the kernel judge by the rules that are to be in force.
func (m *Machine) change(now time.Time) {
	m.live = slices.DeleteFunc(m.live, func(r *rule) bool {
		return !r.IsLive() || m.unit(r.detector) == nil
	})
	if m.pending != nil {
		return
	}
	rules := m.Live()
	lease := LeaseOf(rules)
	switch {
	case Texts(rules) != m.loaded && !now.Before(m.waits):
		m.put(&pending{live: slices.Clone(m.live)}, nil)
	case len(rules) > 0 && m.loaded != "" && now.Sub(m.renewed) > lease/4:
		m.do(Effect{Renew: &Renew{lease}})
	}
}

// Strangers returns the limits in force on who did not come before a flood, whether one of them
// holds a flood, and how many packets a second all rules of such floods drop.
func (m *Machine) Strangers(now time.Time) (out []Live, hold bool, drops float64) {
	of := map[*flood]bool{}
	var limits []*rule
	for _, r := range m.live {
		if u := m.unit(r.detector); u != nil && r.State == incident.Live &&
			answerOf(&r.Rule, u.Detect) == LimitStrangers {
			limits = append(limits, r)
			hold = hold || now.Sub(r.active) < loosenedIn
			if !of[r.of] {
				of[r.of], drops = true, drops+r.of.drops
			}
		}
	}
	return m.copies(limits), hold, drops
}

// spare has a rule in force go on by another text, which spares more, or fewer.
func (m *Machine) spare(now time.Time, s *Spared) {
	for _, r := range m.live {
		if r.Label == s.Label && r.State == incident.Live {
			r.Rule.Rule, r.of.dirty = s.Rule, true
			r.Spared += s.Sources
			all := 0
			for _, o := range r.of.rules {
				all += o.Spared
			}
			r.of.note("spared since: %d sources that came later, and come again as clients do", all)
		}
	}
	m.change(now)
}

const byCommand = "taken back by a command"

// undo withdraws the rules of an incident that is not over, and keeps them out for an hour.
func (m *Machine) undo(now time.Time, id string) {
	u, f := m.find(id)
	if f == nil {
		return
	}
	f.become(incident.Undone)
	f.goes(now, byCommand)
	for _, kind := range []string{f.Seen.Kind, f.alarm.Kind.String()} {
		for _, to := range []string{f.Seen.Destination, prefixText(f.alarm.To)} {
			m.undone = append(m.undone, suppressed{u.Name, kind, to, now.Add(UndoLasts)})
		}
	}
	m.waits = time.Time{}
	m.change(now)
	m.save(f)
}

// apply puts the rules that were proposed for an incident into force.
func (m *Machine) apply(id string) {
	_, f := m.find(id)
	if f == nil || m.pending != nil {
		return
	}
	p := &pending{flood: f, live: slices.Clone(m.live)}
	for _, r := range f.rules {
		if r.State == incident.Waiting {
			p.rules, p.live = append(p.rules, r), append(p.live, r)
		}
	}
	if len(p.rules) > 0 {
		m.put(p, nil)
	}
}
