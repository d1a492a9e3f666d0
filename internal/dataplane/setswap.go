package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"levee/internal/dataplane/store"
	"levee/internal/filter/endpoint"
	"levee/internal/filter/prefix"
	"levee/internal/lang/policy"
)

// inPlace is up to how many entries are added to what programs are reading, one after the other.
// More are added to a copy, which then takes the place of the original: copying costs less than
// they do, and packets see all of them at once.
const inPlace = 4096

// addAll adds entries to sets that are held: all to all, or, with an error, none.
func addAll(sets []*Set, entries []SetEntry) error {
	if len(entries) <= inPlace {
		if full, err := addInPlace(sets, entries); !full {
			if err == nil {
				mergeDue(sets)
			}
			return err
		}
	}
	return swapAll(sets, entries, func(m inForce) (*set, error) { return m.aside() })
}

// futile is how long a set that is full, and found nothing to roll up, refuses without looking
// again: that takes a copy of the set.
const futile = time.Second

func (s *Set) mayRollUp() bool { return s.rollUp && time.Since(s.noRoom) > futile }

// replaceAll makes sets that are held consist of these entries.
func replaceAll(sets []*Set, entries []SetEntry) error {
	return swapAll(sets, entries, func(m inForce) (*set, error) {
		next, err := m.empty()
		if err == nil {
			next.Refuse(m.Refused())
		}
		return next, err
	})
}

// swapAll adds the entries to what begin makes for each map, and puts the results in place of what
// is there.
func swapAll(sets []*Set, entries []SetEntry, begin func(inForce) (*set, error)) error {
	var swaps []swap
	defer func() {
		for _, w := range swaps {
			w.next.Close() // what is not in force
		}
	}()
	for _, s := range sets {
		for i := range s.maps {
			next, err := begin(s.maps[i])
			if err != nil {
				return fmt.Errorf("dynamic set %q on %s: %w; nothing was changed", s.name, s.dev,
					err)
			}
			swaps = append(swaps, swap{s, i, next})
			if err := s.fill(next, entries, i > 0); err != nil {
				return s.refused(s.maps[i].set, entries, err)
			}
			next.settle()
		}
	}
	for done := range swaps {
		if err := swaps[done].do(); err != nil {
			for i := range done {
				err = errors.Join(err, swaps[i].do()) // back
			}
			return err
		}
	}
	return nil
}

// refused says why entries were not added, and counts them if the set was full.
func (s *Set) refused(m *set, entries []SetEntry, err error) error {
	if errors.Is(err, prefix.ErrFull) {
		if !s.uncounted {
			m.Refuse(uint64(len(entries)))
		}
		s.noRoom = time.Now()
		err = fmt.Errorf("%w; raise max in the policy, delete entries or give them shorter leases",
			err)
	}
	return fmt.Errorf("dynamic set %q on %s (%d of max %d entries): %w; nothing was changed",
		s.name, s.dev, m.Len(), m.Max(), err)
}

// fetched is for how many entries memory is fetched together: more than a CPU has reads under way,
// and few enough that the first is still in the cache when the last has come.
const fetched = 32

// fill adds entries, rolling up where the policy says so. A set that is only returned to may be
// smaller, or hold entries of other sizes: it takes what it can.
func (s *Set) fill(next *set, entries []SetEntry, spare bool) error {
	// asking for the time twice for each entry takes longer than all the rest
	next.frozen = next.clock.Now()
	defer func() { next.frozen = 0 }()
	for i, e := range entries {
		if i%fetched == 0 {
			for _, f := range entries[i:min(i+fetched, len(entries))] {
				next.Touch(f.Element())
			}
		}
		err := next.add(e)
		for errors.Is(err, prefix.ErrFull) && s.rollUp && next.RollUp(s.spares) > 0 {
			err = next.add(e)
		}
		if spare && noRoom(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("entry %d of %d: %w", i+1, len(entries), err)
		}
	}
	return nil
}

// noRoom says whether an entry was refused for what is in the set already.
func noRoom(err error) bool {
	return errors.Is(err, prefix.ErrFull) || errors.Is(err, endpoint.ErrShapes)
}

// spares says whether rolling up must leave a prefix alone because a protect rule names an address
// in it.
func (s *Set) spares(cover netip.Prefix) bool {
	for _, p := range s.spared {
		if p.Overlaps(cover) {
			return true
		}
	}
	return false
}

func (s *set) add(e SetEntry) error { return s.Add(e.Element(), s.expires(e.Lease)) }

// swap is a set's map number i of which next is to take the place.
type swap struct {
	*Set
	i    int
	next *set
}

// do changes places; done once more it changes back. next is then what is not in force.
func (w *swap) do() error {
	if err := store.Step("swap set"); err != nil {
		return err
	}
	if err := w.writers.Bump(); err != nil {
		return err
	}
	w.serial = w.writers.Serial()
	m := &w.maps[w.i]
	for i, at := range m.places {
		if err := at.put(w.next.inner); err != nil {
			for _, done := range m.places[:i] {
				err = errors.Join(err, done.put(m.set.inner)) // back
			}
			return err
		}
	}
	m.set, w.next = w.next, m.set
	return nil
}

// undo is the state of an entry before a change.
type undo struct {
	m       *set
	entry   policy.Element
	expires uint64 // if had
	had     bool
}

// addInPlace adds entries to the maps that programs read; if one does not fit, it takes back what
// it has done; full says that rolling up may make room then. What a set of a policy to return to
// has no room for is left out there.
func addInPlace(sets []*Set, entries []SetEntry) (full bool, err error) {
	var done []undo
	for _, s := range sets {
		for i, m := range s.maps {
			for _, e := range entries {
				was, had := m.Get(e.Element())
				err := m.add(e)
				if i > 0 && noRoom(err) {
					continue
				}
				if errors.Is(err, prefix.ErrFull) && s.mayRollUp() {
					takeBack(done)
					return true, nil
				}
				if err != nil {
					takeBack(done)
					return false, s.refused(m.set, entries, err)
				}
				done = append(done, undo{m.set, e.Element(), was, had})
			}
		}
	}
	return false, nil
}

// takeBack undoes changes, the last first. There is room for what was there. An entry that was only
// renewed gets its lease back without leaving the set meanwhile: packets are being judged.
func takeBack(done []undo) {
	for _, u := range slices.Backward(done) {
		if u.had {
			_ = u.m.Add(u.entry, u.expires)
		} else {
			u.m.Delete(u.entry)
		}
	}
}
