package service

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"levee/internal/lab/demo"
	"levee/internal/lab/labtest"
)

// TestMain lets the test's own binary play the roles of the demo.
func TestMain(m *testing.M) { labtest.Main(m, demo.Role) }

func TestRequestsAreCountedByPhase(t *testing.T) {
	r := &Report{Before: time.Second, During: 2 * time.Second, After: time.Second, Requests: 100,
		Rate: 1e6}
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
		p := r.phases(run)[i]
		if got := answered(run.within(p.from, p.to)); got != want {
			t.Errorf("%s: %g answered, want %g", p.name, got, want)
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

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]Options{
		`there is no flood "water"`:  {Floods: []string{"water"}},
		`there is no defence "moat"`: {Defences: []string{"moat"}},
		"1ms before, during":         {During: time.Millisecond},
		"a flood of 5 packets":       {Rate: 5},
		"100000 requests a second":   {Requests: 1e5},
	} {
		if _, err := Run(context.Background(), o); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestAServiceIsMeasuredUnderAFlood(t *testing.T) {
	labtest.NeedRoot(t)
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
	if len(r.Runs) != 1 || len(r.Runs[0].Requests) < 20 || r.Runs[0].Sent < 10_000 {
		t.Fatalf("%+v", r.Runs)
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
