package latency

import (
	"context"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/bench/flood"
	"levee/internal/lab"
	"levee/internal/lab/echo"
	"levee/internal/lab/labtest"
)

func TestPercentilesCountWhatDidNotReturn(t *testing.T) {
	took := make([]int64, 1000) // 1 to 1000 us
	for i := range took {
		took[i] = int64(i+1) * 1000
	}
	for _, c := range []struct {
		lost    int
		percent float64
		us      float64
		why     string
	}{
		{0, 50, 500, ""},
		{0, 99, 990, ""},
		{0, 99.9, 0, "too few"},
		{1000, 50, 1000, ""},                 // half of them took forever
		{1001, 50, 0, "1001 of 2001 probes"}, // more than half
		{1000, 75, 0, "did not return"},
	} {
		us, why := percentile(took, c.lost, c.percent)
		if us != c.us || (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("p%g with %d lost: %g us, %q; want %g, %q", c.percent, c.lost, us, why, c.us,
				c.why)
		}
	}
	if _, why := percentile(nil, 0, 50); why != "no probes" {
		t.Errorf("no probes: %q", why)
	}
}

func TestProbesComeAtRandom(t *testing.T) {
	t.Log("seed 5")
	at := poisson(rand.New(rand.NewPCG(5, 5)), 10_000, 10*time.Second)
	if n := float64(len(at)); math.Abs(n-100_000) > 5*math.Sqrt(100_000) {
		t.Errorf("%g probes in 10 s at 10,000 a second", n)
	}
	var sum, squares float64
	for i := 1; i < len(at); i++ {
		gap := float64(at[i] - at[i-1])
		if gap < 0 {
			t.Fatal("the schedule goes back")
		}
		sum += gap
		squares += gap * gap
	}
	n := float64(len(at) - 1)
	mean := sum / n
	// The gaps of a Poisson process vary as much as their mean.
	if cv := math.Sqrt(squares/n-mean*mean) / mean; math.Abs(cv-1) > 0.05 {
		t.Errorf("coefficient of variation %g, want 1", cv)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]Options{
		"5 rounds":                {Options: flood.Options{Options: bench.Options{Rounds: 5}}},
		"1000000 probes a second": {Probes: 1e6},
		"windows of 1ms": {
			Options: flood.Options{Options: bench.Options{Window: time.Millisecond}},
		},
		"10001 rules":               {Rules: 10_001},
		"a load of 10 packets":      {Loads: []float64{10}},
		"0, or 1000 to 20 million":  {Loads: []float64{1e9}},
		`there is no rung "router"`: {Rungs: []string{"router"}},
	} {
		if _, err := Run(context.Background(), o); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestRulesInFrontMatchNeitherFloodNorProbes: the policy of them decides as the last rule alone.
func TestRulesInFrontMatchNeitherFloodNorProbes(t *testing.T) {
	const n = 500
	drawn, err := unmatched(n, 1)
	if err != nil || len(drawn) != n {
		t.Fatalf("%d rules, %v", len(drawn), err)
	}
	from := []netip.Addr{netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("16.0.0.0")}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 { // of the flood
		from = append(from, netip.AddrFrom4([4]byte{16 + byte(rnd.UintN(16)), byte(rnd.UintN(256)),
			byte(rnd.UintN(256)), byte(rnd.UintN(256))}))
	}
	for i := range drawn {
		r := &drawn[i]
		for _, a := range from {
			for _, port := range []uint16{flood.Port, echo.Port} {
				if r.Src.Contains(a) && r.Dst.Contains(toReceiver) && (r.Proto == 0 ||
					r.Proto == 17) && r.DstPort.Lo <= port && port <= r.DstPort.Hi {
					t.Fatalf("%v matches a datagram from %v to port %d", r, a, port)
				}
			}
		}
	}
	l := labtest.New(t)
	if a := l.Host(lab.Server).Devices[0].IPv4.Addr(); a != toReceiver {
		t.Errorf("the receiver is at %v, not %v", a, toReceiver)
	}
}

// TestRoundTripsBehindManyRules come back, as no rule but the last drops anything.
func TestRoundTripsBehindManyRules(t *testing.T) {
	labtest.NeedRoot(t)
	labtest.NeedTwoCores(t)
	o := Options{Rungs: []string{"levee"}, Loads: []float64{0}, Probes: 1000, Rules: 30}
	o.Window, o.Seed = 100*time.Millisecond, 3
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range r.Rungs {
		took, _ := sorted(g.Cells[0].Rounds...)
		if g.Missing != "" || len(took) == 0 {
			t.Errorf("%s: no probe returned: %s", g.Name, g.Missing)
		}
	}
	benchtest.Output(t, r, "30 rules at each place")
}

func TestRoundTripsAreTimedBesideAFlood(t *testing.T) {
	labtest.NeedRoot(t)
	labtest.NeedTwoCores(t)
	o := Options{Rungs: []string{"levee"}, Loads: []float64{0, 20_000}, Probes: 1000}
	o.Window, o.Seed = 100*time.Millisecond, 3
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rungs) != 1 || len(r.Rungs[0].Cells) != 2 {
		t.Fatalf("%d rungs", len(r.Rungs))
	}
	for _, g := range r.Rungs {
		if g.Missing != "" {
			t.Errorf("%s: %s", g.Name, g.Missing)
		}
		for _, c := range g.Cells {
			if len(c.Rounds) != bench.MinRounds {
				t.Errorf("%s, %g packets/s: %d rounds", g.Name, c.Load, len(c.Rounds))
			}
			took, _ := sorted(c.Rounds...)
			if len(took) == 0 {
				t.Errorf("%s, %g packets/s: no probe returned", g.Name, c.Load)
				continue
			}
			if took[0] < 1000 {
				t.Errorf("%s, %g packets/s: a round trip of %d ns", g.Name, c.Load, took[0])
			}
		}
	}
	benchtest.Output(t, r, "flood of 20k packets/s")
	if d := r.Document(); len(d.Charts) != 3+2*2 || len(d.Tables) != 2 {
		t.Errorf("%d charts, %d tables", len(d.Charts), len(d.Tables))
	}
}
