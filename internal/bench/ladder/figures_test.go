package ladder

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/lab/contender"
)

// reportOf is a report of rungs under floods that are named.
func reportOf(rounds int, floods []flood.Traffic, rungs ...*flood.Rung) *Report {
	r := &Report{Traffic: floods, all: &flood.Comparison{Rounds: rounds, Traffic: floods}}
	r.Rounds = rounds
	for _, t := range floods {
		if t.Family != "" && (len(r.Families) == 0 || r.Families[len(r.Families)-1] != t.Family) {
			r.Families = append(r.Families, t.Family)
		}
	}
	r.all.Families = r.Families
	for _, g := range rungs {
		r.add(&Rung{Rung: g})
	}
	r.summarise()
	return r
}

var udp4 = []flood.Traffic{{Name: "udp", Family: flood.IPv4}}

// moved is a report of two rungs; in some rounds of the second the cores were elsewhere, which
// tripled its time.
func moved(rounds int, elsewhere ...int) *Report {
	var rungs []*flood.Rung
	for i, name := range []string{contender.XDPDrop().Name(), "tc ingress"} {
		g := &flood.Rung{Name: name}
		for round := range rounds {
			ns := []float64{80, 400}[i] + float64(round)
			g.Windows = append(g.Windows, flood.Window{Round: round, Family: flood.IPv4,
				Traffic: "udp", Seconds: 1, PPS: 1e9 / ns, NsPerPacket: ns, Saturated: true,
				Distance: [2]float64{50, 50}})
		}
		rungs = append(rungs, g)
	}
	for _, round := range elsewhere {
		w := &rungs[1].Windows[round]
		w.NsPerPacket, w.PPS, w.Distance[1] = 3*w.NsPerPacket, w.PPS/3, 310
	}
	return reportOf(rounds, udp4, rungs...)
}

