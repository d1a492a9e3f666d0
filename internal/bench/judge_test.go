package bench

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"levee/internal/lab/contender"
)

// sound is a window that nothing is wrong with.
func sound() Window {
	return Window{
		Seconds: 1, Packets: 1_000_000, Traffic: "udp",
		Offered: 3_000_000, Refused: 1_700_000, Received: 1_300_000, Dropped: 1_300_000,
		CoreBusy: 1, ThreadBusy: 0.99, ThreadRunnable: 1, ticks: 0.01,
	}
}

func TestEachBrokenRuleCostsTheFigure(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*Window)
		want  string // "" for a figure
	}{
		{"a sound window", func(*Window) {}, ""},
		{"one packet in ten thousand lost", func(w *Window) { w.Dropped -= 130 }, ""},
		{"packets between generator and ring lost", func(w *Window) { w.Refused -= 4000 }, "packets do not balance: 3000000 offered"},
		{"packets counted twice by the ring", func(w *Window) { w.Refused += 4000 }, "packets do not balance: 3000000 offered"},
		{"the rung counts less than it got", func(w *Window) { w.Dropped -= 2000 }, "packets do not balance: 1300000 received"},
		{"the rung counts more than it got", func(w *Window) { w.Dropped += 2000 }, "packets do not balance: 1300000 received"},
		{"the rung lets packets pass", func(w *Window) { w.Dropped -= 2000; w.PassedOn = 2000 }, "the rung let 0.15 % of the flood pass"},
		{"martians", func(w *Window) { w.Martians = 1400 }, "address checks dropped 0.11 %"},
		{"stolen time", func(w *Window) { w.Steal = 0.02 }, "the hypervisor took 2.0 %"},
		{"another program on the core", func(w *Window) { w.ThreadBusy, w.ThreadWaited = 0.7, 0.3 }, "something else than receiving took 30.0 %"},
		{"half let to the application, which has its part of the core", func(w *Window) {
			w.lets, w.Dropped, w.PassedOn, w.Reached = 0.5, 650_000, 650_000, 650_000
			w.ThreadBusy, w.ThreadWaited, w.ApplicationBusy = 0.4, 0.6, 0.59
		}, ""},
		{"another program on a core that the application shares", func(w *Window) {
			w.lets, w.Dropped, w.PassedOn, w.Reached = 0.5, 650_000, 650_000, 650_000
			w.ThreadBusy, w.ThreadWaited, w.ApplicationBusy = 0.4, 0.6, 0.3
		}, "something else than receiving took 30.0 %"},
		{"no traffic", func(w *Window) { w.Offered, w.Refused, w.Received, w.Dropped = 0, 0, 0, 0 }, "offered 0 packets only"},
		{"no packet in the window", func(w *Window) { w.Packets = 0 }, "took no packet"},
		{"a condition broken", func(w *Window) { w.conditions = []string{"GRO of the receiver is off"} }, "GRO of the receiver is off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := sound()
			c.spoil(&w)
			w.judge()
			got := strings.Join(w.Invalid, "; ")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("invalid because %q, want %q", got, c.want)
			}
		})
	}
}

func TestSaturationNeedsABusyCoreAndARefusingRing(t *testing.T) {
	for _, c := range []struct {
		name          string
		busy, waited  float64
		runnable      float64
		refused       uint64
		wantSaturated bool
	}{
		{"both", 1, 0, 1, 1_700_000, true},
		{"the core had time", 0.97, 0, 1, 1_700_000, false},
		{"the ring took all", 1, 0, 1, 0, false},
		{"something else used the time that was left", 1, 0.01, 0.95, 1_700_000, false},
		{"something else took a part of the core", 1, 0.1, 1, 1_700_000, false},
	} {
		w := sound()
		w.CoreBusy, w.ThreadBusy, w.Refused = c.busy, c.busy-0.005-c.waited, c.refused
		w.ThreadWaited, w.ThreadRunnable = c.waited, c.runnable
		w.Offered = w.Refused + w.Received
		w.judge()
		if w.Saturated != c.wantSaturated || (w.Limit == "") != c.wantSaturated || len(w.Invalid) > 0 {
			t.Errorf("%s: saturated %v, limit %q, invalid %q", c.name, w.Saturated, w.Limit, w.Invalid)
		}
	}
}

