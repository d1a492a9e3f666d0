package demo

import (
	"math"
	"testing"
)

// searched plays a search, and returns it with the steps that it tried.
func searched(t *testing.T, top int, outcome func(step, n int) (held, less bool)) (*search, []int) {
	t.Helper()
	s := newSearch(top)
	var tried []int
	for step, _, more := s.next(); more; step, _, more = s.next() {
		if tried = append(tried, step); len(tried) > 60 {
			t.Fatalf("no end: %v", tried)
		}
		held, less := outcome(step, len(tried))
		s.add(step, held, less)
	}
	return s, tried
}

func TestSearchFindsEveryEdge(t *testing.T) {
	for edge := -1; edge <= lastStep; edge++ {
		s, tried := searched(t, lastStep, func(step, _ int) (bool, bool) {
			return step <= edge, false
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
	_, quiet := searched(t, lastStep, func(step, _ int) (bool, bool) { return step <= edge, false })
	for bad := 1; bad <= len(quiet); bad++ {
		s, _ := searched(t, lastStep, func(step, n int) (bool, bool) {
			return step <= edge && n != bad, false
		})
		if s.held != edge {
			t.Errorf("disturbed in flood %d: held %d, want %d", bad, s.held, edge)
		}
	}
}

func TestSearchEndsWhereTheSenderDoes(t *testing.T) {
	const most = 72
	s, _ := searched(t, lastStep, func(step, _ int) (bool, bool) { return true, step > most })
	if !s.open() || s.held <= most || s.held > most+perOctave {
		t.Errorf("held %d, open %v", s.held, s.open())
	}
	// A sender that was disturbed once is not at its end, and has not lost what it sent.
	s, _ = searched(t, lastStep, func(step, n int) (bool, bool) { return step <= 60, n == 3 })
	if s.held != 60 || s.open() {
		t.Errorf("held %d, open %v", s.held, s.open())
	}
	// The service may be lost with all that the sender has.
	s, _ = searched(t, lastStep, func(step, _ int) (bool, bool) { return step <= 70, step > most })
	if s.held != 70 || s.open() {
		t.Errorf("held %d, open %v", s.held, s.open())
	}
	// All is asked for after a step that was held at less, and only then.
	s = newSearch(lastStep)
	s.add(firstStep, true, true)
	if step, all, more := s.next(); step != firstStep || !all || !more {
		t.Errorf("next %d, all %v", step, all)
	}
	s.add(firstStep, false, true)
	if _, all, _ := s.next(); !all {
		t.Error("one disturbed flood with all that there is was the last")
	}
	s.add(firstStep, false, true)
	if _, all, _ := s.next(); all || s.lost != firstStep {
		t.Errorf("lost %d, all %v", s.lost, all)
	}
}

func TestSearchStaysBelowTheRateThatWasAskedFor(t *testing.T) {
	for _, rate := range []float64{10e3, 40e3, 50e3, 1e6} {
		top := stepBelow(rate)
		s, tried := searched(t, top, func(int, int) (bool, bool) { return true, false })
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
