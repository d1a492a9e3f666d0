package report

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// pair is two documents with one figure each.
func pair(better Better, a, b Point) (*Document, *Document) {
	make := func(p Point) *Document {
		d := &Document{Bench: "pair"}
		d.Chart(Chart{ID: "c", Better: better, Y: Axis{Unit: "ns"}}).Add("s", p)
		return d
	}
	return make(a), make(b)
}

func TestVerdictsOnOneFigure(t *testing.T) {
	low, high := []float64{10, 11, 12, 10.5, 11.5, 10.2}, []float64{20, 21, 22, 20.5, 21.5, 20.2}
	bound := func(p Point) Point { p.AtLeast = true; return p }
	for _, c := range []struct {
		what   string
		better Better
		a, b   Point
		want   Verdict
		why    string
	}{
		{"slower", Less, Measured(1, low), Measured(1, high), Worse, ""},
		{"faster", Less, Measured(1, high), Measured(1, low), Gained, ""},
		{"more packets", More, Measured(1, low), Measured(1, high), Gained, ""},
		{"no direction", "", Measured(1, low), Measured(1, high), Changed, ""},
		{"the same", Less, Measured(1, low), Measured(1, low), Same, ""},
		{"scatter", Less, Measured(1, low), Measured(1, []float64{10.1, 11.2, 12.3, 10, 11, 14}),
			Same, "scatter"},
		{"real but small", Less, Measured(1, []float64{100, 100.1, 100.2, 100.3, 100.4, 100.5}),
			Measured(1, []float64{101, 101.1, 101.2, 101.3, 101.4, 101.5}), Same,
			"smaller than 5 %"},
		{"single values", Less, Value(1, 1), Value(1, 9), Unknown, "single values"},
		{"intervals apart", Less, Value(1, 10).Between(9, 11), Value(1, 20).Between(19, 21), Worse,
			""},
		{"intervals that overlap", Less, Value(1, 10).Between(9, 15), Value(1, 20).Between(14, 21),
			Same, "overlap"},
		{"no figure", Less, Measured(1, low), Gap(1, "it broke"), Unknown, "it broke"},
		{"at least 11, now 21", More, bound(Measured(1, low)), Measured(1, high), Unknown, "bound"},
		{"at least 21, now 11", More, bound(Measured(1, high)), Measured(1, low), Worse, ""},
		{"two bounds", More, bound(Measured(1, high)), bound(Measured(1, low)), Unknown,
			"both are bounds"},
		{"to zero", Less, Measured(1, low), Measured(1, make([]float64, 6)), Gained, ""},
		{"from zero", Less, Measured(1, make([]float64, 6)), Measured(1, low), Worse, ""},
	} {
		a, b := pair(c.better, c.a, c.b)
		r, err := Compare(a, b, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d := r.Differences[0]; d.Verdict != c.want || !strings.Contains(d.Why, c.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", c.what, d.Verdict, d.Why, c.want, c.why)
		}
		if text := r.Text(); strings.Contains(text, "no real difference") != (c.want == Same) ||
			strings.Contains(text, "nothing could be compared") != (c.want == Unknown) {
			t.Errorf("%s: %s", c.what, text)
		}
	}
}

// TestSpreadsAreLookedAt: only lines and bars have points that two runs have in common.
func TestSpreadsAreLookedAt(t *testing.T) {
	a, b := sample(), sample()
	for _, d := range []*Document{a, b} {
		d.Charts = d.Charts[2:] // neither the bars nor the lines
		d.Chart(Chart{ID: "cdf", Kind: Distribution}).Add("levee", Value(float64(len(d.Charts)), 1))
	}
	c, err := Compare(a, b, Options{})
	if err != nil || len(c.Differences) != 0 || len(c.Notes) != 1 ||
		!strings.HasPrefix(c.Notes[0], "4 histograms, distributions, boxes and time series") {
		t.Errorf("%d differences, notes %q, %v", len(c.Differences), c.Notes, err)
	}
}

// TestEqualRunsRarelyDiffer draws both runs from the same distribution, many times: of all
// comparisons, few may find anything, although each makes a hundred tests.
func TestEqualRunsRarelyDiffer(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	run := func(slower float64) *Document {
		d := &Document{Bench: "many"}
		c := d.Chart(Chart{ID: "c", Better: Less})
		for x := range 100 {
			rounds := make([]float64, 10)
			for i := range rounds {
				rounds[i] = 100 + 15*random.NormFloat64()
				if x < 10 {
					rounds[i] *= slower
				}
			}
			c.Add("s", Measured(float64(x), rounds))
		}
		return d
	}
	alarms, found := 0, 0
	const times = 100
	for range times {
		r, err := Compare(run(1), run(1), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Count[Worse]+r.Count[Gained] > 0 {
			alarms++
		}
		if r, err = Compare(run(1), run(1.6), Options{}); err != nil {
			t.Fatal(err)
		}
		found += r.Count[Worse]
	}
	if alarms > times/10 {
		t.Errorf("%d of %d pairs of equal runs differ, want about 5", alarms, times)
	}
	if found < times*9 {
		t.Errorf("%d of %d real differences were found", found, times*10)
	}
}

func TestOtherMachinesAndSettingsAreNamed(t *testing.T) {
	a, b := sample(), sample()
	b.Machine.Kernel, b.Version, b.Setup[0].Value, b.Incomplete = "6.1.0", "other", "mine.levee",
		"interrupted"
	b.Machine.MHz = "1"
	r, err := Compare(a, b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"Kernel: 6.18.5", "levee: test, then other",
		"policy: demo.levee, then mine.levee", "second report is incomplete"} {
		if !strings.Contains(got, want) {
			t.Errorf("warnings %q, want %q", got, want)
		}
	}
	if len(r.Warnings) != 4 {
		t.Errorf("warnings %q: the frequency of a moment is none", r.Warnings)
	}
	b.Bench = "rules"
	if _, err := Compare(a, b, Options{}); !errors.Is(err, errIncomparable) {
		t.Errorf("two benches are compared: %v", err)
	}
}

func TestMeasuredSettingsMayDifferByTheirFactor(t *testing.T) {
	for _, c := range []struct {
		a, b   string
		within float64
		want   string // of the warning, empty for none
	}{
		{"52", "55", 1.8, ""},
		{"52", "310", 1.8, "distance: 52, then 310"},
		{"310", "52", 1.8, "distance: 310, then 52"},
		{"52", "55", 0, "distance: 52, then 55"},
		{"52", "far", 1.8, "distance: 52, then far"},
		{"0", "55", 1.8, "distance: 0, then 55"},
		{"52", "52", 0, ""},
	} {
		a, b := pair(Less, Value(1, 1), Value(1, 1))
		a.Setup, b.Setup = []Setting{{"distance", c.a, c.within}},
			[]Setting{{"distance", c.b, c.within}}
		r, err := Compare(a, b, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(r.Warnings, "\n"); got != c.want {
			t.Errorf("%s and %s within %g: %q, want %q", c.a, c.b, c.within, got, c.want)
		}
	}
}

func TestTooFewRoundsAreSaid(t *testing.T) {
	d := func() *Document {
		d := &Document{Bench: "few"}
		c := d.Chart(Chart{ID: "c"})
		for x := range 100 {
			c.Add("s", Measured(float64(x), []float64{1, 2, 3, 4, 5, 6}))
		}
		return d
	}
	r, err := Compare(d(), d(), Options{})
	if err != nil || !strings.Contains(strings.Join(r.Notes, "\n"),
		"with 6 rounds a difference in one figure alone cannot be told among 100; 8 rounds can") {
		t.Errorf("notes %q, %v", r.Notes, err)
	}
}

func TestTextOfAComparisonHoldsNoControlCharacters(t *testing.T) {
	a, b := hostile("\x1b[2Jx\r\n"), hostile("\x1b[2Jx\r\n")
	b.Machine.CPU = "\x1b]0;owned\a"
	r, err := Compare(a, b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(r.Text(), "\x1b\r\a") {
		t.Errorf("%q", r.Text())
	}
}
