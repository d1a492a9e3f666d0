package defend

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/agent/part"
	"levee/internal/dataplane"
	"levee/internal/lang/policy"
)

// flood is an incident that goes on.
type flood struct {
	incident.Incident
	rules  []*incident.Rule // those of the incident
	alarm  detect.Alarm     // the last
	last   time.Time        // it was seen
	on     bool             // it passes, at this moment
	rounds int
	failed int       // times that nothing was found, since a rule was
	retry  time.Time // nothing is searched before
	since  time.Time // packets before have been looked at
	states map[string]*ruleState
	dirty  bool
	acts   bool // rules are put into force: by its mode, or by a command
}

// ruleState is what is known of a live rule besides what its incident says.
type ruleState struct {
	last     dataplane.Counter
	peak     float64   // packets a second
	active   time.Time // it dropped what a flood is
	loosened time.Time
	dropped  float64 // packets while it was quiet, not loosened
	all      float64 // and all that came then
}

// Searching.
const (
	enough     = 1500 // packets of a flood are enough
	patience   = 150 * time.Millisecond
	fewest     = 60
	retryAfter = 2 * time.Second
	retrySoon  = 250 * time.Millisecond // the first time
	mostLive   = 16                     // rules of an incident
	mostPorts  = 8                      // of a cookie
	eachRound  = 4
	first      = 0.8  // share of a flood with which the first rules go into force
	looked     = 4000 // packets of each sample that a search looks at
	least      = 0.5  // share of what is too much that rules have to drop
	leastRule  = 0.1  // share of what those before leave of it that each of them has to,
	leastRate  = 750  // with so many packets a second
	leastPart  = 0.01 // and of the sample
	whole      = 0.99 // of it, with which a flood of SYNs needs no cookie
	most       = 0.9  // of it, with which drops stand beside a cookie
	leastGood  = 200
)

// alarm is told of what is too much.
func (w *Watcher) alarm(u *unit, now time.Time, a detect.Alarm) {
	f := u.flood
	if f != nil && f.Ended != nil && f.Seen.Kind != a.Kind.String() {
		u.over, f = append(u.over, f), nil
	}
	if f == nil {
		f = w.begin(u, now, a)
	}
	if f.failed > 0 && f.alarm.Kind != a.Kind { // it is another pattern
		f.retry, f.since, f.failed = time.Time{}, a.Since, 0
	}
	f.alarm, f.last = a, now
	if !f.on {
		f.on, f.since = true, a.Since
		w.good.forget(a.Since)
	}
	f.Ended = nil
	f.Seen.Peak = max(f.Seen.Peak, a.Packets)
	f.dirty = true
}

// begin opens an incident.
func (w *Watcher) begin(u *unit, now time.Time, a detect.Alarm) *flood {
	f := &flood{states: map[string]*ruleState{}, acts: u.Mode == policy.Enforce}
	f.Incident = incident.Incident{ID: w.Incidents.Next(), Detector: u.Name, Dev: w.Dev,
		Mode: u.Mode.String(), State: incident.Open, Began: a.Since, Detected: now,
		Seen: incident.Seen{Kind: a.Kind.String(), Destination: prefixText(a.To),
			Source: prefixText(a.From), Packets: a.Packets, Bits: a.Bits, Peak: a.Packets,
			Rate: a.Rate, Threshold: a.Threshold, Usual: a.Usual, Learned: a.Learned}}
	if u.Mode == policy.Observe {
		f.State = incident.Observed
	}
	f.Before.Packets, f.Before.Bits = u.detector.Usual(now)
	u.flood = f
	return f
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

// act searches rules against a flood that passes, when enough of it was seen.
func (w *Watcher) act(ctx context.Context, u *unit, now time.Time) {
	f := u.flood
	if !f.on || now.Before(f.retry) || f.State == incident.Undone || u.Mode == policy.Observe ||
		f.State == incident.Proposed {
		return
	}
	if w.isUndone(u, f.alarm, now) {
		f.State = incident.Undone
		f.note("what was taken back for this kind of flood stays so until %s",
			w.undoneUntil(u, f.alarm).Format(time.TimeOnly))
		return
	}
	if f.live() >= mostLive {
		f.retry = now.Add(retryAfter)
		f.note("%d rules are in force, and more of it passes", mostLive)
		return
	}
	a := f.alarm
	frames := w.recent.since(f.since, func(fr *frame) bool {
		w.decode(fr)
		return a.Kinds.Is(&w.packet) && (!a.To.IsValid() || a.To.Contains(w.packet.Dst)) &&
			(!a.From.IsValid() || a.From.Contains(w.packet.Src))
	})
	if len(frames) < enough && (now.Sub(f.since) < patience || len(frames) < fewest) {
		return
	}
	w.working = true
	job := w.job(u, f, frames, now)
	job.step("samples taken")
	go func() {
		r := result{unit: u, id: f.ID}
		if err := part.Try(func() error { r = job.run(ctx); return nil }); err != nil {
			r.err = err
		}
		w.results <- r
		job.keep(frames)
	}()
}

func (f *flood) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(f.Notes, text) {
		f.Notes = append(f.Notes, text)
		f.dirty = true
	}
}

// live is how many rules of a flood are in force.
func (f *flood) live() (n int) {
	for _, r := range f.rules {
		if r.IsLive() {
			n++
		}
	}
	return n
}
