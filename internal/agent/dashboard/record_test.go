package dashboard

import (
	"maps"
	"testing"
	"time"

	"levee/internal/agent/history"
	"levee/internal/dataplane/inspect"
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

// TestWhatIsLostBeforeAPolicyHasASeries: beside what its rules drop, and
// none where nothing is lost.
func TestWhatIsLostBeforeAPolicyHasASeries(t *testing.T) {
	all := []inspect.DeviceCounters{{Dev: "eth0"}, {Dev: "eth1"}}
	begun := time.Unix(1_000_000_000, 0)
	var counts history.Counts
	sums := map[history.Key]uint64{}
	for i := range 4 {
		lost := func(dev string) uint64 {
			return map[string]uint64{"eth0": 100 + 40*uint64(i)}[dev]
		}
		now := begun.Add(time.Duration(i) * time.Second)
		for _, s := range counts.Read(now, readings(all, lost)) {
			for _, a := range s.Amounts {
				sums[a.Key] += a.Packets
			}
		}
	}
	want := map[history.Key]uint64{
		{Dev: "eth0", Kind: history.Rule, ID: "lost before the policy"}: 120,
		{Dev: "eth0", Kind: history.Verdict, ID: "lost"}:                120,
	}
	if !maps.Equal(sums, want) {
		t.Errorf("%v, want %v", sums, want)
	}
}
