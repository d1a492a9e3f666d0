package difftest

import (
	"math/rand/v2"

	"levee/internal/filter/oracle"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// Teller is an engine, or the oracle, that is told what the kernel tells of the frames that follow.
type Teller interface {
	Tell(f field.Field, v uint64)
	Untell()
}

// toldTogether is the number of frames of which the kernel tells the same.
const toldTogether = 16

// ofKernel returns the fields that the kernel tells.
func ofKernel() (all []field.Field) {
	for _, f := range field.Remembered() {
		if f.Info().Kernel != field.NoSide {
			all = append(all, f)
		}
	}
	return all
}

// asksKernel reports whether a side of a policy asks what the kernel tells.
func asksKernel(p *policy.Policy) bool {
	out := p.Leaving()
	return p.Asks(ofKernel()...) || out != nil && out.Asks(ofKernel()...)
}

// told returns a few terms on what the kernel tells, in one policy of four. They are drawn apart,
// and the rest of the policy is as it was without them.
func (g *generator) told() (terms []string) {
	if g.tell == nil || g.seed%4 != 3 || g.long() {
		return nil
	}
	for _, word := range []string{"reverse-path strict", "reverse-path loose"} {
		switch g.tell.IntN(16) {
		case 0:
			terms = append(terms, word)
		case 1, 2:
			terms = append(terms, "not "+word)
		}
	}
	return terms
}

// tellers returns the oracle and all engines, or nobody where one of them cannot be told.
func tellers(o *oracle.Evaluator, engines []Engine) []Teller {
	all := []Teller{o}
	for _, e := range engines {
		t, ok := e.(Teller)
		if !ok {
			return nil
		}
		all = append(all, t)
	}
	return all
}

// tellAll has the kernel tell something to all, or answer nothing.
func tellAll(r *rand.Rand, to ...Teller) {
	if len(to) == 0 {
		return
	}
	for _, t := range to {
		t.Untell()
	}
	for _, f := range ofKernel() {
		if r.IntN(4) == 0 {
			continue
		}
		v := r.Uint64N(f.Info().Max + 1)
		for _, t := range to {
			t.Tell(f, v)
		}
	}
}
