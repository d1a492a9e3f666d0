package bench

import (
	"iter"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestTheWorkOfTwoCoresIsReadAndBounded(t *testing.T) {
	needRoot(t)
	if runtime.NumCPU() < 2 {
		t.Skip("needs two cores")
	}
	begun := time.Now()
	ns, err := workOn(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if ns <= 0 || ns > 100 {
		t.Errorf("an operation takes %v ns", ns)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("reading took %v", took)
	}
	if _, err := workOn(0, 1000); err == nil || !strings.Contains(err.Error(), "running on core 1000") {
		t.Errorf("a core that is not there: %v", err)
	}
}

func windowsOf(list []Window) iter.Seq[*Window] {
	return func(yield func(*Window) bool) {
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
	}
}

func TestWindowsOnSharedCoresAreTold(t *testing.T) {
	windows := []Window{
		{Work: [2]float64{0.12, 0.12}},
		{Work: [2]float64{0.18, 0.16}}, // shared on both sides
		{Work: [2]float64{0.12, 0.16}}, // for a part of the time, a third more
		{Work: [2]float64{0.13, 0.12}}, // within the scatter
		{Work: [2]float64{0.18, 0}},    // one side is not known
		{},
	}
	h := homeOf(windowsOf(windows))
	if h.work != 0.12 || h.distance != 0 {
		t.Errorf("home is %+v, want the least tenth of what is known, 0.12 ns, and no distance", h)
	}
	for i, want := range []bool{false, true, true, false, false, false} {
		if got := windows[i].crowded(h); got != want || windows[i].away(h) != want {
			t.Errorf("%v ns, at home %v: %v", windows[i].Work, h.work, got)
		}
	}
	if windows[1].crowded(home{}) || homeOf(windowsOf(nil)) != (home{}) {
		t.Error("nothing is known, and yet the cores are shared")
	}
}

func TestHomeIsACoreOfOnesOwnWhereMostWindowsAreShared(t *testing.T) {
	windows := make([]Window, 20)
	for i := range windows {
		ns := 0.17
		if i%7 == 0 {
			ns = 0.12
		}
		windows[i].Work = [2]float64{ns, ns}
	}
	if got := homeWork(windowsOf(windows)); got != 0.12 {
		t.Errorf("%v ns, want that of the three windows of twenty that had their cores alone", got)
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
	for _, round := range []int{0, 1, 2} { // the cores of round 0 are elsewhere as well, which counts once
		g.Windows[round].Work[0] = 0.18
	}
	r.Caveats = nil
	r.summarise()
	f := g.ByFamily[IPv4]
	if f.GoodRuns != 13 || *f.NsPerPacket != 409 || f.placed != 13 {
		t.Errorf("%d rounds, %v ns: want the 13 others", f.GoodRuns, *f.NsPerPacket)
	}
	for _, want := range []string{"1 rounds of 16 were measured with the cores elsewhere", "2 rounds of 16 with cores that were shared", ": they do not count"} {
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
		"\nan operation takes 0.120 ns on these cores while nobody shares them, 0.120 in the median window",
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

func TestRungsWithoutAFigureAreMadeUpForFirst(t *testing.T) {
	r := moved(6, 5)
	if g := r.Rungs[1]; r.noFigure(g, r.home()) || !r.lostRounds(g, r.home()) {
		t.Error("five rounds at home and one elsewhere: there is a figure, and a round is missed")
	}
	r.Rungs[1].Windows[0].Invalid = []string{"steal"}
	if g := r.Rungs[1]; !r.noFigure(g, r.home()) || !r.lostRounds(g, r.home()) {
		t.Error("five rounds of six: there is no figure")
	}
}

func TestTriesAtRoundsWithAFigureLeaveTimeForOthers(t *testing.T) {
	b := bench{Options: &Options{Budget: 100 * time.Second}}
	// Half done after 46 s: 92 s and a try are to be expected.
	if b.late(46*time.Second, 49, 100, 1) || !b.late(46*time.Second, 49, 100, forComfort) {
		t.Error("92 s of 100: there is time for a round without a figure, and none for one with")
	}
	if b.Budget = 0; b.late(time.Hour, 1, 100, forComfort) {
		t.Error("late without a bound")
	}
}
