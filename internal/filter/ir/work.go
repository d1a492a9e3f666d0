package ir

import (
	"net/netip"
	"slices"

	"levee/internal/lang/bump"
	"levee/internal/lang/policy"
)

// work is what lowering a policy shares from rule to rule: memory for what it makes, room for what it is making, and what was
// asked before.
type work struct {
	conds    bump.Allocator[Cond]
	pairs    bump.Allocator[Pair]
	prefixes bump.Allocator[netip.Prefix]
	ranges   bump.Allocator[policy.Range]

	asked    []Cond         // scratch: of a match in a class
	listed   []Pair         // scratch
	gathered []netip.Prefix // scratch
	merged   []policy.Range // scratch

	// What terms on sets of endpoints that several rules name ask for in a class: equal questions share their lists,
	// which is how codegen knows them to be equal.
	answers map[answerKey]questions
	uses    map[*policy.Set]int // terms on each set of endpoints
}

func newWork(p *policy.Policy) *work {
	w := &work{answers: map[answerKey]questions{}, uses: map[*policy.Set]int{}}
	for _, rules := range [][]*policy.Rule{p.Protect, p.Rules} {
		for _, r := range rules {
			for i := range r.Match {
				if t := &r.Match[i]; t.Set != nil && (t.Field == policy.SrcEndpoint || t.Field == policy.DstEndpoint) {
					w.uses[t.Set]++
				}
			}
		}
	}
	return w
}

// questions are what a term asks in a class, and whether it has to be asked.
type questions struct {
	outcome outcome
	n       int
	conds   [3]Cond
}

// answer sets what is known without asking.
func (q *questions) answer(o outcome) { q.outcome, q.n = o, 0 }

// ask adds a question.
func (q *questions) ask(c Cond) {
	q.outcome = depends
	q.conds[q.n] = c
	q.n++
}

// lists are those that a match asks for in some class. Classes in which a list has the same elements have the same list,
// which is how they are known to ask the same.
type lists struct {
	pairs    few[Pair]
	prefixes few[netip.Prefix]
}

// few are lists; of more than there is room for, some are there more than once.
type few[T comparable] struct {
	lists [8][]T
	n     int
}

// keep gives a list that lies in scratch memory a place, or that of the same one.
func (f *few[T]) keep(s *bump.Allocator[T], list []T) []T {
	for _, known := range f.lists[:f.n] {
		if slices.Equal(known, list) {
			return known
		}
	}
	kept := s.Keep(list)
	if f.n < len(f.lists) {
		f.lists[f.n] = kept
		f.n++
	}
	return kept
}
