package episode

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"levee/internal/agent/incident"
)

// wanted is a rule of a writer in a world.
type wanted struct {
	Write
	at      time.Time // it was asked for
	may     bool      // it may go: its writer, or the policy, has no place for it
	inForce bool      // it was, at some time
	gone    bool
}

// write has a writer ask for a rule for a time.
func (w *world) write(origin string, lasts time.Duration) {
	label := fmt.Sprint("live-", len(w.wanted)+1)
	since := w.now
	until := since.Add(lasts)
	one := &wanted{at: since, Write: Write{Origin: origin, Rule: incident.Rule{
		Rule: `drop tcp as "` + label + `"`, Label: label, Action: "drop", Since: &since,
		Until: &until}}}
	w.wanted[label] = one
	w.step(Event{Write: &one.Write})
}

// erase has a writer take one of his rules back.
func (w *world) erase() {
	for _, label := range slices.Sorted(maps.Keys(w.wanted)) {
		if one := w.wanted[label]; !one.gone {
			one.may = true
			w.step(Event{Erase: &Erase{Label: label, Why: "its writer"}})
			return
		}
	}
}

// refuse is a change that failed, now and then because of a rule of a writer.
func (w *world) refuse(p *Put) *Applied {
	a := &Applied{Err: "the kernel refused"}
	for _, l := range p.Rules {
		if one := w.wanted[l.Rule.Label]; one != nil && w.IntN(4) == 0 {
			one.may = true
			a.Unfit = map[string]string{l.Rule.Label: "it would cut a session"}
		}
	}
	return a
}

// goes is told that a rule is gone.
func (w *world) goes(g *Gone) {
	one := w.wanted[g.Label]
	switch {
	case one.gone:
		w.wrongf("rule %s is gone twice", g.Label)
	case !one.may && one.inForce && w.now.Before(*one.Rule.Until):
		w.wrongf("rule %s of %s is gone, which nobody wanted: %s", g.Label, one.Origin, g.Why)
	}
	one.gone = true
}

// checkWritten: what a writer wants is in force, and nothing else of writers is.
func (w *world) checkWritten() {
	const soon = 8 * time.Second
	there := map[string]bool{}
	for _, l := range w.kernel {
		there[l.Rule.Label] = true
		one := w.wanted[l.Rule.Label]
		if one == nil {
			continue
		}
		if l.Origin != one.Origin {
			w.wrongf("rule %s is of %q", l.Rule.Label, l.Origin)
		}
		one.inForce = one.inForce || slices.ContainsFunc(w.m.written, func(o *written) bool {
			return o.Rule.Label == l.Rule.Label && !o.fresh
		})
		if w.calm && w.now.Sub(w.calmed) > soon && w.now.Sub(*one.Rule.Until) > soon {
			w.wrongf("rule %s is in force, and its lease has ended", l.Rule.Label)
		}
	}
	for label, one := range w.wanted {
		if w.calm && !one.gone && !there[label] && w.now.Sub(w.calmed) > soon &&
			one.Rule.Until.After(w.now) {
			w.wrongf("rule %s of %s is not in force", label, one.Origin)
		}
	}
}

// TestTwoWritersNeverWithdrawEachOthers: detectors were the only writers, and what they put into
// force was all that there was: whoever came would have taken theirs away, and they his.
func TestTwoWritersNeverWithdrawEachOthers(t *testing.T) {
	w := newWorld(1, func(time.Time, Event) {})
	w.calm, w.calmed = true, w.now
	w.write("api:a", time.Hour)
	w.write("api:b", time.Hour)
	for n := range 60 {
		w.bin(n)
	}
	if len(w.kernel) != 2 {
		t.Fatalf("%v", w.kernel)
	}
	w.erase() // of a
	for n := range 20 {
		w.bin(n)
	}
	if len(w.kernel) != 1 || w.kernel[0].Origin != "api:b" || len(w.wrong) > 0 {
		t.Errorf("%+v, %q", w.kernel, w.wrong)
	}
	w.begin() // another agent
	for n := range 20 {
		w.bin(n)
	}
	if len(w.kernel) != 1 || w.kernel[0].Origin != "api:b" || len(w.wrong) > 0 {
		t.Errorf("after a restart: %+v, %q", w.kernel, w.wrong)
	}
}

// TestNoOriginTakesTheRoomOfAnother: one alone has half of all, and whoever comes half of what is
// left.
func TestNoOriginTakesTheRoomOfAnother(t *testing.T) {
	m := New("eth0", func() string { return "1" })
	fill := func(origin string) (n int) {
		for ; m.Room(origin); n++ {
			r := incident.Rule{Label: origin + fmt.Sprint(n)}
			m.keep(&Write{Origin: origin, Rule: r}, false)
		}
		return n
	}
	var got []int
	for _, origin := range []string{"a", "b", "c", "d", "e"} {
		got = append(got, fill(origin))
	}
	if fmt.Sprint(got) != "[64 32 16 8 4]" {
		t.Errorf("%v", got)
	}
}
