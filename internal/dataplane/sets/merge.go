package sets

import "time"

// A set of many prefixes answers from its bulk (prefix.Dynamic.Merge), which has to be built anew
// when much has changed. There is no daemon: the command that writes does it, aside, in a copy that
// takes the place of what programs read in one step. Nothing waits for it but that command and
// other writers.

// mergeShare is the part of a writer's time, 1 in so many, that may go to merges: a set is left
// alone for as many times as long as its last merge took.
const mergeShare = 10

// mergeDue merges those of the sets, which are held, for which it is time. That the set was changed
// is true without it, so a merge that fails is not told of; look-ups go on as they were.
func mergeDue(sets []*Set) {
	for _, s := range sets {
		for i, m := range s.Maps {
			if m.Due() && s.mergeAside(i) != nil {
				m.rest(time.Second)
			}
		}
	}
}

// mergeAside puts a merged copy in the place of the set's map number i.
func (s *Set) mergeAside(i int) error {
	begun := time.Now()
	next, err := s.Maps[i].aside()
	if err != nil {
		return err
	}
	w := swap{s, i, next}
	defer func() { w.next.Close() }() // what is not in force
	next.Merge()
	next.rest(time.Since(begun))
	return w.do()
}

// Settle merges a set that no program reads yet, if it is time.
func (s *Memory) Settle() {
	if begun := time.Now(); s.Due() {
		s.Merge()
		s.rest(time.Since(begun))
	}
}

// rest puts off the next merge for what one of that duration allows.
func (s *Memory) rest(took time.Duration) { s.Rest(s.Clock.Expiry(mergeShare * took)) }
