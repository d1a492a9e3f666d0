package episode

import (
	"fmt"
	"slices"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/lang/policy"
)

// Machine is the floods of one interface. It is for one goroutine.
type Machine struct {
	dev     string
	next    func() string // the ID of a new incident
	units   []*unit
	live    []*rule // that are to be in force, in the order of the policy
	written []*written
	loaded  string   // texts of those in the kernel; "?": others
	pending *pending // what was asked for, and is not answered
	undone  []suppressed
	waits   time.Time // for another try to change what is in force
	renewed time.Time
	out     []Effect
}

// unit is a detector with its floods, that have not ended with all their rules.
type unit struct {
	*policy.Detect
	floods []*flood
	pasts  []past // floods that have ended, the last one last
}

// pending is a search or a change whose outcome has yet to come.
type pending struct {
	flood *flood  // nil: rules were changed
	moved int     // times that the flood of a search has changed
	found *Found  // nil: it is a search, or no rules are new
	rules []*rule // of the flood, and of others that come at once
	live  []*rule // when it is in force
	texts string
	// written are the rules of writers in it.
	written []*written
}

// suppressed says of which floods nothing is done until a time, since somebody took back an answer.
type suppressed struct {
	detector, kind, to string
	until              time.Time
}

// Times of floods.
const (
	UndoLasts  = time.Hour // what was undone stays undone
	RetryAfter = 2 * time.Second
	retrySoon  = 250 * time.Millisecond // the first time
	retryMost  = 16 * time.Second       // while what passes stays as it is
	soon       = 500 * time.Millisecond // in which the packets of a search come
	// Searches that find nothing take a tenth of the time of a processor, from the second on.
	costly   = 10
	other    = 1.5 // times more or less is not as it was
	rise     = 4   // times more than a search has seen does not wait for another
	hurry    = 2 * time.Second
	mostLive = 16 // rules of a flood
	unknown  = "?"
)

// New returns a machine that knows of nothing. next gives the ID of a new incident.
func New(dev string, next func() string) *Machine { return &Machine{dev: dev, next: next} }

// Step takes an event, and says what is to be done now. The machine keeps nothing of the event.
func (m *Machine) Step(now time.Time, e Event) []Effect {
	m.out = nil
	switch {
	case e.Policy != nil:
		m.policy(now, e.Policy)
	case e.Unfit != nil:
		m.unfit(now, e.Unfit)
	case e.Adopt != nil:
		m.adopt(now, e.Adopt)
	case e.Tick != nil:
		m.tick(now, e.Tick)
	case e.Few != nil:
		m.pending = nil
	case e.Found != nil:
		m.found(now, *e.Found)
	case e.Applied != nil:
		m.applied(now, e.Applied)
	case e.Counted != nil:
		m.count(now, e.Counted)
	case e.Second != nil:
		m.second(now)
	case e.Lost != nil:
		m.lost(now, e.Lost.Texts)
	case e.Renewed != nil:
		m.kept(now, e.Renewed)
	case e.Undo != nil:
		m.undo(now, e.Undo.ID)
	case e.Apply != nil:
		m.apply(e.Apply.ID)
	case e.Spared != nil:
		m.spare(now, e.Spared)
	case e.Write != nil:
		m.write(now, e.Write)
	case e.Erase != nil:
		m.erase(now, e.Erase)
	}
	return m.out
}

func (m *Machine) do(e Effect) { m.out = append(m.out, e) }

func (m *Machine) log(f *flood) {
	m.do(Effect{Log: fmt.Sprintf("incident %s: %s", f.ID, f.Sentence)})
}

// forget lets go of a flood.
func (u *unit) forget(f *flood) {
	u.floods = slices.DeleteFunc(u.floods, func(o *flood) bool { return o == f })
}

// each calls a function for all floods. It may end them.
func (m *Machine) each(do func(*unit, *flood)) {
	for _, u := range m.units {
		for _, f := range slices.Clone(u.floods) {
			do(u, f)
		}
	}
}

