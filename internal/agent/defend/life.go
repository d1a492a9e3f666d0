package defend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/agent/part"
	"levee/internal/dataplane"
	"levee/internal/lang/policy"
)

// finish takes what came of a search or of a change.
func (w *Watcher) finish(ctx context.Context, r result) {
	w.working = false
	if err := w.sampler.Follow(ctx); err != nil {
		w.Log("%s: %v", w.Dev, err)
	}
	now := time.Now()
	if r.err != nil {
		w.waits, w.nextReady = now.Add(retryAfter), now.Add(readyEvery)
		w.Log("%s: live rules: %v", w.Dev, r.err)
	}
	if r.err != nil || r.applied {
		w.parts.put(r.err, len(r.live))
	}
	if r.applied {
		w.live, w.loaded = r.live, r.loaded
		w.leased(now)
	}
	var u *unit
	for _, o := range w.units {
		if r.unit != nil && o.Name == r.unit.Name {
			u = o
		}
	}
	if u == nil {
		return
	}
	at := slices.IndexFunc(u.floods(), func(f *flood) bool { return f.ID == r.id })
	if at < 0 {
		return
	}
	f := u.floods()[at]
	f.rounds++
	f.Searches, f.Failed = f.Searches+1, ""
	f.retry = now.Add(min(retryAfter, retrySoon<<f.failed))
	f.failed = min(f.failed+1, 8)
	f.dirty = true
	if f.Seen.Sources < r.sources {
		f.Seen.Sources = r.sources
	}
	f.Seen.Forged = f.Seen.Forged || r.forged
	for _, n := range r.notes {
		f.note("%s", n)
	}
	if f.Collateral.Packets == 0 {
		f.Collateral.Packets = r.good
	}
	switch {
	case r.err != nil:
		f.Failed = r.err.Error()
		f.note("%v", r.err)
	case r.applied:
		for _, rule := range r.rules {
			rule.State, rule.Since = incident.Live, &r.at
			f.states[rule.Label] = &ruleState{active: now}
		}
		f.rules = append(f.rules, r.rules...)
		if f.Acted == nil {
			f.Acted, f.Steps = &r.at, r.steps
		}
		f.on, f.retry, f.since, f.failed = false, time.Time{}, now, 0
		u.detector.Strict(now.Add(u.Quiet))
		for _, u := range w.units {
			u.detector.Reset(now)
		}
		w.Log("%s: incident %s: %s", w.Dev, f.ID, w.save(f))
	case len(r.rules) > 0:
		f.rules, f.State = append(f.rules, r.rules...), incident.Proposed
		w.Log("%s: incident %s: %s; levee agent apply %[2]s puts them into force", w.Dev, f.ID,
			w.save(f))
	}
}

// leased notes that the kernel keeps live rules for their lease from now on.
func (w *Watcher) leased(now time.Time) {
	w.renewed = now
	until := now.Add(leaseOf(w.live))
	for _, l := range w.live {
		l.rule.Until = &until
	}
	for _, u := range w.units {
		for _, f := range u.floods() {
			f.dirty = f.dirty || f.live() > 0
		}
	}
}

// save writes an incident, and gives its sentence.
func (w *Watcher) save(f *flood) string {
	f.dirty = false
	f.Incident.Rules = []incident.Rule{}
	c := incident.Collateral{Packets: f.Collateral.Packets}
	measured := false
	var sum float64
	for _, r := range f.rules {
		if !r.IsLive() {
			r.Until = nil
		}
		f.Incident.Rules = append(f.Incident.Rules, *r)
		c.Predicted += r.Predicted
		c.AtMost = max(c.AtMost, r.AtMost)
		if r.Measured != nil {
			measured, sum = true, sum+*r.Measured
		}
	}
	if c.AtMost = max(c.AtMost, c.Predicted); measured {
		c.Measured = &sum
	}
	f.Collateral = c
	f.Tell()
	wrote(w.files.incidents, w.Incidents.Path(), w.Incidents.Put(f.Incident))
	return f.Sentence
}

