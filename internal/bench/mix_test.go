package bench

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestSharesAreSpreadEvenly(t *testing.T) {
	b := &bench{mix: []traffic{{name: "udp", family: IPv4}}}
	for percent := 0.0; percent <= 100; percent += 5 {
		ports := b.share(percent).flood.Ports
		drops, longest, run := 0, 0, 0
		for _, p := range append(ports, ports...) {
			if run++; p == floodPort {
				drops++
				run = 0
			}
			longest = max(longest, run)
		}
		if float64(drops) != 2*steps*percent/100 {
			t.Errorf("%g %%: %d of %d ports are dropped", percent, drops/2, steps)
		}
		if drops > 0 && longest > 2*steps/drops+1 {
			t.Errorf("%g %%: %d in a row pass", percent, longest)
		}
	}
}

func TestMixOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]MixOptions{
		"a share of 33 %":           {Shares: []float64{33}},
		"a share of 105 %":          {Shares: []float64{105}},
		"a rate of 5 packets":       {Rates: []float64{5}},
		"3 rounds":                  {Rounds: 3},
		"windows of 1ms":            {Window: time.Millisecond},
		`there is no rung "router"`: {Rungs: []string{"router"}},
	} {
		if _, err := Mix(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestWindowThatPassesAnotherShareIsInvalid(t *testing.T) {
	w := sound()
	w.Received, w.Dropped, w.PassedOn, w.lets = 1_000_000, 500_000, 500_000, 0.5
	w.Offered = w.Received + w.Refused
	w.judge()
	if len(w.Invalid) > 0 {
		t.Errorf("the right share: %q", w.Invalid)
	}
	w.Dropped, w.PassedOn = 600_000, 400_000
	w.judge()
	if len(w.Invalid) != 1 || !strings.Contains(w.Invalid[0], "let 40.00 % of the packets pass, not 50.00 %") {
		t.Errorf("another share: %q", w.Invalid)
	}
}

func TestSharesAndRatesAreMeasured(t *testing.T) {
	needRoot(t)
	o := MixOptions{Rungs: []string{"levee"}, Shares: []float64{50}, Rates: []float64{20_000}, Window: 50 * time.Millisecond, Seed: 3}
	r, err := Mix(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	g := r.Rungs[0]
	if g.Missing != "" || len(g.Shares) != 1 || len(g.Rates) != 1 {
		t.Fatalf("%+v", g)
	}
	for _, p := range append(g.Shares, g.Rates...) {
		for _, w := range p.Windows {
			if w.Received == 0 || imbalance(w.Received, w.Dropped+w.PassedOn+w.Overflow) > maxImbalance {
				t.Errorf("at %g: %d received, %d dropped, %d passed on", p.At, w.Received, w.Dropped, w.PassedOn)
			}
		}
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "20k") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if err := r.Document().JSON(&text, nil); err != nil {
		t.Error(err)
	}
}
