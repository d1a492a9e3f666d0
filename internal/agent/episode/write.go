package episode

import (
	"slices"
	"time"

	"levee/internal/agent/incident"
)

// mostRules is the number of live rules that an interface has.
const mostRules = 128

// written is a rule of a writer that is no detector.
type written struct {
	Live
	fresh bool // it was never in force: the first change that fails takes it back
	last  Count
}

// Room says whether an origin may have another rule. It may while it has fewer than are free
// (dynamic thresholds): one alone has half of all, and leaves room for whoever comes.
func (m *Machine) Room(origin string) bool {
	own, all := 0, 0
	for _, l := range m.Live() {
		if all++; l.Origin == origin {
			own++
		}
	}
	return own < mostRules-all
}

// Live returns the rules that are to be in force.
func (m *Machine) Live() []Live { return m.wanted(m.live) }

// wanted are rules of detectors behind those of writers, who say what they want themselves.
func (m *Machine) wanted(rules []*rule) (out []Live) {
	for _, w := range m.written {
		out = append(out, w.Live)
	}
	return append(out, m.copies(rules)...)
}

// HasWritten says whether the rule of a writer is to be in force.
func (m *Machine) HasWritten(label string) bool { return m.writtenAt(label) >= 0 }

func (m *Machine) writtenAt(label string) int {
	return slices.IndexFunc(m.written, func(w *written) bool { return w.Rule.Label == label })
}

// write takes a rule of a writer.
func (m *Machine) write(now time.Time, w *Write) {
	m.keep(w, true)
	m.waits = time.Time{}
	m.change(now)
}

func (m *Machine) keep(w *Write, fresh bool) {
	l := Live{Rule: w.Rule, Origin: w.Origin}
	l.Rule.State = incident.Live
	m.written = append(m.written, &written{Live: l, fresh: fresh})
}

// erase takes a rule of a writer back.
func (m *Machine) erase(now time.Time, e *Erase) {
	m.lose(e.Label, e.Why)
	m.waits = time.Time{}
	m.change(now)
}

// lose lets go of a rule of a writer.
func (m *Machine) lose(label, why string) {
	if at := m.writtenAt(label); at >= 0 {
		m.written = slices.Delete(m.written, at, at+1)
		m.do(Effect{Gone: &Gone{label, why}})
	}
}

// loseAll lets go of rules of writers that are the reason for something.
func (m *Machine) loseAll(why map[string]string) {
	for _, w := range slices.Clone(m.written) {
		if text, ok := why[w.Rule.Label]; ok {
			m.lose(w.Rule.Label, text)
		}
	}
}

// refused takes back what was to come into force for the first time with a change that failed.
func (m *Machine) refused(p *pending, why string) {
	for _, w := range slices.Clone(m.written) {
		if w.fresh && slices.Contains(p.written, w) {
			m.lose(w.Rule.Label, why)
		}
	}
}

// expire removes rules whose lease has ended.
func (m *Machine) expire(now time.Time) {
	for _, w := range slices.Clone(m.written) {
		if w.Rule.Until != nil && !now.Before(*w.Rule.Until) {
			m.lose(w.Rule.Label, "its lease has ended")
		}
	}
}

// add counts what a rule has dropped, which begins anew where counters did.
func (w *written) add(c Count) {
	if c.Packets < w.last.Packets {
		w.last = Count{}
	}
	w.Rule.Packets += c.Packets - w.last.Packets
	w.Rule.Bytes += c.Bytes - min(c.Bytes, w.last.Bytes)
	w.last = c
}