// count reads what live rules have dropped.
func (w *Watcher) count(ctx context.Context, now time.Time) {
	if len(w.live) == 0 {
		return
	}
	rules, counts, err := dataplane.LiveOf(ctx, w.Dev)
	if err != nil {
		w.Log("%s: count what live rules drop: %v", w.Dev, err)
		return
	}
	if rules == nil { // somebody else has ended them, or a policy has taken their place
		w.lost()
		return
	}
	for _, u := range w.units {
		for _, f := range u.floods() {
			for _, r := range f.rules {
				if s := f.states[r.Label]; s != nil && r.IsLive() {
					w.countRule(f, r, s, counts[r.Label], now)
				}
			}
		}
	}
}

// Rates of a rule.
const (
	activeRate  = 20   // packets a second that a rule drops while a flood goes on, at least
	activeShare = 0.01 // and this share of its peak
	bounds      = 1000 // packets that a measured share is of, at least
)

func (w *Watcher) countRule(f *flood, r *incident.Rule, s *ruleState, c dataplane.Counter,
	now time.Time) {
	if c.Packets < s.last.Packets {
		s.last = dataplane.Counter{}
	}
	n := float64(c.Packets - s.last.Packets)
	r.Packets += c.Packets - s.last.Packets
	r.Bytes += c.Bytes - s.last.Bytes
	s.last = c
	f.dirty = f.dirty || n > 0
	s.peak = max(s.peak, n)
	if n > max(activeRate, activeShare*s.peak) {
		s.active, f.last, f.Ended = now, now, nil
		return
	}
	settled := now.Sub(s.active) > 2*time.Second && !f.on
	if r.State == incident.Live && r.Action != "cookie" && settled {
		s.dropped += n
		s.all += n + w.passed
		if s.all >= bounds {
			share := s.dropped / s.all
			r.Measured = &share
		}
	}
}

// change loosens, tightens and removes rules, closes incidents, and renews what is in force.
func (w *Watcher) change(ctx context.Context, now time.Time) {
	for _, u := range w.units {
		for _, f := range u.floods() {
			w.age(u, f, now)
		}
	}
	var rules []live
	for _, l := range w.live {
		if l.rule.IsLive() {
			rules = append(rules, l)
		}
	}
	w.live = rules
	switch lease := leaseOf(rules); {
	case textsOf(rules) != w.loaded && !now.Before(w.waits):
		w.working = true
		base, state := w.base, w.state
		go func() {
			var loaded string
			err := part.Try(func() (err error) {
				loaded, err = w.put(ctx, base, state, rules, nil, noSteps)
				return err
			})
			w.results <- result{live: rules, loaded: loaded, err: err, applied: err == nil}
		}()
	case len(rules) > 0 && w.loaded != "" && now.Sub(w.renewed) > lease/4:
		err := dataplane.LiveRenew(ctx, w.Dev, lease)
		switch {
		case err == nil:
			w.leased(now)
		case errors.Is(err, dataplane.ErrNotLive):
			w.lost()
		default:
			w.parts.put(fmt.Errorf("renew them: %w", err), 0)
		}
	}
	for _, u := range w.units {
		for _, f := range u.floods() {
			if f.dirty {
				w.save(f)
			}
		}
	}
}

func leaseOf(rules []live) (lease time.Duration) {
	for _, l := range rules {
		lease = max(lease, l.of.Lease)
	}
	return lease
}

