package detect

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/lab/demo"
)

// course is the samples of ten seconds with a good client of 1,000 packets a second, and a flood
// from second 1 on of which a share passes.
func course(rate float64, passes func(at float64) float64) (samples []sample) {
	var s sample
	var flood, passed float64
	for i := range int(10 * time.Second / every) {
		at := float64(i) * every.Seconds()
		s.at = time.Hour + time.Duration(i)*every
		s.sent += 5
		s.arrived += 5
		if at >= 1 {
			flood += rate * every.Seconds()
			passed += passes(at-1) * rate * every.Seconds()
		}
		s.xdp, s.passed = s.sent+uint64(flood), uint64(passed)
		s.dropped = uint64(flood) - s.passed
		samples = append(samples, s)
	}
	return samples
}

const start = time.Hour + time.Second

func TestTheDropIsWhereHalfOfTheFloodIsDropped(t *testing.T) {
	samples := course(1e6, func(at float64) float64 {
		switch {
		case at < 0.7:
			return 1
		case at < 1:
			return 0.6 // a rule that takes some of it
		}
		return 0.002
	})
	at, resolution := drop(samples, start, start+8*time.Second)
	if math.Abs(float64(at)-1) > 0.011 || resolution != every.Seconds() {
		t.Errorf("dropped after %v, known to %v", at, resolution)
	}
	share := dropped(samples, start+after, start+8*time.Second)
	if math.Abs(float64(share)-0.998) > 1e-4 {
		t.Errorf("%v dropped", share)
	}
	if at, _ := drop(samples, start, start+500*time.Millisecond); at.is() {
		t.Errorf("dropped after %v, but it passed", at)
	}
	if share := dropped(samples, start-after, start-time.Second); share.is() {
		t.Errorf("%v of no flood was dropped", share)
	}
}

func TestARampWastesWhatPassesWithinASecond(t *testing.T) {
	samples := course(1e6, func(at float64) float64 {
		if at < 0.5 {
			return 0.1
		}
		return 0.02
	})
	// 0.5 s of a tenth, and 0.5 s of a fiftieth, of a line that the flood fills.
	if w := wasted(samples, 1e6); math.Abs(float64(w)-0.06) > 0.001 {
		t.Errorf("%v of the line wasted", w)
	}
}

// TestWhatTheRingRefusedIsReadOutsideTheFlood: within it the generator's own may be counted before
// the device's, and then clients seemed to have been refused more at its beginning than at its end.
func TestWhatTheRingRefusedIsReadOutsideTheFlood(t *testing.T) {
	row := &Row{from: start, to: start + time.Second,
		first: sample{sent: 1000, refused: 10}, end: sample{sent: 2000, refused: 20},
		samples: []sample{{at: start, sent: 1000, refused: 30},
			{at: start + time.Second/2, sent: 2000, refused: 5}}}
	var f Figures
	row.clients(&f)
	if f.Refused != 0.01 {
		t.Errorf("%v of what was sent was refused, want 0.01", f.Refused)
	}
}

func TestCollateralIsWithinAFactorAsFarAsPacketsTell(t *testing.T) {
	for _, c := range []struct {
		predicted, atMost, measured float64
		counted                     uint64
		near                        bool
	}{
		{0, 0.0003, 0, 10_000, true},
		{0, 0.0003, 0.0002, 10_000, true}, // below what the sample could tell
		{0, 0.0003, 0.0004, 10_000, false},
		{0, 1, 0.0009, 10_000, true},
		{0, 1, 0.002, 10_000, false}, // who cannot tell does not predict
		{0.01, 0.012, 0.019, 10_000, true},
		{0.01, 0.012, 0.021, 10_000, false},
		{0.01, 0.012, 0.006, 10_000, true},
		{0.01, 0.012, 0.004, 10_000, false},
		{0.01, 0.012, 0, 200, true}, // two packets were to be expected
		{0.01, 0.012, 0, 10_000, false},
	} {
		f := &Figures{Predicted: figure(c.predicted), AtMost: figure(c.atMost),
			Measured: figure(c.measured), Counted: c.counted}
		if f.near() != c.near {
			t.Errorf("%+v: near is %v", c, f.near())
		}
	}
}

// TestWhatIsPredictedCountsWhileARuleDrops, and not while it is a limit or waits.
func TestWhatIsPredictedCountsWhileARuleDrops(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(100+int64(s), 0) }
	i := Incident{Closed: at(50), Rules: []Rule{
		{Collateral: 0.01, Since: at(0), Loosened: at(20), Gone: at(50)},
		{Collateral: 0.1, Since: at(10), Gone: at(50)},
		{Collateral: 1, Since: at(45)},
		{Collateral: 1},
	}}
	if got := i.predicted(50 * time.Second); math.Abs(got-(0.004+0.08+0.1)) > 1e-9 {
		t.Errorf("%v is predicted", got)
	}
}