func (m *Machine) unit(name string) *unit {
	for _, u := range m.units {
		if u.Name == name {
			return u
		}
	}
	return nil
}

// find returns the flood of an incident that has not ended with all its rules.
func (m *Machine) find(id string) (*unit, *flood) {
	for _, u := range m.units {
		for _, f := range u.floods {
			if f.ID == id {
				return u, f
			}
		}
	}
	return nil, nil
}

// Has says whether an incident is not over.
func (m *Machine) Has(id string) bool {
	_, f := m.find(id)
	return f != nil
}

// Waiting says whether an incident has rules that wait to be applied.
func (m *Machine) Waiting(id string) bool {
	_, f := m.find(id)
	return f != nil && slices.ContainsFunc(f.rules, func(r *rule) bool {
		return r.State == incident.Waiting
	})
}

// Working says whether an effect is not answered.
func (m *Machine) Working() bool { return m.pending != nil }

// Busy says whether a flood has not ended with all its rules.
func (m *Machine) Busy() bool {
	return slices.ContainsFunc(m.units, func(u *unit) bool { return len(u.floods) > 0 })
}

// Passing says whether a flood passes, at this moment.
func (m *Machine) Passing() bool {
	return slices.ContainsFunc(m.units, func(u *unit) bool {
		return slices.ContainsFunc(u.floods, func(f *flood) bool { return f.on })
	})
}

// Rests says whether floods pass, and no search for rules against one is soon.
func (m *Machine) Rests(now time.Time) bool {
	rest := false
	for _, u := range m.units {
		for _, f := range u.floods {
			if f.on && !u.leaves(f) && f.retry.Sub(now) < soon {
				return false
			}
			rest = rest || f.on
		}
	}
	return rest
}

// leaves says whether no rules against a flood are searched.
func (u *unit) leaves(f *flood) bool {
	return u.Mode == policy.Observe || f.State == incident.Undone || f.State == incident.Proposed
}

// Hurried says whether a flood has just begun to pass: asking the kernel about policies can take as
// long as all that is to be done about it, on processors that are busy with its packets.
func (m *Machine) Hurried(now time.Time) bool {
	return slices.ContainsFunc(m.units, func(u *unit) bool {
		return slices.ContainsFunc(u.floods, func(f *flood) bool {
			return f.on && now.Sub(f.since) < hurry
		})
	})
}

// Clean says whether what passes may be good: no flood does, and where live rules are to come
// (back), what they are against passes meanwhile.
func (m *Machine) Clean() bool {
	return !m.Passing() && (len(m.live) == 0 || m.loaded != "")
}

// copies are rules with their detectors. A detector that is gone has none.
func (m *Machine) copies(rules []*rule) (out []Live) {
	for _, r := range rules {
		u := m.unit(r.detector)
		if u != nil && (r.IsLive() || r.State == incident.Waiting) {
			out = append(out, Live{r.Rule, u.Detect, r.detector, r.of.ID})
		}
	}
	return out
}

// tick takes the alarms of a bin, and begins a search.
func (m *Machine) tick(now time.Time, t *Tick) {
	for _, u := range m.units {
		seen := map[*flood]bool{}
		for i := range t.Alarms {
			if a := &t.Alarms[i]; a.Detector == u.Name {
				m.alarm(u, now, a, seen)
			}
		}
		for _, f := range u.floods {
			f.on = f.on && seen[f]
		}
	}
	for _, u := range m.units {
		for _, f := range slices.Clone(u.floods) {
			if m.pending == nil {
				m.act(u, f, now)
			}
		}
	}
}

