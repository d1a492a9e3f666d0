package episode

import (
	"strings"
	"testing"
	"time"

	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/lang/policy"
)

const dropLabel = "flood-1-1"

// enforced is a flood of 30,000 packets a second that a rule drops.
func enforced(t *testing.T) (*Machine, time.Time) {
	t.Helper()
	m, now := machine(t)
	m.Step(now, tickOf(now, kind.UDP))
	m.Step(now, Event{Found: &Found{Rules: []incident.Rule{{Rule: `drop udp as "flood-1-1"`,
		Label: dropLabel, Action: "drop"}}}})
	m.Step(now, Event{Applied: &Applied{}})
	m.Step(now, Event{Tick: &Tick{}})
	return m, now
}

// pass is a second in which the rule drops so many packets, of which some are good.
func pass(m *Machine, now *time.Time, all *uint64, n uint64, costs float64) (out []Effect) {
	*now, *all = now.Add(time.Second), *all+n
	c := &Counted{Rules: map[string]Count{dropLabel: {Packets: *all}},
		Costs: map[string]float64{dropLabel: costs}}
	out = m.Step(*now, Event{Counted: c})
	out = append(out, m.Step(*now, Event{Second: &Second{}})...)
	for _, f := range out {
		if f.Put != nil {
			out = append(out, m.Step(*now, Event{Applied: &Applied{}})...)
		}
	}
	return out
}

// TestAFloodThatComesBackFindsItsRule: what the limit left that its drop had become was searched
// for another rule, and another one with each pulse.
func TestAFloodThatComesBackFindsItsRule(t *testing.T) {
	m, now := enforced(t)
	all := uint64(0)
	for range 4 {
		pass(m, &now, &all, 30_000, 0)
	}
	for range 4 {
		pass(m, &now, &all, 0, 0)
	}
	if m.Live()[0].Rule.State != incident.Loosened {
		t.Fatalf("%+v", m.Live())
	}
	resets := false
	for _, f := range m.Step(now, tickOf(now, kind.UDP)) {
		if f.Search != nil {
			t.Error("a search for what a loosened rule is against")
		}
		if f.Put != nil {
			for _, f := range m.Step(now, Event{Applied: &Applied{}}) {
				resets = resets || f.Reset
			}
		}
	}
	for range 3 {
		pass(m, &now, &all, 30_000, 0)
	}
	if live := m.Live(); !resets || live[0].Rule.State != incident.Live ||
		!strings.HasPrefix(live[0].Rule.Rule, "drop udp") {
		t.Errorf("the detector begins anew: %t; %+v", resets, live)
	}
}

// TestRulesAgainstPulsesStayLonger: each pulse further apart than quiet passed until a search had
// found its rule again.
func TestRulesAgainstPulsesStayLonger(t *testing.T) {
	m, now := enforced(t)
	all := uint64(0)
	for pulse, quiet := range []int{6, 12, 24} {
		if pulse > 0 {
			m.Step(now, tickOf(now, kind.UDP))
			m.Step(now, Event{Found: &Found{Rules: []incident.Rule{{
				Rule: `drop udp as "flood-1-1"`, Label: dropLabel, Action: "drop"}}}})
			m.Step(now, Event{Applied: &Applied{}})
			m.Step(now, Event{Tick: &Tick{}})
		}
		pass(m, &now, &all, 30_000, 0)
		stays := 0
		for len(m.Live()) > 0 && stays < 60 {
			pass(m, &now, &all, 0, 0)
			stays++
		}
		if stays < quiet || stays > quiet+1 {
			t.Errorf("pulse %d: the rule stayed %d s, not %d", pulse+1, stays, quiet)
		}
		for m.Busy() {
			pass(m, &now, &all, 0, 0)
		}
	}
}

