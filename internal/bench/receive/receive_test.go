package receive

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/bench"
	"levee/internal/bench/benchtest"
	"levee/internal/lab/labtest"
	"levee/internal/usage"
)

// Each way that is here takes packets, and they balance.
func TestEachWayReceives(t *testing.T) {
	labtest.NeedRoot(t)
	r, err := Run(t.Context(), Options{
		Options: bench.Options{Rounds: 1, Window: 20 * time.Millisecond, Seed: 1,
			Command: "levee bench receive"}, Sizes: []int{64},
		Only: slices.DeleteFunc(Names(),
			func(n string) bool { return n == "libpcap" || n == "DPDK" }), // others' programs
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range r.Ways {
		if e.Missing != "" {
			if e.Name != "AF_XDP zero copy" {
				t.Errorf("%s: %s", e.Name, e.Missing)
			}
			continue
		}
		for _, c := range e.Cells {
			for _, w := range c.Windows {
				t.Logf("%s, %s: %+v", e.Name, c.name(), w)
				// the machine may be shared with others
				if w.Invalid != "" && !strings.Contains(w.Invalid, "hypervisor") {
					t.Errorf("%s, %s: %s", e.Name, c.name(), w.Invalid)
				}
			}
			if len(c.Windows) != 1 {
				t.Errorf("%s, %s: %d windows", e.Name, c.name(), len(c.Windows))
			}
		}
	}
	benchtest.Output(t, r, "levee ring", "PACKET_MMAP v3", "no zero copy")
}

// figures is a report with windows that need no machine.
func figures() *Report {
	r := &Report{Head: bench.Head{Started: time.Unix(1_700_000_000, 0).UTC(), Rounds: 6,
		Caveats: caveats}, WindowMS: 400}
	e := &Entry{Name: "AF_XDP"}
	for _, cores := range []int{1, 2} {
		c := &Cell{Cores: cores, Bytes: 64}
		for i := range 6 {
			c.Windows = append(c.Windows, Window{Round: i, Seconds: 0.5, Arrived: 1000_000,
				Taken: 900_000 + uint64(i), ReaderBusy: 0.9, ReceiverBusy: 0.18,
				Saturated: cores == 1})
		}
		c.Windows = append(c.Windows, Window{Invalid: "packets do not balance"})
		e.Cells = append(e.Cells, c)
	}
	e.Cells = append(e.Cells, &Cell{Cores: 2, Bytes: 1500,
		Windows: []Window{{Invalid: "nothing was received"}}})
	r.Ways = []*Entry{{Name: "AF_XDP zero copy", Missing: "veth has none",
		Cells: []*Cell{{}}}, e}
	r.summarise()
	return r
}

func TestFiguresComeFromValidWindows(t *testing.T) {
	r := figures()
	c := r.Ways[1].Cells
	if got := c[0].Taken.Median; got != 1_800_005 || c[0].AtLeast || !c[1].AtLeast {
		t.Errorf("%g packets/s, %+v, %+v", got, c[0], c[1])
	}
	for name, v := range map[string][2]float64{
		"lost": {c[0].Lost.Median, 10}, "reader": {c[0].Reader.Median, 500},
		"receiver": {c[0].Receiver.Median, 100}, "busy": {c[0].Busy.Median, 90},
	} {
		if got, want := v[0], v[1]; got < want*0.999 || got > want*1.001 {
			t.Errorf("%s: %g, want %g", name, got, want)
		}
	}
	if c[2].Taken != nil || len(c[2].Why) != 1 || c[0].Why[0] != "packets do not balance" {
		t.Errorf("%+v", c[2])
	}
	if got := r.Lacking(); !slices.Equal(got, []string{"AF_XDP"}) {
		t.Errorf("lacking: %v", got)
	}
	benchtest.Output(t, r, ">= 1800005", "1800005", "10.00 %", "500 ns", "100 ns", "90 %",
		"no figure: veth has none", "frames of 1500 bytes, cores: 2: nothing was received")
	d := r.Document()
	if len(d.Charts) != 2*len(charts) || len(d.Refusals) != 2 {
		t.Errorf("%d charts, %+v", len(d.Charts), d.Refusals)
	}
}

func TestPacketsMustBalance(t *testing.T) {
	for _, c := range []struct {
		w    Window
		want string
	}{
		{Window{Taken: 1, Seconds: 1, Offered: 1000, Refused: 100, Received: 800, Lost: 100}, ""},
		{Window{Taken: 1, Seconds: 1, Offered: 1000, Refused: 100, Received: 801, Lost: 100}, ""},
		{Window{Taken: 1, Seconds: 1, Offered: 1000, Refused: 100, Received: 802, Lost: 100},
			"do not balance"},
		{Window{Taken: 1, Seconds: 1, Offered: 1000, Refused: 100, Received: 800, Lost: 98},
			"do not balance"},
		{Window{Seconds: 1, Offered: 1000, Refused: 1000}, "took no packet"},
		{Window{Taken: 1, Seconds: 1, Offered: 10, Received: 10, Steal: 0.1}, "hypervisor"},
	} {
		err := c.w.judge()
		if c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.w, err, c.want)
		}
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"unknown": {Only: []string{"netmap"}},
		"short":   {Sizes: []int{59}},
		"long":    {Sizes: []int{1515}},
		"cores":   {Cores: []int{3}},
		"rate":    {Rate: 1},
		"rounds":  {Options: bench.Options{Rounds: -1}},
		"window":  {Options: bench.Options{Window: time.Millisecond}},
	} {
		if _, err := Run(t.Context(), o); !errors.Is(err, usage.ErrWrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatTcpdumpSaysIsRead(t *testing.T) {
	p := &pcap{told: make(chan uint64, 1), ended: make(chan struct{}),
		final: map[string]uint64{}}
	ready := make(chan string, 1)
	p.listen(strings.NewReader("tcpdump: listening on eth0, link-type EN10MB\n"+
		"tcpdump: 7 packets captured, 12 packets received by filter, 5 packets dropped by kernel\n"+
		"1 packet captured\n12 packets received by filter\n11 packets dropped by kernel\n"), ready)
	lost, err := p.lost()
	taken, terr := p.taken(t.Context())
	if said := <-ready; !strings.Contains(said, "listening on") || <-p.told != 7 || lost != 11 ||
		taken != 1 || err != nil || terr != nil {
		t.Errorf("%q, %d lost, %d taken, %v, %v", said, lost, taken, err, terr)
	}
}

func TestWhatTestpmdSaysIsRead(t *testing.T) {
	d := &dpdk{told: make(chan [2]uint64, 1), ended: make(chan struct{})}
	d.listen(strings.NewReader("EAL: Detected CPU lcores: 2\ntestpmd> show port stats 0\n\n" +
		"  RX-packets: 401928     RX-missed: 585402     RX-bytes:  24115720\n" +
		"  RX-packets: 401929         RX-dropped: 585402        RX-total: 987330\n"))
	if got := <-d.told; got != [2]uint64{401928, 585402} || d.why == "" {
		t.Errorf("%v, %q", got, d.why)
	}
}

func TestAnInterruptedComparisonLeavesNothing(t *testing.T) {
	labtest.NeedRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := Run(ctx, Options{Options: bench.Options{Window: 10 * time.Second,
		Progress: func(bench.Progress) { time.AfterFunc(200*time.Millisecond, cancel) }},
		Only: []string{"AF_XDP"}, Sizes: []int{64}, Cores: []int{1}})
	if !errors.Is(err, context.Canceled) || r == nil || r.Incomplete == "" {
		t.Errorf("%+v, %v", r, err)
	}
}
