package episode

import (
	"fmt"
	"time"

	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
)

// Rates and times of rules.
const (
	activeRate  = 20   // packets a second that a rule drops while a flood goes on, at least
	activeShare = 0.01 // and this share of its peak
	// harmless is the share of an incident's threshold below which its traffic is no flood, even
	// shortly after one. The detectors take more for a flood that continues.
	harmless   = 0.25
	loosenedIn = 3 * time.Second // a drop is a limit so long after the flood, at the latest
	endsAfter  = 3 * time.Second
	countedFor = 2 * time.Second // what rules drop is known for so long
	ofSecond   = 3 * time.Second / 2
	// A rule that drops less than fallen of its peak, while the flood passes, is of a pattern that
	// the flood has left.
	fallen = 0.1
)

// count takes what live rules have dropped, and what that costs.
func (m *Machine) count(now time.Time, c *Counted) {
	for _, w := range m.written {
		w.add(c.Rules[w.Rule.Label])
	}
	m.each(func(u *unit, f *flood) {
		all, late := 0.0, false
		for _, r := range f.rules {
			if r.IsLive() {
				late = late || now.Sub(r.counted) > ofSecond
				f.count(r, c.Rules[r.Label], now)
				all += r.now
			}
		}
		f.drops, f.most = all, max(f.most, all)
		f.Seen.Peak = max(f.Seen.Peak, all)
		if f.on && !late { // both are of the second that has gone by
			f.Seen.Peak = max(f.Seen.Peak, all+f.alarm.Packets)
		}
		f.hold(now)
		for _, r := range f.rules {
			if r.IsLive() && f.keeps(r, all) {
				r.active, f.last, f.Ended = now, now, nil
			}
			if share, ok := c.Costs[r.Label]; ok && r.IsLive() {
				m.cost(u, f, r, share, now)
			}
			if r.State == incident.Live && r.Action == "drop" && f.on && r.now < fallen*r.peak &&
				max(f.alarm.All, f.alarm.Rate) >= fallen*r.peak { // it is not over
				f.turn(r, incident.Gone, now, "the flood passes it by")
			}
		}
	})
	for _, u := range m.units {
		u.tell(m, now)
	}
}

// tell says how much rules of floods drop, which is what their detector holds the rest against.
func (u *unit) tell(m *Machine, now time.Time) {
	drops := 0.0
	for _, f := range u.floods {
		if f.drops > f.harmless() {
			drops += f.drops
		}
	}
	if drops > 0 {
		m.do(Effect{Drops: &Drops{u.Name, drops, now.Add(countedFor)}})
	}
}

// count takes the counter of a rule. While a search or a change is under way nothing is counted, so
// the last time may be longer ago than a second.
func (f *flood) count(r *rule, c Count, now time.Time) {
	if r.counted.IsZero() { // an agent before this one has counted the most of it
		r.last, r.counted, f.dirty = c, now, true
		r.Packets, r.Bytes = max(r.Packets, c.Packets), max(r.Bytes, c.Bytes)
		return
	}
	if c.Packets < r.last.Packets {
		r.last = Count{}
	}
	r.now = float64(c.Packets-r.last.Packets) / max(1, now.Sub(r.counted).Seconds())
	r.counted = now
	r.Packets += c.Packets - r.last.Packets
	r.Bytes += c.Bytes - min(c.Bytes, r.last.Bytes)
	r.last = c
	r.peak = max(r.peak, r.now)
	f.dirty = f.dirty || r.now > 0
}

// keeps says whether what a rule drops keeps it in force, where all rules of the flood together
// drop so much. A flood has to be one still: a trickle of its packets would hold the rule, and
// whoever looks like them, for as long as somebody likes. A limit for all has no pattern of the
// flood: clients that are no flood without it would hold it.
func (f *flood) keeps(r *rule, all float64) bool {
	switch {
	case r.now <= max(activeRate, activeShare*r.peak):
		return false
	case r.State == incident.Loosened: // it is more than is harmless
		return true
	case f.on:
		return true
	case r.Action == Limit && f.Seen.Kind != kind.Bits.String():
		if leaves := rateOf(r.Rule.Rule); leaves > 0 {
			return all+leaves > f.Seen.Threshold
		}
	}
	return all > f.harmless()
}

// cost takes a rule back that costs more than its detector allows.
func (m *Machine) cost(u *unit, f *flood, r *rule, share float64, now time.Time) {
	if r.Measured == nil || *r.Measured < share {
		r.Measured, f.dirty = &share, true
	}
	if share <= max(u.Collateral, r.Predicted) {
		return
	}
	f.turn(r, incident.Gone, now, fmt.Sprintf("it dropped %.2g %% of the good packets", 100*share))
	f.held, f.was = false, 0 // what it dropped passes again
	f.note("%s was taken back: it dropped %.2g %% of the good packets, and %.2g %% is allowed",
		r.Label, 100*share, 100*u.Collateral)
	m.do(Effect{Spare: true})
}

// harmless is the rate that a flood may have without being one, in packets a second. Beside a large
// flood less is too much, and no less is harmless.
func (f *flood) harmless() float64 {
	rate := harmless * max(f.Seen.Threshold, harmless*kind.Named(f.Seen.Kind).Floor)
	if f.Seen.Kind == kind.Bits.String() && f.Seen.Bits > 0 {
		rate *= f.Seen.Packets / f.Seen.Bits
	}
	return max(100, rate)
}

// comesBack has rules that were loosened drop again: what passes of a flood that comes back is what
// a limit leaves.
func (f *flood) comesBack(now time.Time) {
	for _, r := range f.rules {
		if r.State == incident.Loosened {
			f.turn(r, incident.Live, now, "")
			r.active = now
		}
	}
}

// age changes the rules of a flood by how long they were quiet, and closes it. What is changed
// comes into force afterwards.
func (m *Machine) age(u *unit, f *flood, now time.Time) {
	for _, r := range f.rules {
		if !r.IsLive() {
			continue
		}
		quiet := now.Sub(r.active)
		switch {
		case quiet >= u.quietFor(f):
			f.turn(r, incident.Gone, now, "the flood is over")
		case r.State == incident.Live && r.Action == "drop" && quiet >= min(loosenedIn, u.Quiet/3):
			f.turn(r, incident.Loosened, now, "")
		case r.State == incident.Loosened && r.active.After(r.loosened):
			f.turn(r, incident.Live, now, "")
		}
	}
	if f.on {
		return
	}
	if f.Ended == nil && now.Sub(f.last) > endsAfter {
		last := f.last
		f.Ended, f.dirty = &last, true
	}
	if f.live() == 0 && now.Sub(f.last) >= u.quietFor(f) && !m.waited(f) {
		m.end(u, f, now, "the flood is over")
	}
}
