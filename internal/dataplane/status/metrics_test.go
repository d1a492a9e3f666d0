package status

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"levee/internal/host/lost"
	"levee/internal/openmetrics"
)

// someStatus has one of all that has metrics.
func someStatus() *Report {
	return &Report{Interfaces: []Interface{{
		Dev: "eth0", Netns: 7, Policy: `/etc/"a".levee`, Hash: "ab", Hook: "tcx",
		Rules: []Rule{{ID: "label:a\\b", Label: "a\\b", Verdict: "drop", Reason: "rule",
			Packets: 3, Bytes: 180}},
		Sets: []Set{{Name: "abusers", Entries: 2, Max: 100, Refused: 1}},
		Lost: &lost.Counts{Received: 9, Sent: 2, Card: []lost.Counter{
			{Name: "rx_missed_errors", Packets: 5},
			{Name: "rx_queue_drops", Queue: new(3), Packets: 4}}},
	}}, Backlogs: []lost.Backlog{{CPU: 1, Dropped: 6, Squeezed: 7}}}
}

func TestMetricsNameWhatTheyAreOf(t *testing.T) {
	for spaces, want := range map[bool][]string{
		false: {
			`levee_policy_info{dev="eth0",policy="/etc/\"a\".levee",hash="ab",hook="tcx"} 1`,
			`levee_trial_seconds{dev="eth0"} 0`, `levee_fallback{dev="eth0"} 0`,
			`levee_rule_packets_total{dev="eth0",rule="label:a\\b",label="a\\b",` +
				`verdict="drop",reason="rule"} 3`,
			`levee_set_entries{dev="eth0",set="abusers"} 2`,
			`levee_set_max_entries{dev="eth0",set="abusers"} 100`,
			`levee_set_refused_entries_total{dev="eth0",set="abusers"} 1`,
			`levee_lost_packets_total{dev="eth0",counter="rx_missed_errors"} 5`,
			`levee_lost_packets_total{dev="eth0",counter="rx_queue_drops",queue="3"} 4`,
			`levee_received_packets_total{dev="eth0"} 9`,
			`levee_lost_sent_packets_total{dev="eth0"} 2`,
			`levee_backlog_dropped_packets_total{cpu="1"} 6`,
			`levee_backlog_squeezed_rounds_total{cpu="1"} 7`,
		},
		true: {`levee_trial_seconds{dev="eth0",netns="7"} 0`},
	} {
		text := string(openmetrics.Append(nil, openmetrics.OpenMetrics,
			Metrics(someStatus(), spaces)))
		for _, line := range want {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("no %s in\n%s", line, text)
			}
		}
	}
}

func TestLongIdentitiesStayApart(t *testing.T) {
	long := "text:drop from { " + strings.Repeat("192.0.2.1, ", 100_000)
	a, b := shortIdentity(long+"1"), shortIdentity(long+"2")
	if a == b || len(a) > 200 {
		t.Errorf("%s\n%s", a, b)
	}
	if got := shortIdentity("default"); got != "default" {
		t.Error(got)
	}
}

// TestDashboardAsksForWhatThereIs looks up each metric of the Grafana dashboard.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/grafana/levee.json")
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(text) {
		t.Fatal("the dashboard is no JSON")
	}
	have := string(openmetrics.Append(nil, openmetrics.Text, Metrics(someStatus(), false)))
	asked := map[string]bool{}
	for _, name := range regexp.MustCompile(`levee_[a-z_]+`).FindAllString(string(text), -1) {
		asked[name] = true
		if !strings.Contains(have, "\n"+name+"{") {
			t.Errorf("the dashboard asks for %s, which is no metric", name)
		}
	}
	if len(asked) < 7 {
		t.Errorf("only %v", asked)
	}
}