// twoFloods is a report: one that meets all goals, and one that nobody noticed.
func twoFloods() *Report {
	held := &Row{Flood: "udp", What: "UDP", from: start, to: start + 5*time.Second,
		gone: start + 8*time.Second, late: 250 * time.Millisecond,
		samples: course(1e6, func(at float64) float64 {
			if at < 0.5 {
				return 1
			}
			return 0
		}),
		Waves: []*Wave{{What: "UDP", from: start, to: start + 5*time.Second}},
		Incidents: []Incident{{ID: "1", Sentence: "UDP came", Acted: time.Unix(100, 0),
			Collateral: Collateral{Predicted: 0, AtMost: 0.001, Good: 3000},
			Rules:      []Rule{{Rule: "drop udp", Label: "flood-1-1"}}}},
		requests: []demo.Request{{Due: int64(start) + 1e9, NS: 1e6, What: demo.Web}},
	}
	held.first, held.last = held.samples[0], held.samples[len(held.samples)-1]
	held.end = held.last
	open := &Row{Flood: "syn", What: "SYN", from: start, to: start + 5*time.Second,
		samples: course(1e6, func(float64) float64 { return 1 }),
		Waves:   []*Wave{{What: "SYN", from: start, to: start + 5*time.Second}}}
	lost := &Row{Flood: "ack", What: "ACK", Missing: "the defender is gone"}
	head := bench.Head{Started: time.Unix(1e9, 0)}
	return &Report{Head: head, Rate: 1e6, Policy: "default pass", Rows: []*Row{held, open, lost},
		Rest: &Cost{Seconds: 1, Core: 0.02, Memory: 1 << 20}}
}

func TestMissedGoalsAreSaid(t *testing.T) {
	r := twoFloods()
	if f := r.Rows[0].figures(1e6); len(f.Missed) != 0 || f.Gone != 3 || f.Answered != 1 {
		t.Errorf("missed %q: %+v", f.Missed, f)
	}
	f := r.Rows[1].figures(1e6)
	if !strings.Contains(strings.Join(f.Missed, "; "), "nothing was dropped") {
		t.Errorf("missed %q", f.Missed)
	}
	text := benchtest.Output(t, r, "drop udp", "nothing was dropped", "the defender is gone",
		"goal: 1 % and 60 MB")
	if r.Complete() {
		t.Errorf("a report without figures for a flood is complete:\n%s", text)
	}
	// What has no figure is null.
	b, err := json.Marshal(r.Raw())
	if err != nil || !strings.Contains(string(b), `"drop_seconds":null`) ||
		strings.Contains(string(b), "0001-01-01") {
		t.Errorf("%v\n%s", err, b)
	}
}

func TestForgedSourcesAreNoneOfTheClients(t *testing.T) {
	hosts := uint64(0)
	for i, p := range internet {
		hosts += 1 << (32 - p.Bits())
		if p.Overlaps(clients) {
			t.Errorf("%v has clients", p)
		}
		for _, o := range internet[:i] {
			if p.Overlaps(o) {
				t.Errorf("%v and %v overlap", p, o)
			}
		}
	}
	if want := uint64(1<<32 - 3<<24 - 1<<17 - 1<<29); hosts != want {
		t.Errorf("%d hosts, want %d", hosts, want)
	}
	if len(internet) > 64 {
		t.Errorf("%d prefixes: the generator takes 64", len(internet))
	}
}

// TestAFloodInTheNamesOfClientsIsNoneOfTheirs: what arrives beyond what has left them is dropped,
// or not, of the flood. It was taken for theirs, and all of such a flood was said to be dropped.
func TestAFloodInTheNamesOfClientsIsNoneOfTheirs(t *testing.T) {
	samples := course(20_000, func(float64) float64 { return 0.5 })
	for i := range samples {
		s := &samples[i]
		s.arrived, s.passed = s.arrived+s.passed, 0
	}
	asForged(samples)
	share := dropped(samples, start+after, start+8*time.Second)
	if math.Abs(float64(share)-0.5) > 1e-3 {
		t.Errorf("%v dropped, half is", share)
	}
}

// TestClientsAreWorseOffWhileFewerAreAnswered, of one kind: the others make up for none. Where
// nothing is dropped they are no worse off than without a defender.
func TestClientsAreWorseOffWhileFewerAreAnswered(t *testing.T) {
	var requests []demo.Request
	for ms := range 20_000 {
		at := time.Duration(ms) * time.Millisecond
		q := demo.Request{Due: int64(at), NS: 1, What: demo.Web}
		if ms%20 == 0 {
			q.What = demo.Datagram
			if at > 12*time.Second && at < 15*time.Second {
				q.NS = 0
			}
		}
		requests = append(requests, q)
	}
	var samples []sample
	for at := time.Duration(0); at < 20*time.Second; at += every {
		s := sample{at: at}
		if at > 5*time.Second && at < 14*time.Second {
			s.dropped = uint64(at)
		}
		samples = append(samples, s)
	}
	for what, c := range map[string]struct {
		samples []sample
		want    figure
	}{"rules that end before": {samples, 2}, "no rules": {samples[:100], 0}} {
		if got := worse(requests, c.samples, 10*time.Second, 20*time.Second); got != c.want {
			t.Errorf("%s: worse off for %v s, want %v", what, got, c.want)
		}
	}
	f := &Figures{Worse: 6, Drop: none, Dropped: none, Lost: none, Gone: none, Predicted: none}
	if f.judge(&Row{mimics: true}); len(f.Missed) != 1 {
		t.Errorf("missed of a flood that looks like clients: %v", f.Missed)
	}
}

// TestAFloodBeginsWithItsFirstPacket: not with the generator, which reads a capture first.
func TestAFloodBeginsWithItsFirstPacket(t *testing.T) {
	samples := course(1e5, func(float64) float64 { return 1 })
	at := firstOf(samples, start-700*time.Millisecond, start+8*time.Second)
	if at < start-2*every || at > start {
		t.Errorf("it began %v after its first packet", at-start)
	}
}
