package episode

import (
	"fmt"
	"testing"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/lang/policy"
)

// TestSearchesThatFindNothingRest: of a flood that nothing tells from clients each change of its
// rate began another search, and these took a tenth of a processor and more.
func TestSearchesThatFindNothingRest(t *testing.T) {
	m := New("eth0", func() string { return "1" })
	now := time.Unix(1e9, 0)
	m.Step(now, Event{Policy: &Policy{Detects: []*policy.Detect{{Name: "floods",
		Mode: policy.Enforce, Quiet: time.Minute, Lease: 10 * time.Second, Collateral: 1e-3}}}})
	rate := 10_000.0
	searches := func(after time.Duration) (is bool) {
		now = now.Add(after)
		rate *= 2 // another pattern
		for _, f := range m.Step(now, Event{Tick: &Tick{Alarms: []Alarm{{Detector: "floods",
			Alarm: detect.Alarm{Kind: kind.UDP, Rate: rate, All: rate, Threshold: 10_000,
				Since: now}}}}}) {
			is = is || f.Search != nil
		}
		if is {
			note := fmt.Sprintf("no limit: it would drop %.1f %% of 100 good packets", rate/1e4)
			m.Step(now, Event{Found: &Found{Notes: []string{note}, Took: 200 * time.Millisecond}})
		}
		return is
	}
	for i, c := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {100 * time.Millisecond, true}, {time.Second, false},
		{900 * time.Millisecond, false}, {200 * time.Millisecond, true}, {time.Second, false}} {
		if got := searches(c.after); got != c.want {
			t.Errorf("alarm %d: a search %t", i+1, got)
		}
		if i > 0 && m.Rests(now) != (i != 3) { // a search is soon then
			t.Errorf("alarm %d: it rests: %t", i+1, m.Rests(now))
		}
	}
	rate *= 4
	if !searches(100*time.Millisecond) || searches(100*time.Millisecond) {
		t.Error("four times as much as any search has seen waits, or twice does not")
	}
	_, f := m.find("1")
	if len(f.Notes) != 1 {
		t.Errorf("each search says anew: %q", f.Notes)
	}
	for i := range 40 {
		f.note("frames of the type %c", 'A'+i)
	}
	if len(f.Notes) > incident.MostNotes {
		t.Errorf("%d notes", len(f.Notes))
	}
}
