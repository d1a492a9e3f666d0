package report

import (
	"slices"
	"strings"
	"testing"
)

func TestRanksThatTheDataDoNotTellAreShared(t *testing.T) {
	in := func(low, high float64) *[2]float64 { return &[2]float64{low, high} }
	for _, c := range []struct {
		what      string
		intervals []*[2]float64
		want      []Rank
	}{
		{"nothing", nil, []Rank{}},
		{"one", []*[2]float64{in(1, 2)}, []Rank{{1, false}}},
		{"apart", []*[2]float64{in(5, 6), in(1, 2), in(3, 4)},
			[]Rank{{3, false}, {1, false}, {2, false}}},
		{"two the same, one behind", []*[2]float64{in(1, 2), in(1, 2), in(3, 4)},
			[]Rank{{1, true}, {1, true}, {3, false}}},
		{"they touch", []*[2]float64{in(1, 2), in(2, 3)}, []Rank{{1, true}, {1, true}}},
		{"a chain: the first is before the last, and nothing else is known",
			[]*[2]float64{in(1, 3), in(2, 5), in(4, 6)}, []Rank{{1, true}, {1, true}, {2, true}}},
		{"one without an interval", []*[2]float64{in(1, 2), nil, in(3, 4)},
			[]Rank{{1, false}, {}, {2, false}}},
	} {
		if got := Ranks(c.intervals); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// ranked is a document with a chart whose order is a result and that is to be steady.
func ranked(points ...Point) *Document {
	d := &Document{Bench: "ranked"}
	d.Chart(Chart{ID: "c", Kind: Bar, Ranked: true, Steady: 0.1}).Add("ipv4", points...)
	return d
}

func bar(label string, y, low, high float64) Point {
	return Value(0, y).Between(low,
		high).Of(label)
}

func TestReportsAgreeInTheirOrderOrNot(t *testing.T) {
	first := []Point{bar("a", 10, 9, 11), bar("b", 20, 19, 21), bar("c", 21, 20, 30)}
	for _, c := range []struct {
		what   string
		second []Point
		told   int
		pairs  int
		want   []string
		text   string
	}{
		{"the same", first, 2, 3, nil, "the same; both reports tell 2 of 3 pairs apart"},
		{"what the first cannot tell is no contradiction",
			[]Point{bar("a", 10, 9, 11), bar("b", 40, 39, 41), bar("c", 21, 20, 30)}, 2, 3, nil,
			"the same"},
		{"turned round", []Point{bar("a", 25, 24, 26), bar("b", 20, 19, 21), bar("c", 31, 30, 40)},
			2, 3, []string{"ipv4: a and b"},
			"NOT the same; both reports tell 2 of 3 pairs apart, 1 of these the other way round: " +
				"ipv4: a and b"},
		{"a bound on the side that it leaves open",
			[]Point{bar("a", 10, 9, 11).Bound(true), bar("b", 20, 19, 21), bar("c", 40, 39, 41)}, 0,
			3, nil, "cannot be told, both reports tell none of 3 pairs apart"},
		{"a gap", []Point{Gap(0, "it broke").Of("a"), bar("b", 20, 19, 21), bar("c", 21, 20, 30)},
			0, 1, nil, "cannot be told"},
		{"no interval", []Point{Value(0, 10).Of("a"), bar("b", 20, 19, 21)}, 0, 1, nil,
			"cannot be told"},
	} {
		r, err := Compare(ranked(first...), ranked(c.second...), Options{})
		if err != nil {
			t.Fatal(err)
		}
		o := r.Orders[0]
		if o.Told != c.told || o.Pairs != c.pairs || !slices.Equal(o.Opposite, c.want) {
			t.Errorf("%s: %+v", c.what, o)
		}
		if text := r.Text(); !strings.Contains(text, "order in c: "+c.text) {
			t.Errorf("%s: no %q in\n%s", c.what, c.text, text)
		}
	}
}

func TestFiguresThatAreNotSteadyAreNamed(t *testing.T) {
	one := func(y float64) *Document { return ranked(Value(0, y).Of("a"), Value(0, 5).Of("b")) }
	for _, c := range []struct {
		first, second float64
		moved         int
		text          string
	}{
		{0.100, 0.100, 0, "c: 0 of 2 figures moved by more than 10 %\n"},
		{0.100, 0.109, 0, "c: 0 of 2 figures"},
		{0.100, 0.089, 1, "c: 1 of 2 figures moved by more than 10 %: ipv4 a 0.1 -> 0.089 " +
			"(-11.0 %)\n"},
		{0, 1, 1, "ipv4 a 0 -> 1\n"},
	} {
		r, err := Compare(one(c.first), one(c.second), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s := r.Steadiness[0]; len(s.Moved) != c.moved || s.Figures != 2 {
			t.Errorf("%g, %g: %+v", c.first, c.second, s)
		}
		if text := r.Text(); !strings.Contains(text, c.text) {
			t.Errorf("%g, %g: no %q in\n%s", c.first, c.second, c.text, text)
		}
	}
}

func TestChartsThatAskForNothingAndHugeOnesAreNotOrdered(t *testing.T) {
	a, b := pair(Less, Value(1, 1), Value(1, 2))
	r, err := Compare(a, b, Options{})
	if err != nil || len(r.Orders)+len(r.Steadiness) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	many := make([]Point, maxRanked+1)
	for i := range many {
		many[i] = bar(strings.Repeat("x", i+1), float64(i+1), float64(i+1), float64(i+1))
	}
	r, err = Compare(ranked(many...), ranked(many...), Options{})
	if err != nil || r.Orders[0].Pairs != 0 ||
		!strings.Contains(strings.Join(r.Notes, "\n"),
			"is not compared: 501 figures are too many") {
		t.Errorf("%+v, %q, %v", r.Orders, r.Notes, err)
	}
}
