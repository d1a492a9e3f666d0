package episode

import (
	"slices"
	"time"

	"levee/internal/agent/incident"
	"levee/internal/lang/policy"
)

// NoDetector is the reason that a rule ends.
const NoDetector = "its detector is gone from the policy"

// policy goes on with the detectors of a policy that came into force.
func (m *Machine) policy(now time.Time, p *Policy) {
	old := m.units
	m.units = nil
	for _, d := range p.Detects {
		u := &unit{Detect: d}
		for _, o := range old {
			if o.Name == d.Name {
				u.floods, u.pasts = o.floods, o.pasts
			}
		}
		m.units = append(m.units, u)
	}
	for _, o := range old {
		if m.unit(o.Name) == nil {
			for _, f := range slices.Clone(o.floods) {
				m.end(o, f, now, NoDetector)
			}
		}
	}
}

// unfit takes back rules that do not fit the policy in force. The others come into force again.
func (m *Machine) unfit(now time.Time, x *Unfit) {
	m.each(func(_ *unit, f *flood) {
		for _, r := range f.rules {
			if why, ok := x.Why[r.Label]; ok && r.IsLive() {
				f.turn(r, incident.Gone, now, why)
				f.held, f.was = false, 0
			}
		}
	})
	m.loseAll(x.Why)
	m.change(now)
}

// adopt goes on with what an agent before this one has left: rules that are in force, and those
// whose lease goes on, though a policy has taken their place since.
func (m *Machine) adopt(now time.Time, a *Adopt) {
	for _, i := range a.Incidents {
		if i.State == incident.Undone {
			until := now.Add(UndoLasts)
			if i.Closed != nil {
				until = i.Closed.Add(UndoLasts)
			}
			m.undone = append(m.undone,
				suppressed{i.Detector, i.Seen.Kind, i.Seen.Destination, until})
		}
		if i.Closed == nil {
			m.goOn(now, i, a)
		}
	}
	for _, i := range a.Incidents { // no label is given twice, also of rules that others have now
		for _, r := range i.Rules {
			id, round := searchOf(r.Label)
			if _, f := m.find(id); f != nil {
				f.rounds = max(f.rounds, round)
			}
		}
	}
	for i := range a.Written {
		m.keep(&a.Written[i], false)
	}
	if a.InKernel {
		m.loaded = unknown // what is in force is compared with what should be
	}
}

// goOn goes on with an incident.
func (m *Machine) goOn(now time.Time, i incident.Incident, a *Adopt) {
	u := m.unit(i.Detector)
	f := &flood{Incident: i, last: now, put: now,
		acts: i.Acted != nil || u != nil && u.Mode == policy.Enforce}
	for k := range i.Rules {
		r := &rule{Rule: i.Rules[k], detector: i.Detector, of: f, active: now}
		f.rules = append(f.rules, r)
		here := slices.Contains(a.Texts, r.Rule.Rule) || r.Until != nil && now.Before(*r.Until)
		switch {
		case r.IsLive() && here && u != nil:
			if r.State == incident.Loosened {
				r.loosened = now
			}
			m.live = append(m.live, r)
		case r.IsLive():
			f.turn(r, incident.Gone, now, "the agent did not run")
		}
	}
	if u == nil {
		m.end(&unit{}, f, now, NoDetector)
		return
	}
	u.floods = append(u.floods, f)
}
