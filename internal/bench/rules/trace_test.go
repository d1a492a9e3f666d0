package rules

import (
	"errors"
	"slices"
	"testing"

	"levee/internal/bench"
	"levee/internal/bench/calibration"
	"levee/internal/bench/load"
)

// quietAt are options on a machine whose loads take 20 ns at the given readings, counted from 0,
// and 120 at others.
func quietAt(quiet ...int) *Options {
	n := -1
	return &Options{Options: load.Options{Machine: &bench.Observer{
		Take: func() calibration.Reading {
			if n++; slices.Contains(quiet, n) {
				return calibration.Reading{Load: 20, Step: 0.12}
			}
			return calibration.Reading{Load: 120, Step: 0.12}
		},
	}}}
}

// number counts rounds: the ns of one is its number, of the one that warms up 0.
func number() func() (float64, float64, error) {
	n := -1.0
	return func() (float64, float64, error) { n++; return n, 25, nil }
}

func TestRoundsOfACalmMachineCountAndNoOthersAreTried(t *testing.T) {
	rounds, err := quietAt(0, 1, 2, 3, 4, 5, 6).calmRounds(6, triesMost, number())
	if err != nil {
		t.Fatal(err)
	}
	ns, empty, c := counted(rounds)
	if want := []float64{1, 2, 3, 4, 5, 6}; !slices.Equal(ns, want) || len(rounds) != 6 ||
		len(empty) != 6 {
		t.Errorf("%v of %d rounds count, want %v", ns, len(rounds), want)
	}
	if c.Load != 20 || c.LoadRange != [2]float64{20, 20} || c.Step != 0.12 {
		t.Errorf("%+v", c)
	}
}

func TestRoundsAreTriedAgainUntilEnoughAreCalm(t *testing.T) {
	// Readings 3 to 9 are calm: between them lie rounds 4 to 9, by their numbers.
	rounds, err := quietAt(3, 4, 5, 6, 7, 8, 9).calmRounds(6, triesMost, number())
	if err != nil {
		t.Fatal(err)
	}
	ns, _, c := counted(rounds)
	if want := []float64{4, 5, 6, 7, 8, 9}; !slices.Equal(ns, want) || len(rounds) != 9 {
		t.Errorf("%v of %d rounds count, want %v of 9", ns, len(rounds), want)
	}
	if c.Load != 20 {
		t.Errorf("%+v, want the phase of the rounds that count", c)
	}
}

func TestTriesAreBounded(t *testing.T) {
	// One calm round, and none after it: of the others any do.
	rounds, err := quietAt(0, 1).calmRounds(6, triesMost, number())
	if err != nil {
		t.Fatal(err)
	}
	ns, _, c := counted(rounds)
	if len(rounds) != triesMost*6 || len(ns) != 6 || !slices.Contains(ns, 1) ||
		c.LoadRange != [2]float64{20, 120} {
		t.Errorf("%v of %d rounds count, %+v", ns, len(rounds), c)
	}
	rounds, err = quietAt(0, 1).calmRounds(6, 1, number())
	if err != nil || len(rounds) != 6 {
		t.Errorf("%d rounds, %v: want six, for there are to be no further tries", len(rounds), err)
	}
}

func TestTheCalmestRoundOfTheWholeMeasurementIsWhatOthersAreHeldAgainst(t *testing.T) {
	x := quietAt(0, 1, 2, 3, 4, 5, 6)
	if _, err := x.calmRounds(6, triesMost, number()); err != nil {
		t.Fatal(err)
	}
	rounds, err := x.calmRounds(6, triesMost, number()) // none of these is calm
	if err != nil || len(rounds) != triesMost*6 {
		t.Errorf("%d rounds, %v: want all tries", len(rounds), err)
	}
}

func TestARoundThatFailsEndsTheMeasurement(t *testing.T) {
	failed := errors.New("no")
	for at := range 3 {
		n := 0
		_, err := quietAt().calmRounds(6, triesMost, func() (float64, float64, error) {
			if n++; n > at {
				return 0, 0, failed
			}
			return 1, 1, nil
		})
		if !errors.Is(err, failed) {
			t.Errorf("round %d: %v", at, err)
		}
	}
}

func TestWhichRoundsCountIsNotAskedOfTheirTime(t *testing.T) {
	slow := 1e6
	rounds, err := quietAt(0, 1, 2, 3, 4, 5, 6).calmRounds(6, triesMost,
		func() (float64, float64, error) { slow /= 2; return slow, 1, nil })
	if err != nil || slices.ContainsFunc(rounds, func(r TraceRound) bool { return !r.Counts }) {
		t.Errorf("%+v, %v: want all six, however far apart", rounds, err)
	}
}
