package demo

import (
	"math"
	"testing"
)

// searched plays a search, and returns it with the steps that it tried. The outcome is whether the
// service was held, and what was sent at most.
func searched(t *testing.T, top int, outcome func(step, n int) (held bool, most int)) (*search,
	[]int) {
	t.Helper()
	s := newSearch(top)
	var tried []int
	for step, _, more := s.next(); more; step, _, more = s.next() {
		if tried = append(tried, step); len(tried) > 60 {
			t.Fatalf("no end: %v", tried)
		}
		held, most := outcome(step, len(tried))
		s.add(step, held, min(step, most))
	}
	return s, tried
}

func TestSearchFindsEveryEdge(t *testing.T) {
	for edge := -1; edge <= lastStep; edge++ {
		s, tried := searched(t, lastStep, func(step, _ int) (bool, int) {
			return step <= edge, step
		})
		if s.held != edge || s.open() != (edge == lastStep) {
			t.Errorf("edge %d: held %d, open %v", edge, s.held, s.open())
		}
		if len(tried) > 20 {
			t.Errorf("edge %d: %d floods", edge, len(tried))
		}
	}
}

func TestOneDisturbedFloodMovesNoEdge(t *testing.T) {
	const edge = 47
	_, quiet := searched(t, lastStep, func(step, _ int) (bool, int) { return step <= edge, step })
	for bad := 1; bad <= len(quiet); bad++ {
		s, _ := searched(t, lastStep, func(step, n int) (bool, int) {
			return step <= edge && n != bad, step
		})
		if s.held != edge {
			t.Errorf("disturbed in flood %d: held %d, want %d", bad, s.held, edge)
		}
	}
}

func TestSearchEndsWhereTheSenderDoes(t *testing.T) {
	const most = 72
	s, _ := searched(t, lastStep, func(int, int) (bool, int) { return true, most })
	if !s.open() || s.held != most {
		t.Errorf("held %d, open %v", s.held, s.open())
	}
	// A sender that was disturbed once is not at its end, and has not lost what it sent.
	s, _ = searched(t, lastStep, func(step, n int) (bool, int) {
		if n == 3 {
			return true, step - 1
		}
		return step <= 60, step
	})
	if s.held != 60 || s.open() {
		t.Errorf("held %d, open %v", s.held, s.open())
	}
	// The service may be lost with all that the sender has.
	s, _ = searched(t, lastStep, func(step, _ int) (bool, int) { return step <= 70, most })
	if s.held != 70 || s.open() {
		t.Errorf("held %d, open %v", s.held, s.open())
	}
	// All is asked for after a step that was held at less, and only then.
	s = newSearch(lastStep)
	s.add(firstStep, true, firstStep-1)
	if step, all, more := s.next(); step != firstStep || !all || !more {
		t.Errorf("next %d, all %v", step, all)
	}
	s.add(firstStep, false, firstStep+10)
	if _, all, _ := s.next(); !all {
		t.Error("one disturbed flood with all that there is was the last")
	}
	s.add(firstStep, false, firstStep+10)
	if _, all, _ := s.next(); all || s.held != firstStep-1 || s.lost != firstStep+10 {
		t.Errorf("held %d, lost %d, all %v", s.held, s.lost, all)
	}
}

// A sender that pays for each packet that is taken keeps its pace up to some rate, and without pace
// fills the ring, where the visitors' packets are lost with the others. What it sent at a pace, and
// was held, counts; what it sends without pace was lost once for all.
func TestAFloodWithoutPaceTakesNothingFromWhatWasHeld(t *testing.T) {
	const paced, unpaced = 55, 66
	for from := range 8 { // a flood in which the sender was slow
		s, alls := newSearch(lastStep), 0
		for n := 0; ; n++ {
			step, all, more := s.next()
			if !more {
				break
			}
			switch {
			case n > 30:
				t.Fatal("no end")
			case all:
				alls++
				s.add(step, false, unpaced)
			case n == from:
				s.add(step, true, min(step, paced)-1)
			default:
				s.add(step, true, min(step, paced))
			}
		}
		if s.held != paced || s.open() || alls != 2 {
			t.Errorf("slow in flood %d: held %d, open %v, %d floods without pace", from, s.held,
				s.open(), alls)
		}
	}
}

func TestSearchStaysBelowTheRateThatWasAskedFor(t *testing.T) {
	for _, rate := range []float64{10e3, 40e3, 50e3, 1e6} {
		top := stepBelow(rate)
		s, tried := searched(t, top, func(step, _ int) (bool, int) { return true, step })
		for _, step := range tried {
			if rateOf(step) > rate*(1+1e-9) {
				t.Errorf("tried %.0f of %.0f", rateOf(step), rate)
			}
		}
		if s.held != top || !s.open() {
			t.Errorf("%.0f: held %d of %d", rate, s.held, top)
		}
	}
	if r := rateOf(firstStep + perOctave); math.Abs(r-640e3) > 1 {
		t.Errorf("an octave above the first: %.0f", r)
	}
}
