package demo

import "math"

// Floods are tried at rates in steps of an eighth of an octave, 9 %, from LowestRate on, upwards
// from firstStep.
const (
	LowestRate = 10e3 // packets a second
	perOctave  = 8
	firstStep  = 5 * perOctave  // 320,000 a second
	lastStep   = 11 * perOctave // 20 million a second
)

// rateOf returns the rate of a step in packets a second.
func rateOf(step int) float64 { return LowestRate * math.Exp2(float64(step)/perOctave) }

// stepBelow returns the highest step that is not above a rate.
func stepBelow(rate float64) int {
	step := int(math.Floor(math.Log2(rate/LowestRate)*perOctave + 1e-9))
	return min(max(step, 0), lastStep)
}

// search looks for the highest rate at which a service is held. It doubles the rate until the
// service is not held, and then halves what is between. A rate is lost once it was not held, or not
// sent, twice in a row: a neighbour on the machine disturbs now and then one flood. Where the
// sender keeps no pace and nothing was lost before, it is asked for all that it has: what is held
// then is the end.
type search struct {
	top    int  // the highest step to try
	held   int  // the highest step that was sent and held, -1 for none
	lost   int  // the lowest step that was not, top+1 for none
	again  int  // the step to try again, -1 for none
	failed bool // again was not held, or not sent
	all    bool // again is to be tried with all that the sender has
	capped bool // held was all that the sender has
}

func newSearch(top int) *search { return &search{top: top, held: -1, lost: top + 1, again: -1} }

// next returns the step to try, if any is left, and whether with all that the sender has.
func (s *search) next() (step int, all, more bool) {
	switch {
	case s.again >= 0:
		return s.again, s.all, true
	case s.capped || s.lost-s.held <= 1:
		return 0, false, false
	case s.lost > s.top:
		return min(max(s.held+perOctave, firstStep), s.top), false, true
	}
	return (s.held + s.lost) / 2, false, true
}

// add takes the outcome of a step that next has named: whether the service was held, and the step
// that was sent.
func (s *search) add(step int, held bool, sent int) {
	if held {
		s.held = max(s.held, sent)
	}
	less := sent < step
	switch {
	case held && s.all:
		s.capped = less
	case held && less && s.lost > s.top:
		s.again, s.failed, s.all = step, false, true
		return
	case held && !less:
	case !s.failed:
		s.again, s.failed = step, true
		return
	case s.all:
		s.lost = min(max(step, sent), s.top)
	default:
		s.lost = step
	}
	s.again, s.failed, s.all = -1, false, false
}

// open tells that a higher rate may have been held: none was tried that was not.
func (s *search) open() bool { return s.held >= 0 && s.lost > s.top }
