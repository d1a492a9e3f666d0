package flood

import (
	"testing"
	"time"
)

// refOf is the reference of windows.
func refOf(windows []Window) Reference {
	return (&Comparison{Rungs: []*Rung{{Windows: windows}}}).Reference()
}

func TestWindowsWithTheCoresElsewhereAreTold(t *testing.T) {
	windows := []Window{{Distance: [2]float64{52, 50}}, {Distance: [2]float64{55, 310}},
		{Distance: [2]float64{0, 0}}, {Distance: [2]float64{24, 51}},
		{Distance: [2]float64{60, 48}}}
	if got := refOf(windows).Distance; got != 24 {
		t.Errorf("the reference is %v ns, want the least tenth of the readings, of eight the "+
			"least, 24", got)
	}
	for i, want := range []bool{false, true, false, true, false} {
		if got := windows[i].Moved(Reference{Distance: 48}); got != want {
			t.Errorf("%v ns, in the reference 48: %v", windows[i].Distance, got)
		}
	}
	if got := leastTenth([]float64{310, 310, 310, 310, 310, 310, 310, 310, 24, 52, 50}); got != 50 {
		t.Errorf("the reference is %v ns, want that of the second of eleven readings, 50, though "+
			"the cores were elsewhere most of the time", got)
	}
	if windows[1].Moved(Reference{}) || refOf(nil) != (Reference{}) {
		t.Error("nothing is known, and yet the cores are elsewhere")
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
	r := refOf(windows)
	if r.Work != 0.12 || r.Distance != 0 {
		t.Errorf("the reference is %+v, want the least tenth of what is known, 0.12 ns, and no "+
			"distance", r)
	}
	for i, want := range []bool{false, true, true, false, false, false} {
		if got := windows[i].Shared(r); got != want || windows[i].unlike(r) != want {
			t.Errorf("%v ns, in the reference %v: %v", windows[i].Work, r.Work, got)
		}
	}
	if windows[1].Shared(Reference{}) {
		t.Error("nothing is known, and yet the cores are shared")
	}
}

func TestTheReferenceIsACoreOfOnesOwnWhereMostWindowsAreShared(t *testing.T) {
	windows := make([]Window, 20)
	for i := range windows {
		ns := 0.17
		if i%7 == 0 {
			ns = 0.12
		}
		windows[i].Work = [2]float64{ns, ns}
	}
	if got := refOf(windows).Work; got != 0.12 {
		t.Errorf("%v ns, want that of the three windows of twenty that had their cores alone", got)
	}
}

// moved is a comparison of UDP with one rung, in some of whose rounds the cores were elsewhere.
func moved(rounds int, elsewhere ...int) (*Comparison, *Rung) {
	c, g := comparison("tc ingress")
	c.Rounds = rounds
	for round := range rounds {
		ns := 400 + float64(round)
		g.Windows = append(g.Windows, Window{Round: round, Family: IPv4, Traffic: "udp", Seconds: 1,
			PPS: 1e9 / ns, NsPerPacket: ns, Saturated: true, Distance: [2]float64{50, 50}})
	}
	for _, round := range elsewhere {
		g.Windows[round].Distance[1] = 310
	}
	return c, g
}

func TestRoundsWithTheCoresElsewhereAreMadeUpFor(t *testing.T) {
	for _, x := range []struct {
		what      string
		rounds    int
		elsewhere []int
		want      bool
	}{
		{"all sixteen like the reference", 16, nil, false},
		{"thirteen, enough for a quartile", 16, []int{0, 1, 2}, false},
		{"twelve", 16, []int{0, 1, 2, 3}, true},
		{"all six", 6, nil, false},
		{"five of six", 6, []int{5}, true},
	} {
		c, g := moved(x.rounds, x.elsewhere...)
		if got := c.lostRounds(g, c.Reference()); got != x.want {
			t.Errorf("%s: %v", x.what, got)
		}
	}
}

func TestRungsWithoutAFigureAreMadeUpForFirst(t *testing.T) {
	c, g := moved(6, 5)
	if c.noFigure(g, c.Reference()) || !c.lostRounds(g, c.Reference()) {
		t.Error("five rounds like the reference and one elsewhere: there is a figure, and a " +
			"round is missed")
	}
	g.Windows[0].Invalid = []string{"steal"}
	if !c.noFigure(g, c.Reference()) || !c.lostRounds(g, c.Reference()) {
		t.Error("five rounds of six: there is no figure")
	}
}

func TestATryWithTheCoresInPlaceCountsRatherThanOneWithout(t *testing.T) {
	in, out, shared, bound := mixed{}, mixed{moved: true}, mixed{shared: true},
		mixed{limit: "the generator was the limit"}
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

func TestTriesAtRoundsWithAFigureLeaveTimeForOthers(t *testing.T) {
	l := Lab{Options: &Options{Budget: 100 * time.Second}}
	// Half done after 46 s: 92 s and a try are to be expected.
	if l.late(46*time.Second, 49, 100, 1) || !l.late(46*time.Second, 49, 100, forComfort) {
		t.Error("92 s of 100: there is time for a round without a figure, and none for one with")
	}
	if l.Budget = 0; l.late(time.Hour, 1, 100, forComfort) {
		t.Error("late without a bound")
	}
}