// age changes the rules of a flood by how long they were quiet. What is changed comes into force
// afterwards.
func (w *Watcher) age(u *unit, f *flood, now time.Time) {
	for _, r := range f.rules {
		s := f.states[r.Label]
		if s == nil || !r.IsLive() {
			continue
		}
		quiet := now.Sub(s.active)
		switch {
		case quiet >= u.Quiet:
			r.State, r.Gone, r.Why, f.dirty = incident.Gone, &now, "the flood is over", true
		case r.State == incident.Live && r.Action == "drop" && quiet >= u.Quiet/3:
			r.Rule, r.State, s.loosened = loosened(r.Rule, max(100, f.Seen.Threshold/20)),
				incident.Loosened, now
			r.Loosened, f.dirty = &now, true
		case r.State == incident.Loosened && s.active.After(s.loosened):
			r.Rule, r.State, r.Loosened, f.dirty = tightened(r.Rule), incident.Live, nil, true
		}
	}
	if f.on {
		return
	}
	if f.Ended == nil && now.Sub(f.last) > 3*time.Second {
		last := f.last
		f.Ended, f.dirty = &last, true
	}
	if f.live() > 0 || now.Sub(f.last) < u.Quiet {
		return
	}
	state := f.State
	if state == incident.Open || state == incident.Proposed {
		state = incident.Ended
	}
	w.end(u, f, now, state, "the flood is over")
}

// end closes an incident.
func (w *Watcher) end(u *unit, f *flood, now time.Time, state, why string) {
	for _, r := range f.rules {
		if r.IsLive() {
			r.State, r.Gone, r.Why = incident.Gone, &now, why
		}
	}
	f.State, f.Closed = state, &now
	if f.Ended == nil {
		last := f.last
		f.Ended = &last
	}
	w.Log("%s: incident %s: %s", w.Dev, f.ID, w.save(f))
	u.forget(f)
}

// refit looks whether live rules fit a policy that has come into force. Those that do not are gone.
func (w *Watcher) refit() {
	now := time.Now()
	for _, u := range w.units {
		for _, l := range w.live {
			r := l.rule
			if !r.IsLive() || l.of.Name != u.Name {
				continue
			}
			drop := *r
			if r.State == incident.Loosened {
				drop.Rule = tightened(r.Rule)
			}
			p, err := compose(w.base, []live{{&drop, u.Detect}})
			if err == nil && !fits(w.base, p) {
				err = errors.New("it does not fit the policy that came into force")
			}
			if err == nil {
				good := w.good.sample(now, w.link, p)
				share := harm(p, r.Label, good)
				if share > byChance(u.Collateral, good) {
					err = fmt.Errorf("it would drop %.3g %% of good traffic by the policy that "+
						"came into force", 100*share)
				}
			}
			if err != nil {
				r.State, r.Gone, r.Why = incident.Gone, &now, err.Error()
				for _, f := range u.floods() {
					f.dirty = true
				}
			}
		}
		for i := range w.live {
			if w.live[i].of.Name == u.Name {
				w.live[i].of = u.Detect
			}
		}
	}
}

// adopt goes on with what an agent before this one has left: rules that are in force, and those
// whose lease goes on, though a policy has taken their place since.
func (w *Watcher) adopt(ctx context.Context) {
	now := time.Now()
	there, _, err := dataplane.LiveOf(ctx, w.Dev)
	if err != nil {
		w.Log("%s: look for live rules: %v", w.Dev, err)
	}
	for _, i := range w.Incidents.List() {
		if i.Dev != w.Dev {
			continue
		}
		if i.State == incident.Undone && i.Closed != nil && now.Sub(*i.Closed) < undoLasts {
			w.undone = append(w.undone, suppressed{i.Detector, i.Seen.Kind, i.Seen.Destination,
				i.Closed.Add(undoLasts)})
		}
		if i.Closed != nil {
			continue
		}
		u := w.unit(i.Detector)
		f := &flood{Incident: i, states: map[string]*ruleState{}, last: now,
			acts: i.Acted != nil || u != nil && u.Mode == policy.Enforce}
		for k := range i.Rules {
			r := &i.Rules[k]
			f.rules = append(f.rules, r)
			f.states[r.Label] = &ruleState{active: now}
			f.rounds = max(f.rounds, roundOf(r.Label))
			here := there != nil && slices.Contains(there.Rules, r.Rule) ||
				r.Until != nil && now.Before(*r.Until)
			if r.IsLive() && here && u != nil {
				w.live = append(w.live, live{r, u.Detect})
			} else if r.IsLive() {
				r.State, r.Gone, r.Why = incident.Gone, &now, "the agent did not run"
			}
		}
		switch {
		case u == nil:
			w.end(&unit{}, f, now, incident.Ended, "its detector is gone from the policy")
		case u.flood == nil:
			u.flood = f
		default:
			u.over = append(u.over, f)
		}
	}
	if there != nil {
		w.loaded = "?" // what is in force is compared with what should be
	} else {
		w.refit()
	}
}