func TestRoundsWithTheCoresElsewhereDoNotCountWhereOthersDo(t *testing.T) {
	f := moved(16, 0, 1, 2).Rungs[1].ByFamily[flood.IPv4]
	if f.GoodRuns != 13 || *f.NsPerPacket != 409 ||
		!strings.Contains(f.Displaced, "3 rounds of 16") ||
		!strings.HasSuffix(f.Displaced, "they do not count") {
		t.Errorf("%d rounds, %v ns, %q: want the 13 others, the median of 403 to 415", f.GoodRuns,
			*f.NsPerPacket, f.Displaced)
	}
	f = moved(16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9).Rungs[1].ByFamily[flood.IPv4]
	if f.GoodRuns != 6 || *f.NsPerPacket != 412.5 || f.Interval == nil ||
		f.NsQuartileInterval != nil {
		t.Errorf("%d rounds, %v ns: want the six others, with an interval of the median and none "+
			"of the quartile", f.GoodRuns, *f.NsPerPacket)
	}
	r := moved(6, 5)
	f = r.Rungs[1].ByFamily[flood.IPv4]
	if *f.NsQuartile != 401 {
		t.Errorf("quartile %v, want that of the five at home, 401", *f.NsQuartile)
	}
	if two := moved(6, 0, 1, 2, 3).Rungs[1]; *two.NsQuartile <= 405 {
		t.Errorf("quartile %v: two rounds at home are too few to be alone", *two.NsQuartile)
	}
	if f.GoodRuns != 6 || *f.NsPerPacket != 402.5 ||
		!strings.HasSuffix(f.Displaced, "too few others") {
		t.Errorf("%d rounds, %v ns, %q: want all six, of which six are needed", f.GoodRuns,
			*f.NsPerPacket, f.Displaced)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil ||
		!strings.Contains(text.String(),
			"ipv4: 1 rounds of 6 were measured with the cores elsewhere") ||
		!strings.Contains(text.String(),
			"of 12 windows 1 had them elsewhere than in the nearest tenth, where a cache line "+
				"takes 50 ns") ||
		!strings.Contains(text.String(),
			"\na cache line takes 50 ns from one core to the other and back") {
		t.Errorf("%v:\n%s", err, text.String())
	}
	if f = moved(16).Rungs[1].ByFamily[flood.IPv4]; f.GoodRuns != 16 || f.Displaced != "" {
		t.Errorf("%d rounds, %q: nothing moved", f.GoodRuns, f.Displaced)
	}
}

func TestRatiosAreOfTheLeastThirdAndKeepQuartilesAndMedians(t *testing.T) {
	r := moved(16)
	x := r.Rungs[1].ByFamily[flood.IPv4].ToXDPDrop
	// Lower quartiles: 83.75 and 403.75; ranks 1 and 9 bound them. Medians of the rounds' ratios:
	// around 87.5/407.5.
	if want := 83.75 / 403.75; x.Quartile != want {
		t.Errorf("quartile %v, want %v", x.Quartile, want)
	}
	if i := x.QuartileInterval; i == nil || i[0] != 80.0/408 || i[1] != 88.0/400 {
		t.Errorf("interval %v, want %v to %v", i, 80.0/408, 88.0/400)
	}
	// Least third: the means of 80 to 85 and of 400 to 405.
	if want := 82.5 / 402.5; x.Least != want {
		t.Errorf("least third %v, want %v", x.Least, want)
	}
	if i := x.LeastInterval; i == nil || i[0] >= x.Least || i[1] <= x.Least || i[0] < 80.0/410 ||
		i[1] > 90.0/400 {
		t.Errorf("interval %v of %v", i, x.Least)
	}
	if x.Busy < 0.21 || x.Busy > 0.22 || x.BusyInterval[0] >= x.Busy {
		t.Errorf("median %v, %v", x.Busy, x.BusyInterval)
	}
	if self := r.Rungs[0].ToXDPDrop; self.Quartile != 1 ||
		*self.QuartileInterval != [2]float64{1, 1} || self.Least != 1 ||
		*self.LeastInterval != [2]float64{1, 1} {
		t.Errorf("of itself: %+v", self)
	}
	if x := moved(12).Rungs[1].ToXDPDrop; x.Quartile == 0 || x.QuartileInterval != nil ||
		x.Least == 0 || x.LeastInterval != nil {
		t.Errorf("twelve rounds: %+v, want both without an interval", x)
	}
	if a, b := r.Rungs[0], r.Rungs[1]; a.Rank != 1 || b.Rank != 2 || a.RankShared || b.RankShared {
		t.Errorf("places %d and %d", a.Rank, b.Rank)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil ||
		!strings.Contains(text.String(), "0.205        0.198-0.216    0.215") {
		t.Errorf("%v:\n%s", err, text.String())
	}
}

func TestRungsThatCannotBeToldApartShareTheirPlace(t *testing.T) {
	r := moved(16)
	twin := *r.Rungs[1].Rung
	twin.Name = "twin"
	r.add(&Rung{Rung: &twin})
	r.summarise()
	var text strings.Builder
	if err := r.Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n1   xdp drop ", "\n2=  tc ingress ", "\n2=  twin "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func TestRoundsOnSharedCoresDoNotCountWhereOthersDo(t *testing.T) {
	r := moved(16, 0)
	g := r.Rungs[1]
	for _, rung := range r.Rungs {
		for i := range rung.Windows {
			rung.Windows[i].Work = [2]float64{0.12, 0.12}
		}
	}
	// the cores of round 0 are elsewhere as well, which counts once
	for _, round := range []int{0, 1, 2} {
		g.Windows[round].Work[0] = 0.18
	}
	r.Caveats = nil
	r.summarise()
	f := g.ByFamily[flood.IPv4]
	if f.GoodRuns != 13 || *f.NsPerPacket != 409 || f.Placed != 13 {
		t.Errorf("%d rounds, %v ns: want the 13 others", f.GoodRuns, *f.NsPerPacket)
	}
	for _, want := range []string{"1 rounds of 16 were measured with the cores elsewhere",
		"2 rounds of 16 with cores that were shared", ": they do not count"} {
		if !strings.Contains(f.Displaced, want) {
			t.Errorf("%q lacks %q", f.Displaced, want)
		}
	}
	if r.CoreWork != 0.12 || r.CoreWorkMedian != 0.12 {
		t.Errorf("%v and %v ns an operation, want 0.12", r.CoreWork, r.CoreWorkMedian)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nan operation takes 0.120 ns on these cores while nobody shares them, 0.120 in the " +
			"median window",
		"neighbours shared the cores: around 3 windows of 32 an operation took 1.15 times as long",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	settings := map[string]string{}
	for _, s := range r.Document().Setup {
		settings[s.Name] = s.Value
	}
	if got := settings["ns of an operation on cores that nobody shares"]; got != "0.1200" {
		t.Errorf("the document says %q of the cores", got)
	}
}

var twoFloods = []flood.Traffic{{Name: "udp"}, {Name: "syn"}}

// rung makes a rung of two floods, with the given rates of each round.
func rung(name string, rates [][2]float64) *flood.Rung {
	g := &flood.Rung{Name: name}
	for round, r := range rates {
		for i, traffic := range []string{"udp", "syn"} {
			g.Windows = append(g.Windows, flood.Window{Traffic: traffic, Round: round, Seconds: 1,
				PPS: r[i], NsPerPacket: 1e9 / r[i], Saturated: true})
		}
	}
	return g
}

func TestFiguresOfALadder(t *testing.T) {
	fast := rung("xdp drop", [][2]float64{{6e6, 6e6}, {6e6, 6e6}, {6e6, 6e6}, {6e6, 6e6},
		{6e6, 6e6}, {6e6, 6e6}})
	// As many packets of each: 3 and 1 million a second make 1.5.
	slowest := rung("levee", [][2]float64{{3e6, 1e6}, {3e6, 1e6}, {3e6, 1e6}, {3e6, 1e6},
		{2e6, 2e6}, {1e6, 1e6}})
	r := reportOf(6, twoFloods, fast, slowest)
	slow := r.Rungs[1]
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
	limit := func(g *flood.Rung) *flood.Rung {
		g.Windows[3].Saturated, g.Windows[3].Limit = false, "the generator was the limit"
		return g
	}
	for _, c := range []struct {
		name      string
		g, base   *flood.Rung
		wantBound string
	}{
		{"none", rung("levee", six), rung("xdp drop", six), ""},
		{"the rung", limit(rung("levee", six)), rung("xdp drop", six), "at least"},
		{"the base", rung("levee", six), limit(rung("xdp drop", six)), "at most"},
		{"both", limit(rung("levee", six)), limit(rung("xdp drop", six)), "unknown"},
	} {
		r := reportOf(6, twoFloods, c.base, c.g)
		if got := r.Rungs[1].ToXDPDrop; got == nil || got.Bound != c.wantBound {
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
	r := reportOf(6, twoFloods, lost, made)
	if g := r.Rungs[0]; g.MedianPPS != nil || len(g.Why) != 1 || g.Why[0] != "steal" {
		t.Errorf("a lost round: median %v, why %q", g.MedianPPS, g.Why)
	}
	if g := r.Rungs[1]; g.MedianPPS == nil {
		t.Errorf("a round that was made up for: no figure: %q", g.Why)
	}
	b, err := json.Marshal(r.Rungs[0])
	if err != nil || !strings.Contains(string(b), `"median_pps":null,"interval":null`) {
		t.Errorf("JSON without a figure: %s, %v", b, err)
	}
}

func TestTheTableOfAFamilyIsSortedByWhatAPacketCosts(t *testing.T) {
	// The generator limits both fast rungs to the same rate; their time tells them apart.
	measured := func(name string, pps, busy float64) *flood.Rung {
		g := &flood.Rung{Name: name}
		for _, family := range []string{flood.IPv4, flood.IPv6} {
			for round := range bench.MinRounds {
				g.Windows = append(g.Windows,
					flood.Window{Family: family, Traffic: "udp", Round: round, Seconds: 1, PPS: pps,
						NsPerPacket: busy * 1e9 / pps, Saturated: true})
			}
		}
		return g
	}
	r := reportOf(bench.MinRounds, []flood.Traffic{{Name: "udp", Family: flood.IPv4,
		What: "UDP, IPv4"}, {Name: "udp", Family: flood.IPv6, What: "UDP, IPv6"}},
		measured("slow", 1e6, 0.99), measured("levee", 6e6, 0.8), measured("xdp drop", 6e6, 0.6),
		&flood.Rung{Name: "absent", Missing: "not installed", Absent: true})
	var b strings.Builder
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range []string{
		"UDP, IPv4", "xdp drop ", "6.00-6.00", "100", "1.000", "levee ", "133", "0.750", "slow ",
		"990", "0.101", "absent ", "no figure",
		"UDP, IPv6", "xdp drop ", "levee ", "slow ", "absent ", "absent: ",
		"not measured: not installed",
	} {
		i := strings.Index(b.String()[at:], want)
		if i < 0 {
			t.Fatalf("no %q in its place in:\n%s", want, b.String())
		}
		at += i + len(want)
	}
	if r.Rungs[0].Family != flood.IPv4 || r.Rungs[0].MedianPPS == nil ||
		r.Rungs[0].ByFamily[flood.IPv6].MedianPPS == nil {
		t.Errorf("the rung's own figures are of %q; by family %v", r.Rungs[0].Family,
			r.Rungs[0].ByFamily)
	}
	if lacking := r.Lacking(); len(lacking) > 0 {
		t.Errorf("lacking %q, though what lacks is not installed", lacking)
	}
	text, err := json.Marshal(r.Rungs[1])
	for _, key := range []string{`"name":"levee"`, `"family":"ipv4"`, `"median_pps":6000000`,
		`"interval":[6000000,6000000]`, `"by_family":{"ipv4":{"median_pps"`} {
		if err != nil || !strings.Contains(string(text), key) {
			t.Errorf("JSON without %s (%v): %s", key, err, text)
		}
	}
}
