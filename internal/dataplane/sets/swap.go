package sets

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"levee/internal/filter/endpoint"
	"levee/internal/filter/names"
	"levee/internal/filter/prefix"
	"levee/internal/lang/policy"
)

// inPlace is up to how many entries are added to what programs are reading, one after the other.
// More are added to a copy, which then takes the place of the original: copying costs less than
// they do, and packets see all of them at once.
const inPlace = 4096

// addAll adds entries to sets that are held: all to all, or, with an error, none.
func addAll(sets []*Set, entries []Entry) error {
	if len(entries) <= inPlace {
		if full, err := AddInPlace(sets, entries); !full {
			if err == nil {
				mergeDue(sets)
			}
			return err
		}
	}
	return swapAll(sets, entries, func(m InForce) (*Memory, error) { return m.aside() })
}

// futile is the time for which a set that is full, and found nothing to roll up, refuses without
// looking again: that takes a copy of the set.
const futile = time.Second

func (s *Set) mayRollUp() bool { return s.rollUp && time.Since(s.NoRoom) > futile }

// replaceAll makes sets that are held consist of these entries.
func replaceAll(sets []*Set, entries []Entry) error {
	return swapAll(sets, entries, func(m InForce) (*Memory, error) {
		next, err := m.empty()
		if err == nil {
			next.Refuse(m.Refused())
		}
		return next, err
	})
}

// swapAll adds the entries to what begin makes for each map, and puts the results in place of what
// is there.
func swapAll(sets []*Set, entries []Entry, begin func(InForce) (*Memory, error)) error {
	var swaps []swap
	defer func() {
		for _, w := range swaps {
			w.next.Close() // what is not in force
		}
	}()
	for _, s := range sets {
		for i := range s.Maps {
			next, err := begin(s.Maps[i])
			if err != nil {
				return fmt.Errorf("dynamic set %q on %s: %w; nothing was changed", s.Name, s.dev,
					err)
			}
			swaps = append(swaps, swap{s, i, next})
			if err := s.Fill(next, entries, i > 0); err != nil {
				return s.refused(s.Maps[i].Memory, entries, err)
			}
			next.Settle()
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
func (s *Set) refused(m *Memory, entries []Entry, err error) error {
	if errors.Is(err, prefix.ErrFull) {
		if !s.uncounted {
			m.Refuse(uint64(len(entries)))
		}
		s.NoRoom = time.Now()
		err = fmt.Errorf("%w; raise max in the policy, delete entries or give them shorter leases",
			err)
	}
	return fmt.Errorf("dynamic set %q on %s (%d of max %d entries): %w; nothing was changed",
		s.Name, s.dev, m.Len(), m.Max(), err)
}

// Fetched is for how many entries memory is fetched together: more than a CPU has reads under way,
// and few enough that the first is still in the cache when the last has come.
const Fetched = 32

// Fill adds entries, rolling up where the policy says so. A set that is only returned to may be
// smaller, or hold entries of other sizes: it takes what it can.
func (s *Set) Fill(next *Memory, entries []Entry, spare bool) error {
	// asking for the time twice for each entry takes longer than all the rest
	next.Frozen = next.Clock.Now()
	defer func() { next.Frozen = 0 }()
	for i, e := range entries {
		if i%Fetched == 0 {
			for _, f := range entries[i:min(i+Fetched, len(entries))] {
				next.Touch(f.Element())
			}
		}
		err := next.AddEntry(e)
		for errors.Is(err, prefix.ErrFull) && s.rollUp && next.RollUp(s.spares) > 0 {
			err = next.AddEntry(e)
		}
		if spare && NoRoom(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("entry %d of %d: %w", i+1, len(entries), err)
		}
	}
	return nil
}

// NoRoom says whether an entry was refused for what is in the set already.
func NoRoom(err error) bool {
	return errors.Is(err, prefix.ErrFull) || errors.Is(err, endpoint.ErrShapes) ||
		errors.Is(err, names.ErrLabels)
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

func (s *Memory) AddEntry(e Entry) error { return s.Add(e.Element(), s.expires(e.Lease)) }

// swap is a set's map number i of which next is to take the place.
type swap struct {
	*Set
	i    int
	next *Memory
}

// do changes places; done once more it changes back. next is then what is not in force.
func (w *swap) do() error {
	if err := w.Maps[w.i].Places[0].steps.Step("swap set"); err != nil {
		return err
	}
	if err := w.Writers.Bump(); err != nil {
		return err
	}
	w.serial = w.Writers.Serial()
	m := &w.Maps[w.i]
	for i, at := range m.Places {
		if err := at.put(w.next.Inner); err != nil {
			for _, done := range m.Places[:i] {
				err = errors.Join(err, done.put(m.Memory.Inner)) // back
			}
			return err
		}
	}
	m.Memory, w.next = w.next, m.Memory
	return nil
}

// undo is the state of an entry before a change.
type undo struct {
	m       *Memory
	entry   policy.Element
	expires uint64 // if had
	had     bool
}

// AddInPlace adds entries to the maps that programs read; if one does not fit, it takes back what
// it has done; full says that rolling up may make room then. What a set of a policy to return to
// has no room for is left out there.
func AddInPlace(sets []*Set, entries []Entry) (full bool, err error) {
	var done []undo
	for _, s := range sets {
		for i, m := range s.Maps {
			for _, e := range entries {
				was, had := m.Get(e.Element())
				err := m.AddEntry(e)
				if i > 0 && NoRoom(err) {
					continue
				}
				if errors.Is(err, prefix.ErrFull) && s.mayRollUp() {
					takeBack(done)
					return true, nil
				}
				if err != nil {
					takeBack(done)
					return false, s.refused(m.Memory, entries, err)
				}
				done = append(done, undo{m.Memory, e.Element(), was, had})
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
