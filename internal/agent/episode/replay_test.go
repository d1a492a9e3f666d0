package episode

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"

	"levee/internal/agent/detect"
	"levee/internal/agent/incident"
	"levee/internal/agent/kind"
	"levee/internal/lang/goldentest"
	"levee/internal/lang/policy"
)

// line is one of a file of events: what happened when, and what was to be done.
type line struct {
	At    time.Time `json:"at"`
	Event Event     `json:"event"`
	Do    []Effect  `json:"do,omitempty"`
}

const recorded = "testdata/events.jsonl"

// TestAFileOfEventsIsReplayed: the same events make the same effects. The file has a flood in which
// the kernel refuses changes, agents begin and policies are replaced; -update records it again.
func TestAFileOfEventsIsReplayed(t *testing.T) {
	var lines []line
	f, err := os.Open(recorded)
	if err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			var l line
			if err := json.Unmarshal(s.Bytes(), &l); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, l)
		}
	}
	if goldentest.Updating() {
		lines = record(t)
	}
	var out bytes.Buffer
	var m *Machine
	last := 0
	for _, l := range lines {
		if l.Event == (Event{}) { // an agent begins
			m = New("eth0", func() string { last++; return strconv.Itoa(last) })
		}
		l.Do = m.Step(l.At, l.Event)
		encoded, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(encoded, '\n'))
	}
	goldentest.Compare(t, recorded, out.Bytes())
}

// record is twelve seconds of a schedule.
func record(t *testing.T) (lines []line) {
	w := newWorld(326, func(at time.Time, e Event) { lines = append(lines, line{at, e, nil}) })
	for n := range 4 * 12 {
		w.bin(n)
		w.happens()
	}
	return lines
}

// machine is one with a detector that enforces, and the time.
func machine(t *testing.T) (*Machine, time.Time) {
	t.Helper()
	m := New("eth0", func() string { return "1" })
	now := time.Unix(1e9, 0)
	m.Step(now, Event{Policy: &Policy{[]*policy.Detect{statement("floods", policy.Enforce)}}})
	return m, now
}

func tickOf(now time.Time, k kind.Kind) Event {
	return Event{Tick: &Tick{[]Alarm{{Detector: "floods", Alarm: detect.Alarm{Kind: k, Rate: 30_000,
		Packets: 30_000, Threshold: 10_000, Since: now, Learned: true}}}}}
}

// TestAFloodThatHasJustBegunComesFirst: the kernel is asked about policies afterwards.
func TestAFloodThatHasJustBegunComesFirst(t *testing.T) {
	m, now := machine(t)
	m.Step(now, tickOf(now, kind.UDP))
	if !m.Hurried(now.Add(time.Second)) {
		t.Error("a second after it began")
	}
	if m.Hurried(now.Add(hurry)) {
		t.Error("it is for ever")
	}
	if m.Step(now, Event{Tick: &Tick{}}); m.Hurried(now) {
		t.Error("it does not pass any more")
	}
}

// TestARuleInTheKernelHasAnIncidentInTheFile: "no floods were seen", said the list of incidents for
// a moment after a live rule was in the kernel.
func TestARuleInTheKernelHasAnIncidentInTheFile(t *testing.T) {
	m, now := machine(t)
	m.Step(now, tickOf(now, kind.UDP))
	put, saved := false, false
	for _, f := range m.Step(now, Event{Found: &Found{Rules: []incident.Rule{{
		Rule: `drop udp as "flood-1-1"`, Label: "flood-1-1", Action: "drop"}}}}) {
		put, saved = put || f.Put != nil, saved || f.Save != nil && f.Save.ID == "1"
	}
	if !put || !saved {
		t.Errorf("put %v, saved %v", put, saved)
	}
}

// TestWhatWasUndoneIsNotApplied: an incident whose rules were proposed, and then taken back.
func TestWhatWasUndoneIsNotApplied(t *testing.T) {
	m := New("eth0", func() string { return "1" })
	now := time.Unix(1e9, 0)
	m.Step(now, Event{Policy: &Policy{[]*policy.Detect{statement("floods", policy.Propose)}}})
	m.Step(now, tickOf(now, kind.UDP))
	m.Step(now, Event{Found: &Found{Rules: []incident.Rule{{Rule: "drop udp", Label: "flood-1-1",
		State: incident.Waiting}}}})
	if !m.Waiting("1") {
		t.Fatal("nothing is proposed")
	}
	m.Step(now, Event{Undo: &Command{"1"}})
	if m.Waiting("1") {
		t.Error("it can be applied still")
	}
}
