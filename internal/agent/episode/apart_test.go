package episode

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/lang/policy"
)

// lab is a machine whose effects are carried out at once.
type lab struct {
	m     *Machine
	now   time.Time
	store map[string]incident.Incident
	find  func(*Search) Found
	puts  []Put
	drops map[string]uint64
	while func() // the next change is made
}

func newLab(find func(*Search) Found) *lab {
	l := &lab{now: time.Unix(1e9, 0), store: map[string]incident.Incident{}, find: find,
		drops: map[string]uint64{}}
	last := 0
	l.m = New("eth0", func() string { last++; return strconv.Itoa(last) })
	l.step(Event{Policy: &Policy{[]*policy.Detect{statement("floods", policy.Enforce)}}})
	return l
}

func (l *lab) step(e Event) {
	for _, f := range l.m.Step(l.now, e) {
		switch {
		case f.Save != nil:
			l.store[f.Save.ID] = *f.Save
		case f.Search != nil:
			found := l.find(f.Search)
			l.step(Event{Found: &found})
		case f.Put != nil:
			l.puts = append(l.puts, *f.Put)
			if do := l.while; do != nil {
				l.while = nil
				do()
			}
			l.step(Event{Applied: &Applied{}})
		}
	}
}

// tick is a tenth of a second with alarms.
func (l *lab) tick(alarms ...detect.Alarm) {
	t := &Tick{}
	for _, a := range alarms {
		a.Since, a.Learned, a.Threshold = l.now, true, a.Kind.Row().Floor
		a.Packets, a.All, a.Own, a.Share = a.Rate, a.Rate, a.Rate, 1
		a.Kinds |= 1 << a.Kind
		t.Alarms = append(t.Alarms, Alarm{Detector: "floods", Alarm: a})
	}
	l.now = l.now.Add(time.Second / 10)
	l.step(Event{Tick: t})
}

// second is one in which each rule in force drops so many packets.
func (l *lab) second(each uint64) {
	l.now = l.now.Add(time.Second)
	c := &Counted{Rules: map[string]Count{}}
	for _, r := range l.m.Live() {
		l.drops[r.Rule.Label] += each
		c.Rules[r.Rule.Label] = Count{Packets: l.drops[r.Rule.Label]}
	}
	l.step(Event{Counted: c})
	l.step(Event{Second: &Second{}})
}

// one is a rule for each search.
func one(s *Search) Found {
	label := Label(s.ID, s.Round, 0)
	return Found{Good: 1000, Rules: []incident.Rule{{Rule: `drop udp as "` + label + `"`,
		Label: label, Action: "drop", State: incident.Waiting}}}
}

