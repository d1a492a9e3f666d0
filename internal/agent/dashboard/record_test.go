package dashboard

import (
	"maps"
	"testing"

	"levee/internal/agent/history"
)

// TestWhatHasPassedIsToldByInterface: it has neither what was dropped nor what no rule has judged.
func TestWhatHasPassedIsToldByInterface(t *testing.T) {
	rule := func(dev, id, verdict string, n uint64) history.Amount {
		return history.Amount{Packets: n, Series: history.Series{Verdict: verdict,
			Key: history.Key{Dev: dev, Kind: history.Rule, ID: id}}}
	}
	all := history.Amount{Packets: 100, Series: history.Series{Verdict: "pass",
		Key: history.Key{Dev: "eth0", Kind: history.Verdict, ID: "pass"}}}
	first := []history.Amount{rule("eth0", "a", "pass", 3), rule("eth0", "b", "drop", 5), all}
	then := []history.Amount{rule("eth0", "b", "pass", 4), rule("eth1", "a", "pass", 7)}
	got := passed([]history.Second{{Amounts: first}, {Amounts: then}})
	if want := map[string]uint64{"eth0": 7, "eth1": 7}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
