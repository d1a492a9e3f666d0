package mix

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/bench/flood"
	"levee/internal/lab/labtest"
)

func TestSharesAreSpreadEvenly(t *testing.T) {
	for percent := 0.0; percent <= 100; percent += 5 {
		ports := share(flood.Traffic{}, percent).Flood.Ports
		drops, longest, run := 0, 0, 0
		for _, p := range append(ports, ports...) {
			if run++; p == flood.Port {
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

func rounds(n int) flood.Options { return flood.Options{Options: bench.Options{Rounds: n}} }

func windows(d time.Duration) flood.Options {
	return flood.Options{Options: bench.Options{Window: d, Seed: 3}}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]Options{
		"a share of 33 %":           {Shares: []float64{33}},
		"a share of 105 %":          {Shares: []float64{105}},
		"a rate of 5 packets":       {Rates: []float64{5}},
		"3 rounds":                  {Options: rounds(3)},
		"windows of 1ms":            {Options: windows(time.Millisecond)},
		`there is no rung "router"`: {Rungs: []string{"router"}},
	} {
		if _, err := Run(context.Background(), o); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSharesAndRatesAreMeasured(t *testing.T) {
	labtest.NeedRoot(t)
	labtest.NeedTwoCores(t)
	o := Options{Options: windows(50 * time.Millisecond), Rungs: []string{"levee"},
		Shares: []float64{50}, Rates: []float64{20_000}}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	g := r.Rungs[0]
	if g.Missing != "" || len(g.Shares) != 1 || len(g.Rates) != 1 {
		t.Fatalf("%+v", g)
	}
	// A busy machine reads the counters of a window at different moments, but not those of most.
	var off []string
	for _, w := range g.Windows {
		if w.Received == 0 || w.OffBalance() > 0.001 {
			off = append(off, fmt.Sprintf("%s: %d received, %d dropped, %d passed on", w.Traffic,
				w.Received, w.Dropped, w.PassedOn))
		}
	}
	if 2*len(off) > len(g.Windows) {
		t.Errorf("%d of %d windows: %q", len(off), len(g.Windows), off)
	}
	for _, p := range append(g.Shares, g.Rates...) {
		if p.figure(0, processed).Y == nil && p.why() == "" {
			t.Errorf("at %g: neither a figure nor a reason", p.At)
		}
	}
	benchtest.Output(t, r, "20k")
}
