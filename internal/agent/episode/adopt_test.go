package episode

import (
	"testing"
	"time"

	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
)

// adopted is a machine behind an agent that has left these incidents and a rule in force, which is
// of the incident 4.
func adopted(t *testing.T, label string, others ...incident.Incident) (*Machine, time.Time) {
	t.Helper()
	m, now := machine(t)
	text := `drop udp as "` + label + `"`
	m.Step(now, Event{Adopt: &Adopt{InKernel: true, Texts: []string{text},
		Incidents: append(others, incident.Incident{ID: "4", Detector: "floods",
			State: incident.Open, Began: now, Acted: &now, Seen: incident.Seen{Kind: "udp"},
			Rules: []incident.Rule{{Rule: text, Label: label, Action: "drop",
				State: incident.Live, Since: &now}}})}})
	m.Step(now, Event{Second: &Second{}})
	m.Step(now, Event{Applied: &Applied{}})
	return m, now
}

// TestNoLabelIsGivenTwice: a search for one flood finds rules of another. An agent that began anew
// did not know these labels, and a search gave them to more rules, while the first were in force.
func TestNoLabelIsGivenTwice(t *testing.T) {
	m, now := adopted(t, "flood-3-8", incident.Incident{ID: "3", Detector: "floods",
		State: incident.Open, Began: time.Unix(1e9, 0), Seen: incident.Seen{Kind: "syn"}})
	for _, f := range m.Step(now, tickOf(now, kind.SYN)) {
		if f.Search != nil {
			if label := Label(f.Search.ID, f.Search.Round, 0); label != "flood-3-15" {
				t.Errorf("the next rule has the label %s", label)
			}
			return
		}
	}
	t.Error("nothing is searched")
}

// TestWhatIsUndoneHasNoRuleInForce: an incident that had a rule of a search for another one became
// undone, as a command had said of such floods, and the rule stayed.
func TestWhatIsUndoneHasNoRuleInForce(t *testing.T) {
	at := time.Unix(1e9, 0)
	m, now := adopted(t, "flood-3-1", incident.Incident{ID: "3", Detector: "floods",
		State: incident.Undone, Began: at, Closed: &at, Seen: incident.Seen{Kind: "udp"}})
	if len(m.Live()) != 1 {
		t.Fatalf("%d rules were adopted", len(m.Live()))
	}
	m.Step(now, tickOf(now, kind.UDP))
	if _, f := m.find("4"); f.State != incident.Undone {
		t.Errorf("the incident is %s", f.State)
	}
	m.Step(now, Event{Second: &Second{}})
	if live := m.Live(); len(live) > 0 {
		t.Errorf("in force: %+v", live)
	}
}
