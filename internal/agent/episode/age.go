package episode

import (
	"time"

	"levee/internal/agent/incident"
)

// Rates of rules.
const (
	activeRate  = 20   // packets a second that a rule drops while a flood goes on, at least
	activeShare = 0.01 // and this share of its peak
	bounds      = 1000 // packets that a measured share is of, at least
	settles     = 2 * time.Second
	endsAfter   = 3 * time.Second
)

// count takes what live rules have dropped.
func (m *Machine) count(now time.Time, c *Counted) {
	m.each(func(_ *unit, f *flood) {
		for _, r := range f.rules {
			if r.IsLive() {
				f.count(r, c.Rules[r.Label], c.Passed, now)
			}
		}
	})
}

func (f *flood) count(r *rule, c Count, passed float64, now time.Time) {
	if c.Packets < r.last.Packets {
		r.last = Count{}
	}
	n := float64(c.Packets - r.last.Packets)
	r.Packets += c.Packets - r.last.Packets
	r.Bytes += c.Bytes - min(c.Bytes, r.last.Bytes)
	r.last = c
	f.dirty = f.dirty || n > 0
	r.peak = max(r.peak, n)
	if n > max(activeRate, activeShare*r.peak) {
		r.active, f.last, f.Ended = now, now, nil
		return
	}
	if r.State == incident.Live && r.Action != "cookie" && now.Sub(r.active) > settles && !f.on {
		r.dropped += n
		if r.all += n + passed; r.all >= bounds {
			share := r.dropped / r.all
			r.Measured = &share
		}
	}
}

// harmless is the rate that a flood may have without being one.
func (f *flood) harmless() float64 { return max(100, f.Seen.Threshold/20) }

// age changes the rules of a flood by how long they were quiet, and closes it. What is changed
// comes into force afterwards.
func (m *Machine) age(u *unit, f *flood, now time.Time) {
	for _, r := range f.rules {
		if !r.IsLive() {
			continue
		}
		quiet := now.Sub(r.active)
		switch {
		case quiet >= u.Quiet:
			f.turn(r, incident.Gone, now, "the flood is over")
		case r.State == incident.Live && r.Action == "drop" && quiet >= u.Quiet/3:
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
	if f.live() == 0 && now.Sub(f.last) >= u.Quiet && (m.pending == nil || m.pending.flood != f) {
		m.end(u, f, now, "the flood is over")
	}
}
