package defend

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/agent/inforce"
	"levee/internal/agent/rulebook"
	"levee/internal/lang/policy"
)

// TestARenamedInterfaceWasAnotherOne: its detectors learned anew, its open incident was closed with
// rules in force, and rules of writers ended. Here two interfaces swap names, of which a third had
// one before.
func TestARenamedInterfaceWasAnotherOne(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	m := NewManager(ManagerOptions{Log: t.Logf,
		Incidents: incident.OpenStore(filepath.Join(dir, "incidents.json")),
		Book:      rulebook.Open(filepath.Join(dir, "rules.json")),
		Baselines: OpenBaselines(filepath.Join(dir, "baselines.json"))})
	for n, dev := range []string{"eth0", "eth1", "lan0"} {
		learned := detect.New(detect.Options{}).Baseline(now)
		learned.Syn = float64(n)
		id := string(rune('1' + n))
		closed := map[string]*time.Time{"lan0": &now}[dev]
		for _, err := range []error{
			m.Baselines.put(dev, "floods", "detect", learned),
			m.Incidents.Put(incident.Incident{ID: id, Dev: dev, State: incident.Open, Began: now,
				Detected: now, Closed: closed, Seen: incident.Seen{Kind: "syn"}}),
			m.Book.Put(rulebook.Rule{ID: id, Dev: dev, Until: now.Add(time.Hour)}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	was := []inforce.State{{Dev: "eth0", Index: 2}, {Dev: "eth1", Index: 3}}
	is := []inforce.State{{Dev: "lan0", Index: 2}, {Dev: "eth0", Index: 3}}
	for range 2 {
		if !m.follow(was) {
			t.Error("nothing has changed")
		}
	}
	m.watchers["eth1"] = &Watcher{}
	if m.follow(is) {
		t.Error("who watches by the name before is not awaited")
	}
	delete(m.watchers, "eth1")
	for range 2 {
		if !m.follow(is) {
			t.Error("names are not followed")
		}
	}
	for dev, want := range map[string]float64{"lan0": 0, "eth0": 1} {
		if b := m.Baselines.get(dev, "floods", "detect"); b == nil || b.Syn != want {
			t.Errorf("%s has learned %+v", dev, b)
		}
	}
	if b := m.Baselines.get("eth1", "floods", "detect"); b != nil || len(m.Baselines.all) != 2 {
		t.Errorf("%d are kept, and of eth1 %+v", len(m.Baselines.all), b)
	}
	for id, want := range map[string]string{"1": "lan0", "2": "eth0", "3": "lan0"} {
		i, _ := m.Incidents.Get(id)
		r, _ := rulebook.Open(m.Book.Path()).Get(id)
		if i.Dev != want || r.Dev != want {
			t.Errorf("%s: an incident of %s, and a rule of %s", id, i.Dev, r.Dev)
		}
	}
}

// other is the sampler of another interface, which has the name that is followed.
type other struct{ sampler }

func (other) Follow(context.Context) error { return nil }
func (other) Program() uint32              { return 7 }

// TestWhatWasUsualElsewhereIsNotTakenOver: a watcher went on with what it had learned on another
// interface, where that got the name of its own.
func TestWhatWasUsualElsewhereIsNotTakenOver(t *testing.T) {
	w := New(Options{Dev: "eth0", InForce: &inforce.Watcher{
		Look: func(context.Context) ([]inforce.State, error) {
			return []inforce.State{{Dev: "eth0", Index: 3, Program: 7}}, nil
		}}})
	w.sampler, w.state = other{}, inforce.State{Dev: "eth0", Index: 2, Program: 6}
	if err := w.follow(t.Context()); !errors.Is(err, errNoPolicy) {
		t.Errorf("%v", err)
	}
}

// TestNamesThatAreSwappedBetweenTwoLooks: whoever began then watched another interface than was
// looked at. As he watched under its name for good, no name was followed any more, and nobody began
// to watch any interface.
func TestNamesThatAreSwappedBetweenTwoLooks(t *testing.T) {
	for index, want := range map[int]error{2: nil, 3: errNoPolicy} {
		m := NewManager(ManagerOptions{InForce: &inforce.Watcher{
			Look: func(context.Context) ([]inforce.State, error) {
				return []inforce.State{{Dev: "eth0", Index: index}}, nil
			}},
			Policy: func(context.Context, string) (*policy.Policy, error) {
				return &policy.Policy{}, nil
			}})
		_, s, err := m.watcher("eth0", 2, nil).Policy(t.Context())
		if !errors.Is(err, want) || err == nil && s.Index != 2 {
			t.Errorf("an interface of index %d: %v, %v", index, s, err)
		}
	}
}
