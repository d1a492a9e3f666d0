package generators

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/await"
	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/lab"
	"levee/internal/lab/gen"
	"levee/internal/lab/labtest"
	"levee/internal/packet/template"
	"levee/internal/report"
)

// send sends a template into the lab and waits until what was not refused has arrived.
func send(t testing.TB, l *lab.Lab, s *receiver, text string, c gen.Config) (gen.Report,
	receiverSeen) {
	t.Helper()
	packets, ds := template.Parse("test", []byte(text))
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	world := l.Host(lab.World)
	c.Namespace, c.Device, c.Template, c.CPU = world.Namespace, world.Devices[0].Name, packets,
		max(world.Devices[0].CPU, 0)
	before, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	r, err := gen.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var v receiverSeen
	await.OK(t, func() error {
		v, err = s.read()
		if err == nil && v.Packets-before.Packets < r.Sent-r.Refused {
			err = fmt.Errorf("%d of %d packets came", v.Packets-before.Packets, r.Sent-r.Refused)
		}
		return err
	})
	return r, v
}

func withReceiver(t testing.TB, l *lab.Lab, o receiverOptions) *receiver {
	t.Helper()
	s, err := newReceiver(l, o)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { _ = s.close() })
	return s
}

func TestTheReceiverCountsAndFindsSourcesThatComeAgain(t *testing.T) {
	l := labtest.New(t)
	for _, c := range []struct {
		name, text       string
		count            uint64
		repeats, outside bool
	}{
		{"permuted", "ipv4 udp from 10.0.0.0/16 permuted", 65536, false, false},
		{"again", "ipv4 udp from 10.0.0.0/28 permuted", 20000, true, false},
		{"random", "ipv4 udp from 10.0.0.0/16 random", 65536, true, false},
		{"elsewhere", "ipv4 udp from 10.1.0.0/16", 1000, false, true},
	} {
		s := withReceiver(t, l, receiverOptions{stamp: true, base: 10 << 24, count: 1 << 16})
		before, err := refused(l)
		if err != nil {
			t.Fatal(err)
		}
		r, v := send(t, l, s, c.text, gen.Config{Count: c.count, Rate: 200000})
		after, err := refused(l)
		if err != nil {
			t.Fatal(err)
		}
		// The device may have refused a packet of the kernel's own too (neighbour discovery).
		if more := after - before - r.Refused; r.Sent != c.count || v.Packets != r.Sent-r.Refused ||
			more > 3 {
			t.Errorf("%s: sent %d, refused %d (the device: %d), received %d", c.name, r.Sent,
				r.Refused, after-before, v.Packets)
		}
		if (v.Repeats > 0) != c.repeats || (v.Outside > 0) != c.outside {
			t.Errorf("%s: %d sources came again, %d from outside", c.name, v.Repeats, v.Outside)
		}
		var gaps uint64
		for _, n := range v.Gaps {
			gaps += n
		}
		if gaps != v.Packets-1 || v.Last <= v.First {
			t.Errorf("%s: %d gaps of %d packets, %d ns", c.name, gaps, v.Packets, v.Last-v.First)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAComparisonOfAllThatIsInstalled(t *testing.T) {
	labtest.NeedRoot(t)
	options := Options{Options: bench.Options{Rounds: 1, Window: 100 * time.Millisecond, Seed: 1,
		Command: "levee bench gen"}, Rates: []float64{5000}}
	r, err := Run(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Generators) != len(Names()) {
		t.Errorf("%d generators", len(r.Generators))
	}
	for _, e := range r.Generators {
		for _, x := range e.Rates {
			w := x.Windows[0]
			t.Logf("%s at %g: %d offered, %d refused, %.0f/s %s", e.Name, x.Asked, w.Offered,
				w.Refused, w.PPS, w.Invalid)
			if x.PPS != nil || len(x.Why) == 0 {
				t.Errorf("%s: a figure from one window", e.Name)
			}
			if w.Invalid == "" && w.Offered == 0 {
				t.Errorf("%s at %g: nothing in the window", e.Name, x.Asked)
			}
			if w.Invalid != "" && strings.HasPrefix(e.Name, "levee") {
				options.Only = append(options.Only, e.Name)
			}
		}
	}
	// On a busy machine a generator may have no turn in a window.
	await.OK(t, func() error {
		if len(options.Only) == 0 {
			return nil
		}
		again, err := Run(t.Context(), options)
		if err != nil {
			return err
		}
		for _, e := range again.Generators {
			for _, x := range e.Rates {
				if why := x.Windows[0].Invalid; why != "" {
					return fmt.Errorf("%s at %g: %s", e.Name, x.Asked, why)
				}
			}
		}
		return nil
	})
	var b bytes.Buffer
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "levee live") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// figures is a report with windows that need no machine.
func figures() *Report {
	r := &Report{Head: bench.Head{Started: time.Unix(1_700_000_000, 0).UTC(), Rounds: 6,
		Caveats: caveats}, WindowMS: 1000}
	e := &Entry{Name: "levee live", What: "w"}
	for i := range 6 {
		w := Window{Round: i, Seconds: 1, Offered: 1000, Received: 990, Refused: 10,
			PPS: 1000 + float64(i), ReceivedPPS: 990, gaps: make([]uint64, 304)}
		w.gaps[100] = 999
		e.add(1000, w)
		e.add(0, w)
		w.Invalid = "packets do not balance"
		e.add(5000, w)
	}
	r.Generators = []*Entry{e, {Name: "masscan", Missing: "masscan is not installed"}}
	r.summarise()
	return r
}

// TestSweepsAreOfLeveesPaths: bursts of live frames, copies of the others; each is an entry once,
// and a point of the charts.
func TestSweepsAreOfLeveesPaths(t *testing.T) {
	o := Options{Bursts: []int{64, 1, 64}, Copies: []int{10, 10}}
	var names []string
	r := &Report{}
	for _, g := range o.swept(generators) {
		names = append(names, g.name)
		e := &Entry{Name: g.name, Path: g.path, Burst: g.burst, Copies: g.copies}
		for range bench.MinRounds {
			e.add(1e6, Window{PPS: 1e6, ReceivedPPS: 1e6, gaps: make([]uint64, 64)})
			if g.burst == 0 {
				e.add(0, Window{PPS: 2e6, ReceivedPPS: 2e6})
			}
		}
		r.Generators = append(r.Generators, e)
	}
	if want := []string{"levee live, bursts of 1", "levee live, bursts of 64",
		"levee afxdp, each frame 10 times", "levee packet, each frame 10 times",
		"levee qdisc, each frame 10 times",
		"levee sendmmsg, each frame 10 times"}; !slices.Equal(names, want) {
		t.Errorf("swept are %q", names)
	}
	r.summarise()
	charts := map[string]int{}
	for _, c := range r.Document().Charts {
		for _, s := range c.Series {
			charts[c.ID] += len(s.Points)
		}
	}
	if charts["gen-burst"] != 2 || charts["gen-burst-gaps"] != 6 || charts["gen-copies"] != 8 {
		t.Errorf("points of charts: %v", charts)
	}
	benchtest.Output(t, r, "bursts of 64")
}

func TestFiguresComeFromValidWindowsOnly(t *testing.T) {
	r := figures()
	x := r.Generators[0].Rates
	if len(x) != 3 || x[0].Asked != 0 || x[0].ErrorPercent != nil || x[0].Gaps != nil ||
		x[0].PPS == nil {
		t.Fatalf("%+v", x[0])
	}
	if *x[1].PPS != 1002.5 || *x[1].Low != 1000 || *x[1].High != 1005 || *x[1].Received != 990 ||
		x[1].Gaps.P50 == 0 {
		t.Errorf("%+v", x[1])
	}
	if off := *x[1].ErrorPercent; off < 0.24 || off > 0.26 {
		t.Errorf("%g %% off", off)
	}
	if x[2].PPS != nil || len(x[2].Why) != 1 {
		t.Errorf("%+v", x[2])
	}
	var b bytes.Buffer
	if err := r.Document().JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	d, err := report.Read(&b, "test")
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Refusals) != 2 || len(d.Charts) != 4 {
		t.Errorf("%d refusals, %d charts", len(d.Refusals), len(d.Charts))
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"unknown":   {Only: []string{"pktgen"}},
		"rate":      {Rates: []float64{1}},
		"not a one": {Rates: []float64{-5}},
		"rounds":    {Options: bench.Options{Rounds: -1}},
		"window":    {Options: bench.Options{Window: time.Millisecond}},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestAnInterruptedComparisonLeavesNothing(t *testing.T) {
	labtest.NeedRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := Run(ctx, Options{Options: bench.Options{Window: 10 * time.Second,
		Progress: func(bench.Progress) { time.AfterFunc(200*time.Millisecond, cancel) }},
		Only: []string{"levee packet", "trafgen"}, Rates: []float64{1000}})
	if !errors.Is(err, context.Canceled) || r == nil || r.Incomplete == "" {
		t.Errorf("%+v, %v", r, err)
	}
}
