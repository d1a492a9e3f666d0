package ir

import (
	"net/netip"
	"slices"

	"levee/internal/lang/bump"
	"levee/internal/lang/field"
	"levee/internal/lang/policy"
)

// work is the memory that lowering a policy shares from rule to rule: for results, for scratch, and
// for questions that were asked before.
type work struct {
	conds    bump.Allocator[Cond]
	pairs    bump.Allocator[Pair]
	prefixes bump.Allocator[netip.Prefix]
	ranges   bump.Allocator[field.Range]

	asked    []Cond         // scratch: of a match in a class
	listed   []Pair         // scratch
	gathered []netip.Prefix // scratch
	merged   []field.Range  // scratch
	given    []byFamily     // scratch

	// What terms on sets of endpoints that several rules name ask for in a class: equal questions
	// share their lists.
	answers map[answerKey]questions
	uses    map[*policy.Set]int // terms on each set of endpoints

	leaves    bool                     // the packets do
	questions QuestionsID              // the last that was given away
	list      ListID                   // likewise
	sets      map[*policy.Set]byFamily // lists of the sets of addresses
}

// byFamily are lists of the prefixes of each family, 0 where there is none yet.
type byFamily [IPv6 + 1]ListID

// nextList gives the number of a new list.
func (w *work) nextList() ListID {
	w.list++
	return w.list
}

// givenBy is room for the lists of the terms of a match.
func (w *work) givenBy(terms int) []byFamily {
	w.given = slices.Grow(w.given[:0], terms)[:terms]
	clear(w.given)
	return w.given
}

func newWork(p *policy.Policy) *work {
	w := &work{answers: map[answerKey]questions{}, uses: map[*policy.Set]int{},
		sets: map[*policy.Set]byFamily{}, leaves: p.Leaves()}
	count := func(match []policy.Term) {
		for i := range match {
			if t := &match[i]; t.Set != nil && isEndpoint(t.Field) {
				w.uses[t.Set]++
			}
		}
	}
	for _, rules := range [][]*policy.Rule{p.Protect, p.Rules} {
		for _, r := range rules {
			count(r.Match)
		}
	}
	for _, in := range p.Inners {
		count(in.Match)
	}
	return w
}

// questions holds the questions that a term becomes in a class, and whether they have to be asked.
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

// lists are those that a match asks for in some class. Classes in which a list has the same
// elements have the same list, which is how they are known to ask the same.
type lists struct {
	given    []byFamily // of the terms that have addresses of their own
	pairs    few[Pair]
	prefixes few[netip.Prefix]
}

// listOf returns the number of the addresses of a family in a term of the match, or in its set.
func (a *across) listOf(term int, f Family) ListID {
	set := a.match[term].Set
	known := a.lists.given[term]
	if set != nil {
		known = a.work.sets[set]
	}
	if known[f] == 0 {
		known[f] = a.work.nextList()
		if set != nil {
			a.work.sets[set] = known
		} else {
			a.lists.given[term] = known
		}
	}
	return known[f]
}

// few are lists; of more than there is room for, some are there more than once.
type few[T comparable] struct {
	lists [8][]T
	ids   [8]ListID
	n     int
}

// keep gives a list that lies in scratch memory a place and a number, or those of the same one.
func (f *few[T]) keep(w *work, s *bump.Allocator[T], list []T) ([]T, ListID) {
	for i, known := range f.lists[:f.n] {
		if slices.Equal(known, list) {
			return known, f.ids[i]
		}
	}
	kept, id := s.Keep(list), w.nextList()
	if f.n < len(f.lists) {
		f.lists[f.n], f.ids[f.n] = kept, id
		f.n++
	}
	return kept, id
}
