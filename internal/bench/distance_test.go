package bench

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"levee/internal/lab/contender"
)

func TestTheDistanceOfTwoCoresIsReadAndBounded(t *testing.T) {
	needRoot(t)
	if runtime.NumCPU() < 2 {
		t.Skip("needs two cores")
	}
	begun := time.Now()
	d, err := coreDistance(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine both may never run at once; a reading that is there is of light and not of schedulers.
	if d < 0 || d > 1e5 {
		t.Errorf("a cache line takes %v ns", d)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("reading took %v", took)
	}
	if _, err := coreDistance(0, 1000); err == nil || !strings.Contains(err.Error(), "running on core 1000") {
		t.Errorf("a core that is not there: %v", err)
	}
}

func TestWindowsWithTheCoresElsewhereAreTold(t *testing.T) {
	windows := []Window{{Distance: [2]float64{52, 50}}, {Distance: [2]float64{55, 310}}, {Distance: [2]float64{0, 0}}, {Distance: [2]float64{24, 51}}, {Distance: [2]float64{60, 48}}}
	home := homeDistance(func(yield func(*Window) bool) {
		for i := range windows {
			if !yield(&windows[i]) {
				return
			}
		}
	})
	if home != 24 {
		t.Errorf("home is at %v ns, want the least tenth of the readings, of eight the least, 24", home)
	}
	home = 48
	for i, want := range []bool{false, true, false, true, false} {
		if got := windows[i].displaced(home); got != want {
			t.Errorf("%v ns, at home %v: %v", windows[i].Distance, home, got)
		}
	}
	if got := leastTenth([]float64{310, 310, 310, 310, 310, 310, 310, 310, 24, 52, 50}); got != 50 {
		t.Errorf("home is at %v ns, want that of the second of eleven readings, 50, though the cores were elsewhere most of the time", got)
	}
	if windows[1].displaced(0) || homeDistance(func(func(*Window) bool) {}) != 0 {
		t.Error("nothing is known, and yet the cores are elsewhere")
	}
}

// moved is a report of two rungs; in some rounds of the second the cores were elsewhere, which tripled its time.
func moved(rounds int, elsewhere ...int) *Report {
	r := &Report{Rounds: rounds, Families: []string{IPv4}, Traffic: []Traffic{{Name: "udp", Family: IPv4}}}
	for i, name := range []string{contender.XDPDrop().Name(), "tc ingress"} {
		g := &Rung{Name: name}
		for round := range rounds {
			ns := []float64{80, 400}[i] + float64(round)
			g.Windows = append(g.Windows, Window{Round: round, Family: IPv4, Traffic: "udp", Seconds: 1, PPS: 1e9 / ns, NsPerPacket: ns, Saturated: true, Distance: [2]float64{50, 50}})
		}
		r.Rungs = append(r.Rungs, g)
	}
	for _, round := range elsewhere {
		w := &r.Rungs[1].Windows[round]
		w.NsPerPacket, w.PPS, w.Distance[1] = 3*w.NsPerPacket, w.PPS/3, 310
	}
	r.summarise()
	return r
}

func TestRoundsWithTheCoresElsewhereDoNotCountWhereOthersDo(t *testing.T) {
	f := moved(16, 0, 1, 2).Rungs[1].ByFamily[IPv4]
	if f.GoodRuns != 13 || *f.NsPerPacket != 409 || !strings.Contains(f.Displaced, "3 rounds of 16") || !strings.HasSuffix(f.Displaced, "they do not count") {
		t.Errorf("%d rounds, %v ns, %q: want the 13 others, the median of 403 to 415", f.GoodRuns, *f.NsPerPacket, f.Displaced)
	}
	f = moved(16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9).Rungs[1].ByFamily[IPv4]
	if f.GoodRuns != 6 || *f.NsPerPacket != 412.5 || f.Interval == nil || f.NsQuartileInterval != nil {
		t.Errorf("%d rounds, %v ns: want the six others, with an interval of the median and none of the quartile", f.GoodRuns, *f.NsPerPacket)
	}
	r := moved(6, 5)
	f = r.Rungs[1].ByFamily[IPv4]
	if *f.NsQuartile != 401 {
		t.Errorf("quartile %v, want that of the five at home, 401", *f.NsQuartile)
	}
	if two := moved(6, 0, 1, 2, 3).Rungs[1]; *two.NsQuartile <= 405 {
		t.Errorf("quartile %v: two rounds at home are too few to be alone", *two.NsQuartile)
	}
	if f.GoodRuns != 6 || *f.NsPerPacket != 402.5 || !strings.HasSuffix(f.Displaced, "too few others") {
		t.Errorf("%d rounds, %v ns, %q: want all six, of which six are needed", f.GoodRuns, *f.NsPerPacket, f.Displaced)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "ipv4: 1 rounds of 6 were measured with the cores elsewhere") ||
		!strings.Contains(text.String(), "of 12 windows 1 had them elsewhere than in the nearest tenth, where a cache line takes 50 ns") ||
		!strings.Contains(text.String(), "\na cache line takes 50 ns from one core to the other and back") {
		t.Errorf("%v:\n%s", err, text.String())
	}
	if f = moved(16).Rungs[1].ByFamily[IPv4]; f.GoodRuns != 16 || f.Displaced != "" {
		t.Errorf("%d rounds, %q: nothing moved", f.GoodRuns, f.Displaced)
	}
}

func TestRoundsWithTheCoresElsewhereAreMadeUpFor(t *testing.T) {
	for _, c := range []struct {
		what string
		r    *Report
		want bool
	}{
		{"all sixteen at home", moved(16), false},
		{"thirteen, enough for a quartile", moved(16, 0, 1, 2), false},
		{"twelve", moved(16, 0, 1, 2, 3), true},
		{"all six", moved(6), false},
		{"five of six", moved(6, 5), true},
	} {
		if got := c.r.lostRounds(c.r.Rungs[1], c.r.home()); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

func TestATryWithTheCoresInPlaceCountsRatherThanOneWithout(t *testing.T) {
	in, out, shared, bound := mixed{}, mixed{elsewhere: true}, mixed{shared: true}, mixed{limit: "the generator was the limit"}
	for _, c := range []struct {
		what         string
		first, later mixed
		want         bool // that the first counts
	}{
		{"both in place", in, in, true},
		{"the second in place", out, in, false},
		{"the second in place, and a bound", out, bound, false},
		{"the first in place", in, out, true},
		{"the first in place, and a bound", bound, out, true},
		{"a bound, then none", bound, in, false},
		{"both elsewhere", out, out, true},
		{"the first shared", shared, in, false},
		{"the second shared", bound, shared, true},
		{"shared, then elsewhere", shared, out, true},
	} {
		if got := c.first.before(c.later); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

func TestRatiosAreOfTheLeastThirdAndKeepQuartilesAndMedians(t *testing.T) {
	r := moved(16)
	x := r.Rungs[1].ByFamily[IPv4].ToXDPDrop
	// Lower quartiles: 83.75 and 403.75; ranks 1 and 9 bound them. Medians of the rounds' ratios: around 87.5/407.5.
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
	if i := x.LeastInterval; i == nil || i[0] >= x.Least || i[1] <= x.Least || i[0] < 80.0/410 || i[1] > 90.0/400 {
		t.Errorf("interval %v of %v", i, x.Least)
	}
	if x.Busy < 0.21 || x.Busy > 0.22 || x.BusyInterval[0] >= x.Busy {
		t.Errorf("median %v, %v", x.Busy, x.BusyInterval)
	}
	if self := r.Rungs[0].ToXDPDrop; self.Quartile != 1 || *self.QuartileInterval != [2]float64{1, 1} || self.Least != 1 || *self.LeastInterval != [2]float64{1, 1} {
		t.Errorf("of itself: %+v", self)
	}
	if x := moved(12).Rungs[1].ToXDPDrop; x.Quartile == 0 || x.QuartileInterval != nil || x.Least == 0 || x.LeastInterval != nil {
		t.Errorf("twelve rounds: %+v, want both without an interval", x)
	}
	if a, b := r.Rungs[0], r.Rungs[1]; a.Rank != 1 || b.Rank != 2 || a.RankShared || b.RankShared {
		t.Errorf("places %d and %d", a.Rank, b.Rank)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "0.205        0.198-0.216    0.215") {
		t.Errorf("%v:\n%s", err, text.String())
	}
}

func TestRungsThatCannotBeToldApartShareTheirPlace(t *testing.T) {
	r := moved(16)
	twin := *r.Rungs[1]
	twin.Name = "twin"
	r.Rungs = append(r.Rungs, &twin)
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