// TestAnotherAgentCountsOnce: what an agent before it had counted was counted again, as of one
// second: a flood of 30,000 packets a second had a peak of 150,000.
func TestAnotherAgentCountsOnce(t *testing.T) {
	for what, reset := range map[string]uint64{"": 0, "put into force anew, ": 60_000} {
		m, now := enforced(t)
		all := uint64(0)
		var kept incident.Incident
		for range 5 {
			for _, f := range pass(m, &now, &all, 30_000, 0) {
				if f.Save != nil {
					kept = *f.Save
				}
			}
		}
		all -= reset
		m = New("eth0", func() string { return "2" })
		of := []*policy.Detect{statement("floods", policy.Enforce)}
		m.Step(now, Event{Policy: &Policy{of}})
		m.Step(now, Event{Adopt: &Adopt{InKernel: true, Texts: []string{kept.Rules[0].Rule},
			Incidents: []incident.Incident{kept}}})
		for range 3 {
			pass(m, &now, &all, 30_000, 0)
		}
		_, f := m.find("1")
		want := uint64(5+3) * 30_000
		if reset > 0 {
			want -= 30_000 // of the second between both nobody knows
		}
		if f.Seen.Peak > 60_000 || f.rules[0].Packets != want {
			t.Errorf("%sit has a peak of %.0f, and dropped %d packets: want %d", what, f.Seen.Peak,
				f.rules[0].Packets, want)
		}
	}
}

// TestATrickleHoldsNoRule: 4 s of a flood, and a fiftieth of it from then on, kept a drop in force
// for as long as somebody liked, and all clients that look like it out.
func TestATrickleHoldsNoRule(t *testing.T) {
	m, now := enforced(t)
	all := uint64(0)
	for range 4 {
		pass(m, &now, &all, 30_000, 0)
	}
	for range 2 {
		pass(m, &now, &all, 600, 0)
	}
	live := m.Live()
	if len(live) != 1 || live[0].Rule.State != incident.Loosened ||
		!strings.Contains(live[0].Rule.Rule, "limit udp rate 2500/s") {
		t.Fatalf("after 2 s of a trickle: %+v", live)
	}
	for range 6 { // the limit drops nothing of it
		pass(m, &now, &all, 0, 0)
	}
	if live := m.Live(); len(live) > 0 {
		t.Errorf("after 9 s: %+v", live)
	}
}

// TestClientsHoldNoLimit: of a limit on who did not come before a flood, or for all, what new
// clients have more than it kept it in force for good. Without it they are no flood.
func TestClientsHoldNoLimit(t *testing.T) {
	for text, comes := range map[string]uint64{
		`limit udp not from { 192.0.2.1 } rate 1000/s as "flood-1-1"`: 5000,
		`limit udp rate 1000/s as "flood-1-1"`:                        5000,
		`limit udp by source rate 20/s as "flood-1-1"`:                0, // its bots may be many
	} {
		m, now := machine(t)
		m.Step(now, tickOf(now, kind.UDP))
		m.Step(now, Event{Found: &Found{Rules: []incident.Rule{{Rule: text, Label: dropLabel,
			Action: Limit}}}})
		m.Step(now, Event{Applied: &Applied{}})
		m.Step(now, Event{Tick: &Tick{}})
		all := uint64(0)
		for range 10 { // with what it passes, more than the 10,000 that are too much
			pass(m, &now, &all, 9500, 0)
		}
		if live := m.Live(); len(live) != 1 || live[0].Rule.State != incident.Live {
			t.Errorf("%s: while a flood goes on: %+v", text, live)
		}
		for range 10 {
			pass(m, &now, &all, comes, 0)
		}
		if live := m.Live(); len(live) > 0 {
			t.Errorf("%s: after it: %+v", text, live)
		}
	}
}

// TestAFloodThatComesBackIsDroppedAgain.
func TestAFloodThatComesBackIsDroppedAgain(t *testing.T) {
	m, now := enforced(t)
	all := uint64(0)
	pass(m, &now, &all, 30_000, 0)
	for range 4 {
		pass(m, &now, &all, 0, 0)
	}
	if s := m.Live()[0].Rule.State; s != incident.Loosened {
		t.Fatalf("the rule is %s", s)
	}
	pass(m, &now, &all, 27_500, 0)
	if r := m.Live()[0].Rule; r.State != incident.Live || r.Rule != `drop udp as "flood-1-1"` {
		t.Errorf("%+v", r)
	}
}

