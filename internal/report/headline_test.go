package report

import (
	"strings"
	"testing"
)

func TestTheHeadlineClaimsOnlyWhatCompareCallsReal(t *testing.T) {
	// seven rounds with a spread of 3 % around a middle
	rounds := func(v float64) []float64 {
		return []float64{v * 0.97, v * 0.98, v * 0.99, v, v * 1.01, v * 1.02, v * 1.03}
	}
	bars := func(better Better, points ...Point) *Document {
		return &Document{Bench: "a", Charts: []*Chart{{ID: "a", Title: "Speed", Kind: Bar,
			Better: better, Y: Axis{Unit: "ns"}, Series: []*Series{{"s", points}}}}}
	}
	of := func(name string, v float64) Point { return Measured(0, rounds(v)).Of(name) }
	for _, c := range []struct {
		what string
		d    *Document
		want []string
		not  []string
	}{
		{"a winner, and levee further down",
			bars(More, of("nft", 50), of("xdp", 100), of("levee", 40)),
			[]string{"xdp is first in “Speed” with 100 ns (95 % interval 97 ns to 103 ns)",
				"2 (1.88 to 2.12) times as high as that of nft.",
				"2.5 (2.35 to 2.65) times as high as that of levee: 40 ns (95 %"}, nil},
		{"less is better", bars(Less, of("levee", 10), of("nft", 30)),
			[]string{"levee is first", "That of nft is 3 (2.83 to 3.19) times as high."}, nil},
		{"two are level", bars(More, of("a", 100), of("levee", 101), of("b", 50)),
			[]string{"levee has the best figure", "do not tell it from a", "2.02"},
			[]string{"first"}},
		{"nothing is told apart", bars(More, of("a", 100), of("b", 101)),
			[]string{"no winner can be named"}, []string{"first"}},
		{"real, but smaller than what matters", bars(More,
			Value(0, 100).Between(99.9, 100.1).Of("a"),
			Value(0, 103).Between(102.9, 103.1).Of("b")),
			[]string{"no winner can be named"}, []string{"first"}},
		{"single values", bars(More, Value(0, 1).Of("a"), Value(0, 9).Of("b")),
			[]string{"no winner can be named"}, []string{"first"}},
		{"a bound may be above the best", bars(More, of("a", 100), of("b", 50).Bound(true)),
			[]string{"no winner can be named"}, []string{"first"}},
		{"the best is a bound", bars(More, of("a", 100).Bound(true), of("b", 50)),
			[]string{"a is first", "at least 100 ns",
				"It is at least 2 times as high as that of b."}, nil},
		{"a gap takes no part", bars(More, of("a", 100), Gap(0, "why").Of("b")),
			[]string{"No winner is named"}, nil},
		{"no direction is good", bars("", of("a", 100), of("b", 50)),
			[]string{"No winner is named"}, nil},
	} {
		got := strings.Join(c.d.Headline(), "\n")
		if !containsAll(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		for _, not := range c.not {
			if strings.Contains(got, not) {
				t.Errorf("%s: %q says %q", c.what, got, not)
			}
		}
	}
}

func TestTheHeadlineOfLinesIsAtTheFarEnd(t *testing.T) {
	d := sample()
	d.Charts = d.Charts[1:]
	got := strings.Join(d.Headline(), "\n")
	if !containsAll(got, []string{"entries 1 M: levee static is first in “A look-up in a set”",
		"That of levee dynamic is ", " times as high."}) {
		t.Errorf("%q", got)
	}
	d.Charts[0].Ranked, d.Charts = true, append(sample().Charts[:1], d.Charts...)
	if got := d.Headline()[0]; !strings.HasPrefix(got, "entries 1 M") {
		t.Errorf("%q: not of the chart whose order is a result", got)
	}
}
