package bench

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"levee/internal/bench/calibration"
	"levee/internal/report"
	"levee/internal/usage"
)

func TestTimeLeft(t *testing.T) {
	now := time.Unix(1000, 0)
	m := &Meter{clock: func() time.Time { return now },
		cases: []time.Duration{20 * time.Second, 40 * time.Second}, start: now}
	m.tell = func(Progress) {}
	m.Tell("", 0.25)
	if got := m.left(); got != 55*time.Second {
		t.Errorf("%v left by the estimate alone, want 55s", got)
	}
	m.Next(1)
	now = now.Add(40 * time.Second) // twice as long as it should take
	m.Tell("", 0.5)
	if got := m.left(); got != 20*time.Second {
		t.Errorf("%v left, want 20s: 40 of 60 estimated seconds took 40", got)
	}
}

func TestIntervalsFitIntoJSON(t *testing.T) {
	if f := FigureOf([]float64{1, 2}); f.Interval != [2]float64{1, 2} {
		t.Errorf("%+v", f)
	}
	if FigureOf(nil) != nil {
		t.Error("nothing has a figure")
	}
}

func TestRoundsGoForwardsAndBackwardsInTurn(t *testing.T) {
	for round, want := range [][]int{{0, 1, 2}, {2, 1, 0}, {0, 1, 2}} {
		if got := InTurn(round, 3); !slices.Equal(got, want) {
			t.Errorf("round %d: %v, want %v", round, got, want)
		}
	}
}

func TestOptionsHaveBounds(t *testing.T) {
	few := Usual{Rounds: 6, FewestRounds: 1, MostRounds: 50}
	windows := Usual{Rounds: 6, Window: time.Second, Shortest: 50 * time.Millisecond,
		Longest: time.Minute}
	for _, c := range []struct {
		o    Options
		u    Usual
		want string // "" for none
	}{
		{Options{}, windows, ""},
		{Options{Rounds: MinRounds}, windows, ""},
		{Options{Rounds: MaxRounds}, windows, ""},
		{Options{Rounds: 5}, windows, "5 rounds: a 95 % interval of a median needs 6 or more " +
			"(and 1000 are enough)"},
		{Options{Rounds: 1001}, windows,
			"1001 rounds: a 95 % interval of a median needs 6 or more (and 1000 are enough)"},
		{Options{Rounds: 1}, few, ""},
		{Options{Rounds: 51}, few, "51 rounds: there must be 1 to 50"},
		{Options{Window: 1}, windows, "windows of 1ns: they last 50ms to 1m"},
		{Options{Window: 90 * time.Minute},
			Usual{Rounds: 6, Shortest: time.Second, Longest: time.Hour},
			"windows of 1h30m0s: they last 1s to 1h"},
	} {
		got := ""
		if err := c.o.Complete(c.u); err != nil {
			if got = err.Error(); !errors.Is(err, usage.ErrWrong) {
				t.Errorf("%q is not told from other errors", got)
			}
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	o := Options{Quick: true}
	if err := o.Complete(Usual{Rounds: 16, QuickRounds: 7, Window: time.Second,
		Longest: time.Minute}); err != nil || o.Rounds != 7 || o.Window != time.Second {
		t.Errorf("%+v, %v: want the rounds of a quick run, and windows as ever", o, err)
	}
}

func TestConditionsAreSaidAndCompared(t *testing.T) {
	c := ConditionsOf([]calibration.Reading{{Load: 20, Step: 0.12}, {Load: 30, Step: 0.13},
		{Load: 100, Step: 0.2}})
	var said, silent strings.Builder
	nothing := func(*Text) {}
	if err := c.Write(&said, new(Head), nothing); err != nil {
		t.Fatal(err)
	}
	if want := "took 30 ns a load (20 to 100), the core 0.130 ns an operation (0.120 to " +
		"0.200)"; !strings.Contains(said.String(), want) {
		t.Errorf("%q lacks %q", said.String(), want)
	}
	var d report.Document
	if c.Set(&d); len(d.Setup) != 2 || d.Setup[0].Value != "30.0" ||
		d.Setup[0].Within != SameLoad || d.Setup[1].Value != "0.1300" {
		t.Errorf("%+v", d.Setup)
	}
	var none *Conditions
	if err := none.Write(&silent, new(Head), nothing); err != nil ||
		strings.Contains(silent.String(), "memory") {
		t.Errorf("%v: %q", err, silent.String())
	}
	if none.Set(&d); ConditionsOf(nil) != nil || len(d.Setup) != 2 || none.Cell() != "-" {
		t.Error("no readings, and yet conditions")
	}
}