func to(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// TestTwoKindsAtOnceAreTwoIncidents: GRE that came with UDP was told as a UDP flood, as long as
// both came, and its rule as one of that.
func TestTwoKindsAtOnceAreTwoIncidents(t *testing.T) {
	l := newLab(func(s *Search) Found {
		f := one(s)
		label := Label(s.ID, s.Round, 1)
		f.Rules = append(f.Rules, incident.Rule{Rule: `drop proto 47 as "` + label + `"`,
			Label: label, Action: "drop", State: incident.Waiting})
		f.Kinds = map[string]string{label: kind.Other.String()}
		return f
	})
	l.tick(detect.Alarm{Kind: kind.UDP, Rate: 90_000}, detect.Alarm{Kind: kind.Other, Rate: 60_000})
	l.second(50_000)
	if len(l.store) != 2 || len(l.puts) != 1 {
		t.Fatalf("%d incidents, %d changes in the kernel", len(l.store), len(l.puts))
	}
	for id, want := range map[string]string{"1": "drop udp ", "2": "drop proto 47 "} {
		i := l.store[id]
		want += `as "` + Label(id, 1, 0) + `"`
		if len(i.Rules) != 1 || i.Rules[0].Rule != want || i.Rules[0].Label != Label(id, 1, 0) ||
			i.Rules[0].Packets != 50_000 || i.Acted == nil {
			t.Errorf("incident %s, %s: %+v", id, i.Seen.Kind, i.Rules)
		}
	}
}

// TestAFloodThatBeginsWhileItsRuleIsOnItsWayHasIt: the search for UDP had found the rule for ICMP,
// too. The incident of that, which began a moment later, said that nothing was done.
func TestAFloodThatBeginsWhileItsRuleIsOnItsWayHasIt(t *testing.T) {
	l := newLab(func(s *Search) Found {
		f := one(s)
		label := Label(s.ID, s.Round, 1)
		f.Rules = append(f.Rules, incident.Rule{Rule: `drop icmp as "` + label + `"`,
			Label: label, Action: "drop", State: incident.Waiting})
		f.Kinds = map[string]string{label: kind.ICMP.String()}
		return f
	})
	udp := detect.Alarm{Kind: kind.UDP, Rate: 90_000}
	l.while = func() { l.tick(udp, detect.Alarm{Kind: kind.ICMP, Rate: 60_000}) }
	l.tick(udp)
	l.second(50_000)
	i := l.store["2"]
	if len(i.Rules) != 1 || i.Acted == nil || i.Rules[0].Packets != 50_000 ||
		len(l.store["1"].Rules) != 1 {
		t.Errorf("%s: %+v", i.Sentence, i.Rules)
	}
	for _, r := range l.m.Live() {
		if want := map[bool]string{true: "1", false: "2"}[r.Rule.Label == Label("1", 1, 0)]; r.
			Incident != want {
			t.Errorf("%s is of incident %s", r.Rule.Label, r.Incident)
		}
	}
}

// TestThePeakCountsEachPacketOnce: a flood that changed its form was told at twice its rate, as
// what its rules had dropped before was added to what passed then.
func TestThePeakCountsEachPacketOnce(t *testing.T) {
	for _, c := range []struct {
		passes float64
		drops  uint64 // in the last 1.1 s
		want   float64
	}{{90_000, 1000, 91_000}, {9000, 110_000, 109_000}} {
		l := newLab(func(s *Search) Found {
			if s.Round > 1 {
				return Found{}
			}
			return one(s)
		})
		l.tick(detect.Alarm{Kind: kind.UDP, Rate: 90_000})
		for range 2 {
			l.second(90_000)
		}
		l.tick(detect.Alarm{Kind: kind.UDP, Rate: c.passes})
		l.second(c.drops)
		if peak := l.store["1"].Seen.Peak; peak < 0.99*c.want || peak > 1.01*c.want {
			t.Errorf("at most %.0f a second, want %.0f", peak, c.want)
		}
	}
}

// TestTwoDestinationsAtOnceAreTwoIncidents, and a third one is its own.
func TestTwoDestinationsAtOnceAreTwoIncidents(t *testing.T) {
	l := newLab(one)
	a, b := detect.Alarm{Kind: kind.UDP, Rate: 90_000, To: to("192.0.2.1/32")},
		detect.Alarm{Kind: kind.UDP, Rate: 90_000, To: to("192.0.2.2/32")}
	l.tick(a, b)
	l.tick(b)
	l.second(90_000)
	if len(l.store) != 2 || len(l.store["1"].Rules) != 1 || len(l.store["2"].Rules) != 1 {
		t.Fatalf("%d incidents, with %d and %d rules", len(l.store), len(l.store["1"].Rules),
			len(l.store["2"].Rules))
	}
	b.To = to("192.0.2.0/24") // what they leave
	l.tick(b)
	b.To = to("198.51.100.0/24")
	l.tick(b)
	if len(l.store) != 3 || l.store["3"].Seen.Destination != "198.51.100.0/24" {
		t.Errorf("%d incidents: %+v", len(l.store), l.store["3"].Seen)
	}
}

// TestAnotherVectorIsAnotherIncident, beside what was found for the first or in its place, once
// that has held the first. What that leaves is none, and neither is what the flood turns into
// before.
func TestAnotherVectorIsAnotherIncident(t *testing.T) {
	for _, c := range []struct {
		what        string
		held        int // seconds
		drops, rate float64
		want        int
	}{
		{"another vector", 3, 90_000, 60_000, 2},
		{"what is left", 3, 90_000, 4000, 1},
		{"what it turned into", 2, 500, 60_000, 1},
		{"what came in its place", 4, 500, 60_000, 2},
	} {
		l := newLab(one)
		l.tick(detect.Alarm{Kind: kind.UDP, Rate: 90_000})
		l.tick(detect.Alarm{Kind: kind.UDP, Rate: 30_000}) // what its rules leave at once
		for range c.held {
			l.second(90_000)
		}
		l.second(uint64(c.drops))
		l.tick(detect.Alarm{Kind: kind.UDP, Rate: c.rate})
		if len(l.store) != c.want {
			t.Errorf("%s: %d incidents, want %d", c.what, len(l.store), c.want)
		}
	}
}

// TestAFloodThatReplacesAnotherIsAnotherIncident: one of the same kind that began when the first
// had stopped, also after a pause, was told as part of the first until that was over. What the
// rules of the first have dropped and drop no more, as they cost too much, is the first still.
func TestAFloodThatReplacesAnotherIsAnotherIncident(t *testing.T) {
	for pause := range 5 {
		l := newLab(one)
		flood := detect.Alarm{Kind: kind.UDP, Rate: 90_000}
		l.tick(flood)
		for range 10 {
			l.second(90_000)
		}
		for range pause {
			l.second(0)
		}
		flood.Rate = 40_000
		for range 5 {
			l.tick(flood)
		}
		if len(l.store) != 2 || len(l.store["2"].Rules) == 0 {
			t.Errorf("%d incidents, %d rules of the second, %d s after the first", len(l.store),
				len(l.store["2"].Rules), pause)
		}
	}
	l := newLab(one)
	flood := detect.Alarm{Kind: kind.UDP, Rate: 90_000}
	l.tick(flood)
	for range 10 {
		l.second(90_000)
	}
	label := Label("1", 1, 0)
	l.step(Event{Counted: &Counted{Rules: map[string]Count{label: {Packets: 1_000_000}},
		Costs: map[string]float64{label: 0.5}}})
	l.tick(flood)
	if len(l.store) != 1 {
		t.Errorf("%d incidents, as a rule was taken back", len(l.store))
	}
}

// TestWhatRulesLeaveIsNoOtherFlood: rules that drop a part of a flood hold it no more than none,
// and what they leave is of it, however much that is.
func TestWhatRulesLeaveIsNoOtherFlood(t *testing.T) {
	l := newLab(func(s *Search) Found {
		if s.Round > 1 {
			return Found{}
		}
		return one(s)
	})
	flood := detect.Alarm{Kind: kind.UDP, Rate: 90_000}
	l.tick(flood)
	flood.Rate = 40_000
	for range 10 {
		l.tick(flood)
		l.second(10_000)
	}
	if len(l.store) != 1 {
		t.Errorf("%d incidents", len(l.store))
	}
}

// TestAFloodThatAnAgentAdoptsHasOthersBesideIt: of a flood that was there when the agent began, all
// that came later was a part.
func TestAFloodThatAnAgentAdoptsHasOthersBesideIt(t *testing.T) {
	l := newLab(one)
	l.tick(detect.Alarm{Kind: kind.UDP, Rate: 90_000})
	l.second(90_000)
	before := l.store["1"]
	l = newLab(one)
	l.step(Event{Adopt: &Adopt{Incidents: []incident.Incident{before}, InKernel: true,
		Texts: []string{before.Rules[0].Rule}}})
	for range 5 {
		l.second(90_000)
	}
	l.m.next = func() string { return "2" }
	l.tick(detect.Alarm{Kind: kind.UDP, Rate: 60_000})
	if len(l.store) != 2 {
		t.Errorf("%d incidents", len(l.store))
	}
}

// TestAFloodWhosePolicyIsReplacedIsOneIncident: until its rules were back, all of it passed beside
// what they had dropped in the second before, and was taken for another vector. So was what came
// while they took hold again.
func TestAFloodWhosePolicyIsReplacedIsOneIncident(t *testing.T) {
	l := newLab(one)
	all := detect.Alarm{Kind: kind.UDP, Rate: 90_000}
	l.tick(all)
	for range 5 {
		l.second(90_000)
	}
	for range 3 {
		l.step(Event{Lost: &Lost{}})
		l.tick(all)
		l.tick(all)
		l.step(Event{Policy: &Policy{[]*policy.Detect{statement("floods", policy.Enforce)}}})
		l.step(Event{Unfit: &Unfit{}})
		l.tick(all)
		l.second(90_000)
	}
	if len(l.store) != 1 {
		t.Errorf("%d incidents", len(l.store))
	}
	for range 4 {
		l.second(90_000)
	}
	l.tick(detect.Alarm{Kind: kind.UDP, Rate: 60_000})
	if len(l.store) != 2 {
		t.Errorf("%d incidents with another vector", len(l.store))
	}
}

// TestASearchKnowsWhichAnswersWereGiven: a cookie that did not help was given 16 times. Each answer
// that was in force is named to the next search, once, and one that never came is not.
func TestASearchKnowsWhichAnswersWereGiven(t *testing.T) {
	var tried [][]string
	actions := []string{Cookie, "drop", "drop", "limit"}
	l := newLab(func(s *Search) Found {
		tried = append(tried, s.Tried)
		f := one(s)
		if len(tried) > len(actions) {
			return Found{}
		}
		r := &f.Rules[0]
		if r.Action = actions[len(tried)-1]; r.Action == "limit" {
			r.Rule = `limit udp rate 20/s by source as "` + r.Label + `"`
		}
		return f
	})
	for range 5 {
		l.tick(detect.Alarm{Kind: kind.UDP, Rate: 90_000})
	}
	want := [][]string{nil, {Cookie}, {Cookie, "drop"}, {Cookie, "drop"},
		{Cookie, "drop", LimitBySource}}
	if d := cmp.Diff(want, tried); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestFragmentsOfAReflectionAreNoFloodOfTheirOwn: the incident gets the name of what is cut.
func TestFragmentsOfAReflectionAreNoFloodOfTheirOwn(t *testing.T) {
	l := newLab(func(*Search) Found { return Found{} })
	l.tick(detect.Alarm{Kind: kind.Fragments, Rate: 40_000})
	l.tick(detect.Alarm{Kind: kind.Fragments, Rate: 60_000},
		detect.Alarm{Kind: kind.Reflection, Rate: 20_000})
	l.second(0)
	if i := l.store["1"]; len(l.store) != 1 || i.Seen.Kind != kind.Reflection.String() {
		t.Errorf("%d incidents: %s", len(l.store), i.Sentence)
	}
}

// TestRulesComeBackWithoutDelayIntoAnotherPolicy: up to a second went by after each `levee up`.
func TestRulesComeBackWithoutDelayIntoAnotherPolicy(t *testing.T) {
	l := newLab(one)
	l.tick(detect.Alarm{Kind: kind.UDP, Rate: 90_000})
	l.step(Event{Lost: &Lost{}})
	l.step(Event{Policy: &Policy{[]*policy.Detect{statement("floods", policy.Enforce)}}})
	l.step(Event{Unfit: &Unfit{}})
	if len(l.puts) != 2 || len(l.puts[1].Rules) != 1 {
		t.Errorf("%d changes in the kernel", len(l.puts))
	}
}

// TestRulesThatComeBackComeFirst: while another policy had taken them, what they are against
// passed, and a search for rules against that kept them from coming back.
func TestRulesThatComeBackComeFirst(t *testing.T) {
	searches := 0
	l := newLab(func(s *Search) Found { searches++; return one(s) })
	l.tick(detect.Alarm{Kind: kind.UDP, Rate: 90_000})
	l.step(Event{Lost: &Lost{}})
	l.tick(detect.Alarm{Kind: kind.UDP, Rate: 90_000})
	if searches != 1 || len(l.puts) != 2 {
		t.Errorf("%d searches, %d changes in the kernel", searches, len(l.puts))
	}
}

// TestSearchesThatFindNothingBecomeRarer, until something else passes: a flood that nothing can be
// done about had a search each two seconds until it ended.
func TestSearchesThatFindNothingBecomeRarer(t *testing.T) {
	searches := 0
	l := newLab(func(*Search) Found { searches++; return Found{} })
	for range 600 {
		l.tick(detect.Alarm{Kind: kind.UDP, Rate: 90_000})
	}
	if searches < 6 || searches > 12 {
		t.Errorf("%d searches in a minute", searches)
	}
	searches = 0
	l.tick(detect.Alarm{Kind: kind.UDP, Rate: 20_000})
	if searches != 1 {
		t.Errorf("%d searches for what is another flood", searches)
	}
}