func TestConditionsAreFalsifiedOneByOne(t *testing.T) {
	good := facts{gro: true, threaded: true, queues: 1, qdisc: "noqueue", xdp: "native"}
	if got := good.broken(contender.XDP, false, true); len(got) > 0 {
		t.Fatalf("good conditions broken: %q", got)
	}
	for _, c := range []struct {
		name   string
		spoil  func(*facts)
		hook   contender.Hook
		want   string
		tracks bool
	}{
		{"GRO off", func(f *facts) { f.gro = false }, contender.XDP, "GRO", false},
		{"NAPI not threaded", func(f *facts) { f.threaded = false }, contender.XDP, "NAPI", false},
		{"two queues", func(f *facts) { f.queues = 2 }, contender.XDP, "2 queues", false},
		{"qdisc", func(f *facts) { f.qdisc = "fq" }, contender.XDP, "qdisc (fq)", false},
		{"generic XDP", func(f *facts) { f.xdp = "generic" }, contender.XDP, "wrong hook mode: XDP on the receiver is generic, not native", false},
		{"no XDP", func(f *facts) { f.xdp = "none" }, contender.XDP, "wrong hook mode", false},
		{"XDP before nft", func(*facts) {}, contender.NetdevIn, "wrong hook mode: XDP on the receiver is native, not none", false},
		{"packet socket", func(f *facts) { f.packetSockets = 1 }, contender.XDP, "1 packet sockets", false},
		{"conntrack", func(f *facts) { f.tracked, f.trackedMax = 5, 10 }, contender.XDP, "conntrack follows", false},
		{"conntrack full", func(f *facts) { f.tracked, f.trackedMax = 10, 10 }, contender.XDP, "conntrack table is full", false},
		{"conntrack not in the path", func(f *facts) { f.xdp = "none" }, contender.Application, "conntrack does not follow", true},
		{"conntrack full where it is wanted", func(f *facts) { f.xdp, f.tracked, f.trackedMax = "none", 10, 10 }, contender.Application, "conntrack table is full", true},
		{"native XDP where it should be generic", func(*facts) {}, contender.XDPGeneric, "XDP on the receiver is native, not generic", false},
	} {
		f := good
		c.spoil(&f)
		got := f.broken(c.hook, c.tracks, true)
		if len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q, want one line with %q", c.name, got, c.want)
		}
	}
}

// rung makes a rung of two floods, with the given rates of each round.
func rung(name string, rates [][2]float64) *Rung {
	g := &Rung{Name: name}
	for round, r := range rates {
		for i, traffic := range []string{"udp", "syn"} {
			w := sound()
			w.Traffic, w.Round, w.Packets = traffic, round, uint64(r[i])
			w.judge()
			g.Windows = append(g.Windows, w)
		}
	}
	return g
}

