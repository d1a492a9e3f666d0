package incident

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestIncidentsOutliveTheProcess, the newest first, within their bound.
func TestIncidentsOutliveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "incidents.json")
	s := OpenStore(path)
	if got := s.List(); got == nil || len(got) != 0 {
		t.Errorf("list %v", got)
	}
	for range most + 3 {
		if err := s.Put(Incident{ID: s.Next(), Seen: Seen{Kind: "udp"}, State: Open}); err != nil {
			t.Fatal(err)
		}
	}
	i, ok := s.Get("503")
	if !ok {
		t.Fatal("the last one is not there")
	}
	i.State = Ended
	if err := s.Put(i); err != nil {
		t.Fatal(err)
	}
	again := OpenStore(path)
	all := again.List()
	if len(all) != most || all[0].ID != "503" || all[0].State != Ended || all[0].Rules == nil {
		t.Errorf("%d incidents, the first is %+v", len(all), all[0])
	}
	if id := again.Next(); id != "504" {
		t.Errorf("the next is %s", id)
	}
	if _, ok := again.Get("3"); ok {
		t.Error("the oldest stays")
	}
}

// TestADamagedFileIsPutAside, and said.
func TestADamagedFileIsPutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "incidents.json")
	if err := os.WriteFile(path, []byte("spoilt"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := OpenStore(path)
	if s.Damaged == nil {
		t.Fatal("nothing is wrong")
	}
	if err := s.Put(Incident{ID: s.Next(), Seen: Seen{Kind: "of a later version"}}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path + ".damaged"); err != nil || string(text) != "spoilt" {
		t.Error(string(text), err)
	}
}

// TestASentenceTellsWhatWasSeenAndDone.
func TestASentenceTellsWhatWasSeenAndDone(t *testing.T) {
	began := time.Unix(1e9, 0)
	at := func(d time.Duration) *time.Time { v := began.Add(d); return &v }
	measured := 0.0004
	for _, tt := range []struct {
		want string
		i    Incident
	}{
		{"A SYN flood to 192.0.2.1 from forged sources: 812 k packets/s, where 1200 were usual " +
			"and more than 5000 are too much; 1 rule in force 0.6 s after its first packets " +
			"dropped 2.3 M of 2.4 M packets, at 0.05 % of 1 good packet (measured: 0.04 %); it " +
			"ended after 9s, and its rule was taken back", Incident{State: Ended, Began: began,
			Acted: at(600 * time.Millisecond), Ended: at(9 * time.Second), Closed: at(time.Minute),
			Seen: Seen{Kind: "syn", Destination: "192.0.2.1/32", Rate: 812e3, Usual: 1200,
				Threshold: 5000, Learned: true, Forged: true, Passed: 1e5},
			Rules:      []Rule{{State: Gone, Packets: 2_300_000}},
			Collateral: Collateral{Predicted: 0.0005, Measured: &measured, Packets: 1}}},
		{"A SYN flood: 9000 packets/s, where nothing was learned yet and more than 5000 are too " +
			"much; at most 40 k packets/s of all kinds; 1 rule in force 2.0 s after its first " +
			"packets dropped 9 packets, at a cost that is not known: no good packets were seen " +
			"before", Incident{State: Open, Began: began, Acted: at(2 * time.Second),
			Seen: Seen{Kind: "syn", Rate: 9000, Packets: 9100, Peak: 40_000, Threshold: 5000,
				Learned: true, Unknown: true}, Rules: []Rule{{State: Live, Packets: 9}}}},
		{"A flood to 2001:db8::1: 2.1 G bit/s, more than the 1.0 G that the policy allows; 2 " +
			"rules proposed", Incident{State: Proposed, Seen: Seen{Kind: "bits",
			Destination: "2001:db8::1/128", Rate: 2.1e9, Threshold: 1e9},
			Rules: []Rule{{State: Waiting}, {State: Waiting}}}},
		{"A reflection flood from 203.0.113.0/24: 5000 packets/s, where 0 were usual and more " +
			"than 3000 are too much; no rule was found that is clean", Incident{State: Open,
			Searches: 1, Seen: Seen{Kind: "reflection", Source: "203.0.113.0/24", Rate: 5000,
				Threshold: 3000, Learned: true}}},
		{"A UDP flood: 9000 packets/s, where 1 was usual and more than 3000 are too much; rules " +
			"are searched", Incident{State: Open, Seen: Seen{Kind: "udp", Rate: 9000, Usual: 0.6,
			Threshold: 3000, Learned: true}}},
		{"A UDP flood: 9000 packets/s, where 0 were usual and more than 3000 are too much; " +
			"observed only, as its detector says", Incident{State: Observed, Seen: Seen{Kind: "udp",
			Rate: 9000, Threshold: 3000, Learned: true}}},
		{"A UDP flood: 9000 packets/s, where 0 were usual and more than 3000 are too much; its " +
			"rules could not be put into force: chmod: operation not permitted", Incident{
			State: Open, Searches: 1, Failed: "chmod: operation not permitted",
			Seen: Seen{Kind: "udp", Rate: 9000, Threshold: 3000, Learned: true}}},
		{"A UDP flood: 9000 packets/s, where 0 were usual and more than 3000 are too much; " +
			"nothing is done, as a command said of such a flood; it ended after 2s", Incident{
			State: Undone, Began: began, Searches: 1, Ended: at(2 * time.Second),
			Seen: Seen{Kind: "udp", Rate: 9000, Threshold: 3000, Learned: true}}},
		{"A UDP flood: 9000 packets/s, where 0 were usual and more than 3000 are too much; 1 " +
			"rule in force 2.0 s after its first packets dropped 1 packet, at a cost that is " +
			"not known: no good packets were seen before, and its rule was taken back by a " +
			"command", Incident{State: Undone, Began: began, Acted: at(2 * time.Second),
			Seen:  Seen{Kind: "udp", Rate: 9000, Threshold: 3000, Learned: true},
			Rules: []Rule{{State: Gone, Packets: 1}}}},
		{"A flood: 9000 packets/s, where 0 were usual and more than 3000 are too much; nothing " +
			"was " +
			"done; it ended after 2s", Incident{State: Ended, Began: began,
			Ended: at(2 * time.Second), Seen: Seen{Kind: "of a later version", Rate: 9000,
				Threshold: 3000, Learned: true}}},
	} {
		if tt.i.Tell(); tt.i.Sentence != tt.want {
			t.Errorf("%s\nwant %s", tt.i.Sentence, tt.want)
		}
	}
}
