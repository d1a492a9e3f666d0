package episode

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/lang/policy"
)

// flood is an incident that goes on.
type flood struct {
	incident.Incident
	rules  []*rule      // those of the incident
	alarm  detect.Alarm // the last
	last   time.Time    // it was seen
	on     bool         // it passes, at this moment
	drops  float64      // packets a second that its rules drop, as counted last
	most   float64      // the same, at most
	put    time.Time    // rules of it came into force last
	held   bool         // they dropped most of it after that, and none of them was lost since
	back   bool         // rules that were loosened are to drop again
	rounds int          // of searches
	failed int          // times that nothing was found, since a rule was
	tries  float64      // packets a second that passed then
	retry  time.Time    // nothing is searched before
	rests  time.Time    // the same, also of another pattern
	top    float64      // packets a second that passed in searches since a rule was, at most
	since  time.Time    // packets before have been looked at
	dirty  bool         // the file lacks something
	acts   bool         // rules are put into force: by its mode, or by a command
	was    float64      // packets a second that passed when rules were searched last
	moved  int          // times, one behind the other, that it has changed since its rules came
	came   int          // times that one like it came within an hour before
}

// rule is one of a flood, with what is known of it besides what its incident says.
type rule struct {
	incident.Rule
	detector string
	of       *flood
	last     Count
	peak     float64   // packets a second
	active   time.Time // it dropped what a flood is
	counted  time.Time // it was counted last, or came into force; zero: by an agent before
	now      float64   // packets a second since the time before
	loosened time.Time
}

// become is the one place where a flood's state changes.
func (f *flood) become(state string) { f.State, f.dirty = state, true }

// turn is the one place where the state of a rule changes.
func (f *flood) turn(r *rule, state string, now time.Time, why string) {
	at := now
	switch state {
	case incident.Live:
		if r.State == incident.Loosened {
			r.Rule.Rule, r.Loosened, f.back = Tightened(r.Rule.Rule), nil, true
		} else {
			r.Since, r.active, r.counted = &at, now, now
		}
	case incident.Loosened:
		r.Rule.Rule, r.loosened, r.Loosened = Loosened(r.Rule.Rule, f.harmless()), now, &at
	case incident.Gone:
		r.Gone, r.Why, r.Until = &at, why, nil
		f.drops = max(0, f.drops-r.now) // from now on that passes
	}
	r.State, f.dirty = state, true
}

// goes takes all rules back that are in force, or wait to be.
func (f *flood) goes(now time.Time, why string) {
	for _, r := range f.rules {
		if r.IsLive() || r.State == incident.Waiting && f.State == incident.Undone {
			f.turn(r, incident.Gone, now, why)
		}
	}
}

// live returns the number of rules of a flood that are in force.
func (f *flood) live() (n int) {
	for _, r := range f.rules {
		if r.IsLive() {
			n++
		}
	}
	return n
}

// tried are the answers that were in force: each is given once.
func (f *flood) tried(of *policy.Detect) (out []string) {
	for _, r := range f.rules {
		if a := answerOf(&r.Rule, of); r.Since != nil && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// note notes something about a flood, in the place of what was the same but for its figures: each
// search says it anew.
func (f *flood) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if slices.Contains(f.Notes, text) {
		return
	}
	form := figures.ReplaceAllString(text, " #")
	f.Notes = slices.DeleteFunc(f.Notes, func(o string) bool {
		return figures.ReplaceAllString(o, " #") == form
	})
	f.Notes = append(f.Notes, text)
	f.Notes = slices.Delete(f.Notes, 0, max(0, len(f.Notes)-incident.MostNotes))
	f.dirty = true
}

// figures are the numbers of a text, but for those of labels.
var figures = regexp.MustCompile(` [0-9][0-9.:e+-]*`)

// save has the incident kept as it is now.
func (m *Machine) save(f *flood) {
	f.dirty = false
	f.Incident.Rules = []incident.Rule{}
	c := incident.Collateral{Packets: f.Collateral.Packets}
	measured := false
	var sum float64
	for _, r := range f.rules {
		f.Incident.Rules = append(f.Incident.Rules, r.Rule)
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
	kept := f.Incident
	kept.Notes, kept.Steps = slices.Clone(f.Notes), slices.Clone(f.Steps)
	m.do(Effect{Save: &kept})
}

func (m *Machine) saveDirty() {
	m.each(func(_ *unit, f *flood) {
		if f.dirty {
			m.save(f)
		}
	})
}

// end closes an incident.
func (m *Machine) end(u *unit, f *flood, now time.Time, why string) {
	f.goes(now, why)
	if f.State == incident.Open || f.State == incident.Proposed {
		f.become(incident.Ended)
	}
	at := now
	f.Closed = &at
	if f.Ended == nil {
		last := f.last
		f.Ended = &last
	}
	m.save(f)
	m.log(f)
	u.ended(f, now)
	u.forget(f)
}

// Label is that of the n-th rule that a search of an incident finds.
func Label(id string, round, n int) string {
	return fmt.Sprintf("flood-%s-%d", id, (round-1)*(EachRound+1)+n+1)
}

// EachRound limits the rules that a search finds, without one that takes their place.
const EachRound = 6

// searchOf returns the incident whose search has found the rule of a label, and which of its
// searches that was; "" and 0 for none. The rule may be handed to another incident since.
func searchOf(label string) (id string, round int) {
	id, n, _ := strings.Cut(strings.TrimPrefix(label, "flood-"), "-")
	at, err := strconv.Atoi(n)
	if err != nil {
		return "", 0
	}
	return id, (at + EachRound) / (EachRound + 1)
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}
