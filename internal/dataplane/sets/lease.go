package sets

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/filter/names"
	"levee/internal/filter/prefix"
	"levee/internal/lang/policy"
)

// OpenAll opens the dynamic sets of that name of every policy in this network namespace.
func OpenAll(ctx context.Context, name string) ([]*Set, error) { return openSets(ctx, "", name) }

// Dev returns the interface of the set.
func (s *Set) Dev() string { return s.dev }

// LeaseSlack is by how much two ends of a lease may differ that mean the same: ticks, and the time
// between reading two clocks.
const LeaseSlack = 500 * time.Millisecond

// Raise makes sure that the set holds the entries for at least their leases, which began at the
// time began. No lease becomes shorter. raised is how many entries were missing or had a shorter
// lease and now have theirs. A full set takes as many as it has room for; left is how many it did
// not take.
//
// Leases count from began, since a writer may wait for the set: an entry that lasts longer by that
// wait would count as leased by somebody else (see Lower).
func (s *Set) Raise(ctx context.Context, entries []Entry, began time.Time) (raised, left int,
	err error) {
	if err := s.Hold(ctx); err != nil {
		return 0, 0, err
	}
	defer s.Release()
	if err := s.check(entries); err != nil {
		return 0, 0, err
	}
	for _, m := range s.Maps { // asking for the time for each entry takes longer than all the rest
		m.Frozen = m.Clock.Now()
		defer func() { m.Frozen = 0 }()
	}
	passed := time.Since(began)
	entries = slices.Clone(entries)
	for i := range entries {
		entries[i].Lease = rest(entries[i].Lease, passed)
	}
	var missing []Entry
	for i, e := range entries {
		if i%Fetched == 0 {
			for _, m := range s.Maps {
				for _, f := range entries[i:min(i+Fetched, len(entries))] {
					m.Touch(f.Element())
				}
			}
		}
		if !s.lasts(e) {
			missing = append(missing, e)
		}
	}
	s.uncounted = true // parts that do not fit are tried in halves
	raised, err = addFitting([]*Set{s}, missing)
	s.uncounted = false
	if left = len(missing) - raised; err == nil && left > 0 {
		s.Maps[0].Refuse(uint64(left))
	}
	return raised, left, err
}

// rest returns what is left of a lease when a time has passed of it; one that has ended lasts for a
// moment, as 0 would be the lease of the set.
func rest(lease, passed time.Duration) time.Duration {
	if lease <= 0 { // of the set, or without an end
		return lease
	}
	return max(lease-passed, time.Millisecond)
}

// lasts tells whether an entry, or what it was rolled up to, is in all maps for as long as its
// lease. Time stands still.
func (s *Set) lasts(e Entry) bool {
	for _, m := range s.Maps {
		expires, ok := m.Get(e.Element())
		if cover, host := prefix.Cover(e.Prefix); !ok && s.rollUp && host {
			expires, ok = m.Get(policy.Element{Prefix: cover})
		}
		if !ok {
			return false
		}
		wanted := m.expires(e.Lease)
		if expires != 0 && (wanted == 0 || expires+m.Clock.Ticks(LeaseSlack) < wanted) {
			return false
		}
	}
	return true
}

// addFitting adds entries, halving them where they do not fit.
func addFitting(sets []*Set, entries []Entry) (added int, err error) {
	if len(entries) == 0 {
		return 0, nil
	}
	err = addAll(sets, entries)
	switch {
	case err == nil:
		return len(entries), nil
	case errors.Is(err, names.ErrLabels):
		return addByLabels(sets, entries)
	case !errors.Is(err, prefix.ErrFull):
		return 0, err
	case len(entries) == 1:
		return 0, nil
	}
	half := len(entries) / 2
	if added, err = addFitting(sets, entries[:half]); err != nil || added < half {
		return added, err
	}
	more, err := addFitting(sets, entries[half:])
	return added + more, err
}

// addByLabels adds names to a set that lacks room for some numbers of labels. It adds all names
// with one number of labels or none of them, those with few labels first. So names that an attacker
// chooses do not keep others out.
func addByLabels(sets []*Set, entries []Entry) (added int, err error) {
	parts := map[int][]Entry{}
	for _, e := range entries {
		p := patternOf(e.Element())
		n := 2 * p.Name.Labels()
		if p.Below {
			n++
		}
		parts[n] = append(parts[n], e)
	}
	if len(parts) == 1 {
		return 0, nil
	}
	for _, n := range slices.Sorted(maps.Keys(parts)) {
		more, err := addFitting(sets, parts[n])
		if added += more; err != nil {
			return added, err
		}
	}
	return added, nil
}

// Lowered is an entry whose lease ends sooner.
type Lowered struct {
	Entry               // with the new lease; 0: it leaves the set
	Was   time.Duration // the lease that it was given
}

// Lower shortens leases, which began at a time, or takes entries out, and says of how many. An
// entry whose lease is longer than it was given has been leased by somebody else since, and stays
// as it is.
func (s *Set) Lower(ctx context.Context, entries []Lowered, began time.Time) (lowered int,
	err error) {
	if err := s.Hold(ctx); err != nil {
		return 0, err
	}
	defer s.Release()
	passed := time.Since(began)
	for _, e := range entries {
		e.Lease, e.Was = rest(e.Lease, passed), rest(e.Was, passed)
		for i, m := range s.Maps {
			expires, ok := m.Get(e.Element())
			if !ok || e.Was != Forever && (expires == 0 ||
				m.left(expires) > e.Was+LeaseSlack) {
				continue
			}
			if e.Lease == 0 {
				m.Delete(e.Element())
			} else if err := m.AddEntry(e.Entry); err != nil {
				return lowered, err
			}
			if i == 0 {
				lowered++
			}
		}
	}
	return lowered, nil
}

// Leases returns what is left of the leases of entries, in their order: 0 for one that is not
// there.
func (s *Set) Leases(ctx context.Context, entries []Entry) ([]time.Duration, error) {
	if err := s.Hold(ctx); err != nil {
		return nil, err
	}
	defer s.Release()
	out := make([]time.Duration, len(entries))
	m := s.Maps[0]
	for i, e := range entries {
		if expires, ok := m.Get(e.Element()); ok {
			if out[i] = m.left(expires); expires != 0 && out[i] <= 0 {
				out[i] = 0
			}
		}
	}
	return out, nil
}

// PolicyState tells one policy in force from another. Live rules make no difference.
type PolicyState struct {
	Dev        string
	Index      int // of the interface, which stays when its name is another
	Generation int
	Program    uint32 // id; numbers of generations come again
}

// InForceHere lists what is in force in this network namespace, without counting anything.
func InForceHere(ctx context.Context) (out []PolicyState, err error) {
	err = store.Transact(ctx, func(s *store.Store) error {
		return generation.Sweep(s, "", func(a *attach.Attachment) error {
			l, err := a.Here()
			if l != nil {
				g := a.Base()
				out = append(out, PolicyState{l.Attrs().Name, a.Ifindex, g.Generation,
					g.Program})
			}
			return err
		})
	})
	return out, err
}