func (w *Watcher) unit(name string) *unit {
	for _, u := range w.units {
		if u.Name == name {
			return u
		}
	}
	return nil
}

// isUndone says whether somebody has taken back what was done about such a flood.
func (w *Watcher) isUndone(u *unit, a detect.Alarm, now time.Time) bool {
	w.undone = slices.DeleteFunc(w.undone, func(s suppressed) bool { return now.After(s.until) })
	return !w.undoneUntil(u, a).IsZero()
}

func (w *Watcher) undoneUntil(u *unit, a detect.Alarm) (until time.Time) {
	for _, s := range w.undone {
		if s.detector == u.Name && s.kind == a.Kind.String() && s.to == prefixText(a.To) {
			until = s.until
		}
	}
	return until
}

// settle waits for what goes on in the kernel.
func (w *Watcher) settle(ctx context.Context) {
	if w.working {
		w.finish(ctx, <-w.results)
	}
}

// incident is the flood of an ID that has not ended with all its rules.
func (w *Watcher) incident(id string) (*unit, *flood) {
	for _, u := range w.units {
		for _, f := range u.floods() {
			if f.ID == id {
				return u, f
			}
		}
	}
	return nil, nil
}

// undo takes back what was done about an incident that is not over. It stays undone for an hour.
func (w *Watcher) undo(ctx context.Context, id string) (bool, error) {
	w.settle(ctx)
	if u, f := w.incident(id); f != nil {
		now := time.Now()
		for _, r := range f.rules {
			if r.IsLive() {
				r.State, r.Gone, r.Why = incident.Gone, &now, "taken back by a command"
			}
		}
		f.State = incident.Undone
		for _, to := range []string{f.Seen.Destination, prefixText(f.alarm.To)} {
			w.undone = append(w.undone, suppressed{u.Name, f.Seen.Kind, to, now.Add(undoLasts)})
		}
		if f.alarm.Kind.String() != f.Seen.Kind {
			w.undone = append(w.undone, suppressed{u.Name, f.alarm.Kind.String(),
				prefixText(f.alarm.To), now.Add(undoLasts)})
		}
		w.waits = time.Time{}
		w.change(ctx, now)
		w.settle(ctx)
		w.save(f)
		return true, nil
	}
	return false, nil
}

// apply puts the rules that were proposed for an incident into force.
func (w *Watcher) apply(ctx context.Context, id string) (bool, error) {
	w.settle(ctx)
	if u, f := w.incident(id); f != nil {
		now := time.Now()
		rules := slices.Clone(w.live)
		var mine []*incident.Rule
		for _, r := range f.rules {
			if r.State == incident.Waiting {
				rules, mine = append(rules, live{r, u.Detect}), append(mine, r)
			}
		}
		if len(mine) == 0 {
			return true, fmt.Errorf("incident %s has no rules that wait to be applied", id)
		}
		proven := slices.Collect(maps.Keys(w.Peers.known()))
		loaded, err := w.put(ctx, w.base, w.state, rules, proven, noSteps)
		if err != nil {
			return true, err
		}
		at := time.Now()
		w.live, w.loaded = rules, loaded
		for _, r := range mine {
			r.State, r.Since = incident.Live, &at
			f.states[r.Label] = &ruleState{active: now}
		}
		w.leased(at)
		f.State, f.acts = incident.Open, true
		if f.Acted == nil {
			f.Acted = &at
		}
		for _, u := range w.units {
			u.detector.Reset(now)
		}
		f.on, f.since = false, at
		w.save(f)
		return true, w.sampler.Follow(ctx)
	}
	return false, nil
}