// TestARuleThatCostsTooMuchIsTakenBack while the flood goes on: what it costs was said of traffic
// before the flood only.
func TestARuleThatCostsTooMuchIsTakenBack(t *testing.T) {
	m, now := enforced(t)
	all := uint64(0)
	if pass(m, &now, &all, 30_000, 0.0005); len(m.Live()) != 1 {
		t.Fatal("a rule that costs less than is allowed is gone")
	}
	spared, note := false, ""
	for _, f := range pass(m, &now, &all, 30_000, 0.2) {
		spared = spared || f.Spare
		if f.Save != nil {
			note = strings.Join(f.Save.Notes, " ")
		}
	}
	if len(m.Live()) > 0 || !spared || !strings.Contains(note, "dropped 20 % of the good packets") {
		t.Errorf("live %+v, spared %v, notes %q", m.Live(), spared, note)
	}
}

// TestARuleThatAFloodHasLeftIsGone at once: rules for the patterns of a moment added up to sixteen.
func TestARuleThatAFloodHasLeftIsGone(t *testing.T) {
	m, now := enforced(t)
	all := uint64(0)
	pass(m, &now, &all, 30_000, 0)
	m.Step(now, tickOf(now, kind.UDP))
	m.Step(now, Event{Found: &Found{}})
	if pass(m, &now, &all, 29_000, 0); len(m.Live()) != 1 {
		t.Fatal("a rule that drops most of it is gone")
	}
	m.Step(now, tickOf(now, kind.UDP))
	m.Step(now, Event{Found: &Found{}})
	if pass(m, &now, &all, 100, 0); len(m.Live()) > 0 {
		t.Errorf("%+v", m.Live())
	}
}

// TestTwoFloodsAreTwoIncidents: SYNs that came while UDP was dropped were told of as UDP.
func TestTwoFloodsAreTwoIncidents(t *testing.T) {
	ids := 0
	m := New("eth0", func() string { ids++; return string(rune('0' + ids)) })
	now := time.Unix(1e9, 0)
	m.Step(now, Event{Policy: &Policy{[]*policy.Detect{statement("floods", policy.Enforce)}}})
	for _, k := range []kind.Kind{kind.UDP, kind.SYN, kind.UDP, kind.UDP} {
		now = now.Add(time.Second / 10)
		m.Step(now, tickOf(now, k))
		m.Step(now, Event{Few: &Few{}})
	}
	if ids != 2 || !m.Has("1") || !m.Has("2") {
		t.Errorf("%d incidents", ids)
	}
	kinds := map[string]string{}
	for _, f := range m.Step(now, Event{Second: &Second{}}) {
		if f.Save != nil {
			kinds[f.Save.ID] = f.Save.Seen.Kind
		}
	}
	if kinds["1"] != "udp" || kinds["2"] != "syn" {
		t.Error(kinds)
	}
}

// TestWhatRulesDropIsCountedBySeconds: nothing is counted while a search is under way, and what had
// been dropped in three seconds was taken for one: an incident told of three times the flood, and
// less than half of that, from then on, did not hold it.
func TestWhatRulesDropIsCountedBySeconds(t *testing.T) {
	m, now := enforced(t)
	all := uint64(0)
	now = now.Add(2 * time.Second)
	peak, drops := 0.0, 0.0
	for _, n := range []uint64{90_000, 30_000, 30_000, 30_000, 30_000, 18_000} {
		for _, f := range pass(m, &now, &all, n, 0) {
			if f.Save != nil {
				peak = f.Save.Seen.Peak
			}
			if f.Drops != nil {
				drops = f.Drops.Packets
			}
		}
	}
	if _, f := m.find("1"); peak != 30_000 || drops != 18_000 || !f.held {
		t.Errorf("at most %v packets a second, %v are dropped; the rules hold it: %v", peak, drops,
			f.held)
	}
}
