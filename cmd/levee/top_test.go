package main

import (
	"fmt"
	"testing"
	"time"

	"levee/internal/cli"
	"levee/internal/dataplane/status"
	"levee/internal/filter/cookie"
	"levee/internal/filter/divert"
	"levee/internal/filter/flow"
	"levee/internal/filter/fragment"
	"levee/internal/filter/limit"
	"levee/internal/filter/state"
)

func TestTopShowsWhatAPolicyRemembers(t *testing.T) {
	s := &status.Interface{
		Memories: state.Memories{
			Connections: &flow.Stats{Live: 7, Open: 5, Places: 100},
			Cookies:     &state.Proofs{Stats: cookie.Stats{Sources: 1}},
			Fragments:   &fragment.Stats{Datagrams: 2, Refused: 3},
			Diverted:    &state.Diversions{Stats: divert.Stats{Noted: 8, Given: 42, Alone: 3}},
			Limits: []state.Budgets{{Rule: "edge.levee:4", Label: "dns", Stats: limit.Stats{
				Slots: 64, Live: 9, Evicted: 2, InheritedSeconds: 1.5}}},
		},
		Sets: []status.Set{{Name: "abusers", Entries: 4, Max: 50, Refused: 6}},
	}
	want := []string{
		"7 flows: 7 known of 100, 5 of TCP open",
		"9 limit edge.levee:4 dns: 9 of 64 budgets live, 2 evicted with a debt of 1.5s",
		"1 cookies: 1 client proven, answering nobody",
		"2 fragments: of 2 datagrams expected, 3 refused",
		"8 diverted: 8 connections noted, 42 given to a trap, 3 refused",
		"4 set abusers: 4 of 50 entries, 6 refused",
	}
	got := memories(s)
	for i, m := range got {
		if line := fmt.Sprintf("%d %s: %s", m.Live, m.Name, m.Text); i < len(want) &&
			line != want[i] {
			t.Errorf("%q, want %q", line, want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
}

// TestTopLeftServicesOut: services that have a policy of their own were in status and nowhere else.
func TestTopLeftServicesOut(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	e := &env{Env: &cli.Env{Now: func() time.Time { return now }}}
	s := &status.Service{Service: "nginx.service", Policy: "/etc/levee/nginx.levee", Hook: "cgroup",
		Why: "it has ended", Since: now.Add(-time.Minute), Rules: []status.Rule{
			{ID: "label:web", Verdict: "pass", Rule: "nginx.levee:3", Line: 3, Packets: 7}},
		Sets: []status.Set{{Name: "abusers", Entries: 4, Max: 50}}}
	shown := e.shownService(s)
	if want := "nginx.levee, cgroup, for 1m0s; not in force: it has ended"; shown.Title != want ||
		shown.Name != "service nginx.service" {
		t.Errorf("%q: %q, want %q", shown.Name, shown.Title, want)
	}
	if len(shown.Rules) != 1 || shown.Rules[0].Packets != 7 || len(shown.Memory) != 1 {
		t.Errorf("%+v", shown)
	}
}
