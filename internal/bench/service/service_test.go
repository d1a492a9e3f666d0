package service

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/lab/demo"
	"levee/internal/lab/labtest"
)

// TestMain lets the test's own binary play the roles of the demo.
func TestMain(m *testing.M) { labtest.Main(m, demo.Role) }

func TestRequestsAreCountedByPhase(t *testing.T) {
	r := &Report{Before: time.Second, During: 2 * time.Second, After: time.Second, Requests: 100,
		Rate: 1e6, service: "a web service", requests: "requests"}
	run := &Once{Flood: "udp", What: "UDP", Defence: "none", From: 1, To: 3}
	for i := range 400 { // four seconds of 100 a second; every second one fails under the flood
		q := Outcome{Due: float64(i) / 100, Took: 0.001 * float64(1+i%10)}
		if q.Due >= 1 && q.Due < 3 && i%2 == 0 {
			q.Took = 0
		}
		run.Requests = append(run.Requests, q)
	}
	r.Runs = []*Once{run, {Flood: "udp", Defence: "nft", Missing: "not installed"}}
	for i, want := range []float64{1, 0.5, 1} {
		if got := answered(run.within(r.phase(run, i))); got != want {
			t.Errorf("%s: %g answered, want %g", phases[i], got, want)
		}
	}
	if v := percentile(run.within(0, 1), 50); v != 0.005 {
		t.Errorf("p50 before: %g", v)
	}
	if v := percentile(run.within(1, 3), 99); !math.IsInf(v, 1) {
		t.Errorf("p99 during: %g, but half had no answer", v)
	}
	d := r.Document()
	if len(d.Charts) != 2 || len(d.Charts[0].Series[0].Points) != 8 || len(d.Refusals) != 1 ||
		len(d.Tables[0].Rows) != 3 {
		t.Errorf("%d charts, %d refusals", len(d.Charts), len(d.Refusals))
	}
	if y := d.Charts[0].Series[0].Points[3].Y; y == nil || *y != 50 {
		t.Errorf("goodput under the flood: %v", y)
	}
	if d.Charts[1].Series[0].Points[3].Why == "" {
		t.Error("a percentile without an answer is drawn")
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "50.0 % (") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if err := d.JSON(&text, nil); err != nil {
		t.Error(err)
	}
	if !r.Complete() {
		t.Error("what is not installed makes a report incomplete")
	}
	for i := range run.Requests[:20] {
		run.Requests[i].Took = 0
	}
	if d := r.Document(); len(d.Charts) != 0 || len(d.Refusals) != 2 ||
		!strings.Contains(d.Refusals[0].Why, "80 % of the requests were answered before") ||
		r.Complete() {
		t.Errorf("a machine that is busy before the flood gives figures: %+v", d.Refusals)
	}
}

// Of rounds the figures are medians; a round that something else disturbed before its flood is left
// out, and said.
func TestRounds(t *testing.T) {
	r := &Report{Before: time.Second, During: time.Second, After: time.Second, Requests: 100,
		Rate: 1e6, Rounds: 4, service: "a web service", requests: "requests"}
	for round, slowest := range []float64{0.030, 0, 0.010, 0.020} { // 0: not answered
		for _, defence := range []string{"levee", "none"} {
			run := &Once{Round: round, Flood: "udp", What: "UDP", Defence: defence, From: 1, To: 2}
			for i := range 300 {
				q := Outcome{Due: float64(i) / 100, Took: 0.002}
				if q.Due >= 1 && q.Due < 2 && i%50 < 2 {
					q.Took = slowest
				}
				if defence == "none" && round > 1 {
					q.Took = 0
				}
				run.Requests = append(run.Requests, q)
			}
			r.Runs = append(r.Runs, run)
		}
	}
	rows := r.rows()
	if len(rows) != 2 || len(rows[0].runs) != 4 || len(rows[1].runs) != 2 ||
		len(rows[1].lacks) != 1 {
		t.Fatalf("%+v", rows)
	}
	f := r.figures(rows[0], during)
	if f.requests != 400 || f.answered != 1 || f.p50 != 0.002 || f.p99 != 0.025 ||
		f.p99s[0] != 0.010 || !math.IsInf(f.p99s[3], 1) {
		t.Errorf("%+v", f)
	}
	d := r.Document()
	cells := d.Tables[0].Rows[during]
	if got := *cells[7].Value; math.Abs(got-12.5) > 1e-9 {
		t.Errorf("p99 under the flood %g times that before", got)
	}
	if len(d.Refusals) != 1 || r.Complete() {
		t.Errorf("a round without a figure is not told: %+v", d.Refusals)
	}
	if y := *d.Charts[0].Series[0].Points[0].Y; y != 100 {
		t.Errorf("%g requests a second answered, of 100", y)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil ||
		!strings.Contains(text.String(), "(2.0, 25.0: 10.0 to -)") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]Options{
		`there is no flood "water"`:  {Floods: []string{"water"}},
		`there is no defence "moat"`: {Defences: []string{"moat"}},
		"1ms before, during":         {During: time.Millisecond},
		"a flood of 5 packets":       {Rate: 5},
		"100000 requests a second":   {Requests: 1e5},
		"21 rounds":                  {Options: bench.Options{Rounds: 21}},
	} {
		if _, err := Run(context.Background(), o); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestAServiceIsMeasuredUnderAFlood(t *testing.T) {
	labtest.NeedRoot(t)
	labtest.NeedTwoCores(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Self: []string{self, "role"}, Floods: []string{"udp"}, Defences: []string{"levee"},
		Rate: 20_000, Requests: 20,
		Before: 500 * time.Millisecond, During: 500 * time.Millisecond,
		After: 500 * time.Millisecond,
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 1 {
		t.Fatalf("%d runs", len(r.Runs))
	}
	// Of 30 requests and 10,000 packets: a busy machine sends fewer.
	if run := r.Runs[0]; len(run.Requests) < 6 || run.Sent < 1000 {
		t.Fatalf("%d requests, %g packets", len(run.Requests), run.Sent)
	}
	// The time in which the generator was loaded counted as flood once, and the flood's last
	// moments as the time after it.
	run := r.Runs[0]
	if run.From <= o.Before.Seconds() || math.Abs(run.To-run.From-o.During.Seconds()) > 1e-6 {
		t.Errorf("a flood from %g to %g s, after %v of quiet and for %v", run.From, run.To,
			o.Before, o.During)
	}
	t.Logf("the generator began %.0f ms after it was told to", 1e3*(run.From-o.Before.Seconds()))
}

// TestWhoWaitsPastTheFloodIsLeftOut: a join that is due at the end of a flood is served behind it,
// whatever the defence, if its client has the patience.
func TestWhoWaitsPastTheFloodIsLeftOut(t *testing.T) {
	run := &Once{From: 1, To: 10, Requests: []Outcome{{2, 0, ""}, {5.5, 0, ""}, {6.5, 3.8, ""},
		{9, 1.5, ""}}}
	for patience, want := range map[time.Duration]int{0: 4, time.Second: 4, 5 * time.Second: 2} {
		r := &Report{Before: time.Second, During: 9 * time.Second, Patience: patience}
		if q := run.within(r.phase(run, during)); len(q) != want {
			t.Errorf("patience %v: %d requests of the flood, want %d", patience, len(q), want)
		}
	}
}
