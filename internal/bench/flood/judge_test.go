package flood

import (
	"strings"
	"testing"

	"levee/internal/lab/contender"
)

// sound is a window without a fault.
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
		{"packets between generator and ring lost", func(w *Window) { w.Refused -= 4000 },
			"packets do not balance: 3000000 offered"},
		{"packets counted twice by the ring", func(w *Window) { w.Refused += 4000 },
			"packets do not balance: 3000000 offered"},
		{"the rung counts less than it got", func(w *Window) { w.Dropped -= 2000 },
			"packets do not balance: 1300000 received"},
		{"the rung counts more than it got", func(w *Window) { w.Dropped += 2000 },
			"packets do not balance: 1300000 received"},
		{"the rung lets packets pass", func(w *Window) { w.Dropped -= 2000; w.PassedOn = 2000 },
			"the rung let 0.15 % of the flood pass"},
		{"martians", func(w *Window) { w.Martians = 1400 }, "address checks dropped 0.11 %"},
		{"stolen time", func(w *Window) { w.Steal = 0.02 }, "the hypervisor took 2.0 %"},
		{"another program on the core", func(w *Window) { w.ThreadBusy, w.ThreadWaited = 0.7, 0.3 },
			"something else than receiving took 30.0 %"},
		{"half let to the application, which has its part of the core", func(w *Window) {
			w.passes, w.Dropped, w.PassedOn, w.Reached = 0.5, 650_000, 650_000, 650_000
			w.ThreadBusy, w.ThreadWaited, w.ApplicationBusy = 0.4, 0.6, 0.59
		}, ""},
		{"another program on a core that the application shares", func(w *Window) {
			w.passes, w.Dropped, w.PassedOn, w.Reached = 0.5, 650_000, 650_000, 650_000
			w.ThreadBusy, w.ThreadWaited, w.ApplicationBusy = 0.4, 0.6, 0.3
		}, "something else than receiving took 30.0 %"},
		{"no traffic", func(w *Window) { w.Offered, w.Refused, w.Received, w.Dropped = 0, 0, 0, 0 },
			"offered 0 packets only"},
		{"no packet in the window", func(w *Window) { w.Packets = 0 }, "took no packet"},
		{"a condition broken", func(
			w *Window) {
			w.conditions = []string{"GRO of the receiver is off"}
		}, "GRO of the receiver is off"},
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

func TestWindowThatPassesAnotherShareIsInvalid(t *testing.T) {
	w := sound()
	w.Received, w.Dropped, w.PassedOn, w.passes = 1_000_000, 500_000, 500_000, 0.5
	w.Offered = w.Received + w.Refused
	w.judge()
	if len(w.Invalid) > 0 {
		t.Errorf("the right share: %q", w.Invalid)
	}
	w.Dropped, w.PassedOn = 600_000, 400_000
	w.judge()
	if len(w.Invalid) != 1 || !strings.Contains(w.Invalid[0],
		"let 40.00 % of the packets pass, not 50.00 %") {
		t.Errorf("another share: %q", w.Invalid)
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
		if w.Saturated != c.wantSaturated || (w.Limit == "") != c.wantSaturated ||
			len(w.Invalid) > 0 {
			t.Errorf("%s: saturated %v, limit %q, invalid %q", c.name, w.Saturated, w.Limit,
				w.Invalid)
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
		{"generic XDP", func(f *facts) { f.xdp = "generic" }, contender.XDP,
			"wrong hook mode: XDP on the receiver is generic, not native", false},
		{"no XDP", func(f *facts) { f.xdp = "none" }, contender.XDP, "wrong hook mode", false},
		{"XDP before nft", func(*facts) {}, contender.NetdevIn,
			"wrong hook mode: XDP on the receiver is native, not none", false},
		{"packet socket", func(f *facts) { f.packetSockets = 1 }, contender.XDP, "1 packet sockets",
			false},
		{"conntrack", func(f *facts) { f.tracked, f.trackedMax = 5, 10 }, contender.XDP,
			"conntrack follows", false},
		{"conntrack full", func(f *facts) { f.tracked, f.trackedMax = 10, 10 }, contender.XDP,
			"conntrack table is full", false},
		{"conntrack not in the path", func(f *facts) { f.xdp = "none" }, contender.Application,
			"conntrack does not follow", true},
		{"conntrack full where it is wanted",
			func(f *facts) { f.xdp, f.tracked, f.trackedMax = "none", 10, 10 },
			contender.Application, "conntrack table is full", true},
		{"native XDP where it should be generic", func(*facts) {}, contender.XDPGeneric,
			"XDP on the receiver is native, not generic", false},
	} {
		f := good
		c.spoil(&f)
		got := f.broken(c.hook, c.tracks, true)
		if len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q, want one line with %q", c.name, got, c.want)
		}
	}
}