// alarm is told of what is too much. A flood of which there is an alarm already has no second one.
func (m *Machine) alarm(u *unit, now time.Time, a *Alarm, seen map[*flood]bool) {
	f := u.of(&a.Alarm)
	if f == nil {
		f = m.begin(u, now, a)
	}
	f.named(a)
	if seen[f] {
		return
	}
	seen[f] = true
	if f.failed > 0 && (f.alarm.Kind != a.Kind || a.All > other*f.tries || other*a.All < f.tries) {
		// it is another pattern
		f.retry, f.since, f.failed = f.rests, a.Since, 0
	}
	if f.top > 0 && a.All > rise*f.top {
		f.retry, f.since, f.failed = time.Time{}, a.Since, 0
	}
	from := f.last
	if !f.on {
		from = a.Since
	}
	f.Seen.Passed += a.Own * a.Share * min(now.Sub(from), time.Second).Seconds()
	f.alarm, f.last = a.Alarm, now
	if !f.on {
		f.on, f.since = true, a.Since
		since := a.Since
		m.do(Effect{Forget: &since})
	}
	f.Ended = nil
	f.Seen.Peak = max(f.Seen.Peak, a.Packets)
	f.dirty = true
}

// begin opens an incident.
func (m *Machine) begin(u *unit, now time.Time, a *Alarm) *flood {
	f := &flood{acts: u.Mode == policy.Enforce}
	f.Incident = incident.Incident{ID: m.next(), Detector: u.Name, Dev: m.dev,
		Mode: u.Mode.String(), Began: a.Since, Detected: now, Before: a.Before,
		Seen: incident.Seen{Kind: a.Kind.String(), Destination: prefixText(a.To),
			Source: prefixText(a.From), Packets: a.Packets, Bits: a.Bits, Peak: a.Packets,
			Rate: a.Rate, Threshold: a.Threshold, Usual: a.Usual, Learned: a.Learned,
			Unknown: a.Unknown}}
	f.become(incident.Open)
	if u.Mode == policy.Observe {
		f.become(incident.Observed)
	}
	u.comes(f, now)
	u.floods = append(u.floods, f)
	return f
}

// act begins a search for rules against a flood that passes.
func (m *Machine) act(u *unit, f *flood, now time.Time) {
	if !f.on || now.Before(f.retry) || u.leaves(f) {
		return
	}
	if m.isUndone(u, f.alarm, now) {
		f.become(incident.Undone)
		f.goes(now, byCommand) // it may have rules of a search for another flood
		f.note("what was taken back for this kind of flood stays so until %s",
			m.undoneUntil(u, f.alarm).Format(time.TimeOnly))
		return
	}
	f.comesBack(now)
	if m.loaded != Texts(m.Live()) { // what passes is what these are against
		m.change(now)
		return
	}
	if f.live() >= mostLive {
		f.retry = now.Add(RetryAfter)
		f.note("%d rules are in force, and more of it passes", mostLive)
		return
	}
	if !m.Room(u.Name) {
		f.retry = now.Add(RetryAfter)
		f.note("the interface has as many live rules as this detector may have, and more of it " +
			"passes")
		return
	}
	m.pending = &pending{flood: f, moved: f.changes(now)}
	m.do(Effect{Search: &Search{ID: f.ID, Of: u.Detect, Alarm: f.alarm, Since: f.since,
		Round: f.rounds + 1, Acts: f.acts, Peak: f.Seen.Peak, Live: m.Live(),
		Tried: f.tried(u.Detect), Moved: m.pending.moved}})
}

// isUndone says whether somebody has taken back what was done about such a flood.
func (m *Machine) isUndone(u *unit, a detect.Alarm, now time.Time) bool {
	m.undone = slices.DeleteFunc(m.undone, func(s suppressed) bool { return now.After(s.until) })
	return !m.undoneUntil(u, a).IsZero()
}

func (m *Machine) undoneUntil(u *unit, a detect.Alarm) (until time.Time) {
	for _, s := range m.undone {
		if s.detector == u.Name && s.kind == a.Kind.String() && s.to == prefixText(a.To) {
			until = s.until
		}
	}
	return until
}
