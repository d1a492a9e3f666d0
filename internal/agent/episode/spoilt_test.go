package episode

import (
	"encoding/json"
	"testing"
	"time"

	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/lang/policy"
)

// TestIncidentsWithAnyByteChangedStopNothing: files of levee before they had a sum are read as they
// are, whatever stands in them. What can be read is adopted, told and measured.
func TestIncidentsWithAnyByteChangedStopNothing(t *testing.T) {
	m, now := enforced(t)
	all := uint64(0)
	var kept []incident.Incident
	save := func(out []Effect) {
		for _, e := range out {
			if e.Save != nil {
				kept = append(kept[:0], *e.Save)
			}
		}
	}
	for range 3 {
		save(pass(m, &now, &all, 30_000, 0))
	}
	save(m.Step(now, Event{Counted: &Counted{}}))
	if len(kept) == 0 {
		t.Fatal("no incident is saved")
	}
	text, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for at := range text {
		for _, with := range []byte{1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80} {
			spoilt := append([]byte{}, text...)
			spoilt[at] ^= with
			var some []incident.Incident
			if json.Unmarshal(spoilt, &some) != nil {
				continue
			}
			read++
			adoptAll(some, now)
		}
	}
	if read < len(text)/2 {
		t.Errorf("only %d of the changed texts could be read", read)
	}
}

// adoptAll has a machine go on with incidents, until what it has of them is over.
func adoptAll(all []incident.Incident, now time.Time) {
	for k := range all {
		all[k].Tell()
	}
	incident.Metrics(all)
	m := New("eth0", func() string { return "2" })
	m.Step(now, Event{Policy: &Policy{[]*policy.Detect{
		{Name: "floods", Mode: policy.Enforce, Collateral: 1e-3, Lease: 10 * time.Second,
			Quiet: 6 * time.Second}}}})
	m.Step(now, Event{Adopt: &Adopt{Incidents: all, InKernel: true,
		Texts: []string{`drop udp as "flood-1-1"`}}})
	m.Step(now, tickOf(now, kind.UDP))
	for range 12 {
		now = now.Add(time.Second)
		for _, e := range m.Step(now, Event{Second: &Second{}}) {
			if e.Put != nil {
				m.Step(now, Event{Applied: &Applied{}})
			}
			if e.Save != nil {
				e.Save.Tell()
			}
		}
	}
}