func TestFiguresOfALadder(t *testing.T) {
	fast := rung("xdp drop", [][2]float64{{6e6, 6e6}, {6e6, 6e6}, {6e6, 6e6}, {6e6, 6e6}, {6e6, 6e6}, {6e6, 6e6}})
	// As many packets of each: 3 and 1 million a second make 1.5.
	slow := rung("levee", [][2]float64{{3e6, 1e6}, {3e6, 1e6}, {3e6, 1e6}, {3e6, 1e6}, {2e6, 2e6}, {1e6, 1e6}})
	r := Report{Rounds: 6, Traffic: make([]Traffic, 2), Rungs: []*Rung{fast, slow}}
	r.summarise()
	if slow.MedianPPS == nil || math.Abs(*slow.MedianPPS-1.5e6) > 1 {
		t.Fatalf("median %v, want 1.5e6", slow.MedianPPS)
	}
	if *slow.Interval != [2]float64{1e6, 2e6} {
		t.Errorf("interval %v, want all six values within it", *slow.Interval)
	}
	if got := slow.ToXDPDrop; got == nil || math.Abs(got.Median-0.25) > 1e-9 || got.Bound != "" {
		t.Errorf("ratio to xdp drop %+v, want 0.25", got)
	}
	if slow.AtLeast {
		t.Error("saturated windows gave a bound")
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

func TestBoundsFollowFromWhichRungWasLimited(t *testing.T) {
	six := [][2]float64{{1e6, 1e6}, {1e6, 1e6}, {1e6, 1e6}, {1e6, 1e6}, {1e6, 1e6}, {1e6, 1e6}}
	limit := func(g *Rung) *Rung {
		g.Windows[3].Saturated, g.Windows[3].Limit = false, "the generator was the limit"
		return g
	}
	for _, c := range []struct {
		name      string
		g, base   *Rung
		wantBound string
	}{
		{"none", rung("levee", six), rung("xdp drop", six), ""},
		{"the rung", limit(rung("levee", six)), rung("xdp drop", six), "at least"},
		{"the base", rung("levee", six), limit(rung("xdp drop", six)), "at most"},
		{"both", limit(rung("levee", six)), limit(rung("xdp drop", six)), "unknown"},
	} {
		r := Report{Rounds: 6, Traffic: make([]Traffic, 2), Rungs: []*Rung{c.base, c.g}}
		r.summarise()
		if got := c.g.ToXDPDrop; got == nil || got.Bound != c.wantBound {
			t.Errorf("%s limited: %+v, want bound %q", c.name, got, c.wantBound)
		}
	}
}

func TestALostRoundIsMadeUpForOrCostsTheFigure(t *testing.T) {
	six := [][2]float64{{1e6, 1e6}, {1e6, 1e6}, {1e6, 1e6}, {1e6, 1e6}, {1e6, 1e6}, {1e6, 1e6}}
	lost := rung("levee", six)
	lost.Windows[5].Invalid = []string{"steal"}
	made := rung("levee", six)
	made.Windows[5].Invalid = []string{"steal"}
	again := rung("levee", six[:1]).Windows
	for i := range again {
		again[i].Round, again[i].Attempt = 2, 1
	}
	made.Windows = append(made.Windows[:6:6], append(again, made.Windows[6:]...)...)
	r := Report{Rounds: 6, Traffic: make([]Traffic, 2), Rungs: []*Rung{lost}}
	r.summarise()
	if lost.MedianPPS != nil || len(lost.Why) != 1 || lost.Why[0] != "steal" {
		t.Errorf("a lost round: median %v, why %q", lost.MedianPPS, lost.Why)
	}
	r.Rungs = []*Rung{made}
	r.summarise()
	if made.MedianPPS == nil {
		t.Errorf("a round that was made up for: no figure: %q", made.Why)
	}
	b, err := json.Marshal(lost)
	if err != nil || !strings.Contains(string(b), `"median_pps":null,"interval":null`) {
		t.Errorf("JSON without a figure: %s, %v", b, err)
	}
}

func TestTheTableOfAFamilyIsSortedByWhatAPacketCosts(t *testing.T) {
	// The generator limits both fast rungs to the same rate; their time tells them apart.
	measured := func(name string, pps, busy float64) *Rung {
		g := &Rung{Name: name}
		for _, family := range []string{IPv4, IPv6} {
			for round := range minRounds {
				w := sound()
				w.Family, w.Round, w.Packets, w.ThreadBusy = family, round, uint64(pps), busy
				w.judge()
				g.Windows = append(g.Windows, w)
			}
		}
		return g
	}
	r := Report{
		Rounds: minRounds, Families: []string{IPv4, IPv6},
		Traffic: []Traffic{{Name: "udp", Family: IPv4, What: "UDP, IPv4"}, {Name: "udp", Family: IPv6, What: "UDP, IPv6"}},
		Rungs:   []*Rung{measured("slow", 1e6, 0.99), measured("levee", 6e6, 0.8), measured("xdp drop", 6e6, 0.6), {Name: "absent", Missing: "not installed", absent: true}},
	}
	r.summarise()
	var b strings.Builder
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range []string{
		"UDP, IPv4", "xdp drop ", "6.00-6.00", "100", "1.000", "levee ", "133", "0.750", "slow ", "990", "0.101", "absent ", "no figure",
		"UDP, IPv6", "xdp drop ", "levee ", "slow ", "absent ", "absent: ", "not measured: not installed",
	} {
		i := strings.Index(b.String()[at:], want)
		if i < 0 {
			t.Fatalf("no %q in its place in:\n%s", want, b.String())
		}
		at += i + len(want)
	}
	if r.Rungs[0].Family != IPv4 || r.Rungs[0].MedianPPS == nil || r.Rungs[0].ByFamily[IPv6].MedianPPS == nil {
		t.Errorf("the rung's own figures are of %q; by family %v", r.Rungs[0].Family, r.Rungs[0].ByFamily)
	}
	if lacking := r.Lacking(); len(lacking) > 0 {
		t.Errorf("lacking %q, though what lacks is not installed", lacking)
	}
	text, err := json.Marshal(r.Rungs[1])
	for _, key := range []string{`"name":"levee"`, `"family":"ipv4"`, `"median_pps":6000000`, `"interval":[6000000,6000000]`, `"by_family":{"ipv4":{"median_pps"`} {
		if err != nil || !strings.Contains(string(text), key) {
			t.Errorf("JSON without %s (%v): %s", key, err, text)
		}
	}
}
