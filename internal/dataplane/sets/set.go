package sets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// Set is a dynamic set of one attached policy, open for many changes: about a microsecond each. It
// follows its policy through replaces by other commands. It may be used concurrently.
type Set struct {
	dev, Name string

	mu      sync.Mutex
	Writers *store.Writers
	serial  int64
	// of the policy in force and, during a trial, of the one to return to if it has other memory
	Maps   []InForce
	typ    policy.SetType
	rollUp bool
	spared []netip.Prefix // never covered by rolling up
	NoRoom time.Time      // when rolling up last made no room

	uncounted bool // what is refused is counted by who adds
}

// InForce is a set with the places in which programs find it: one, or, where during a trial the
// policy to return to has it in another map, two.
type InForce struct {
	*Memory
	Places []Place
}

func (m InForce) Close() error {
	err := m.Memory.Close()
	for _, at := range m.Places {
		err = errors.Join(err, at.Outer.Close())
	}
	return err
}

// ErrNoSet is wrapped when no attached policy has a dynamic set of that name.
var ErrNoSet = errors.New("no such dynamic set")

// Open opens a dynamic set of the policy on dev.
func Open(ctx context.Context, dev, name string) (*Set, error) {
	sets, err := openSets(ctx, dev, name)
	if err != nil {
		return nil, err
	}
	return sets[0], nil
}

// openSets opens the sets of that name on dev, which may stand for a service (store.Service), or on
// every interface of this network namespace that has one if dev is "".
func openSets(ctx context.Context, dev, name string) ([]*Set, error) {
	if service, ok := store.ServiceNamed(dev); ok {
		return openOfService(ctx, service, name)
	}
	var out []*Set
	var known []string
	err := store.Transact(ctx, func(s *store.Store) error {
		visit := func(a *attach.Attachment) error {
			l, err := a.Here()
			if l == nil || err != nil {
				return err
			}
			for _, info := range a.Current().Sets {
				known = append(known, info.Name)
			}
			set, err := OpenSetOf(s, a, name)
			if set != nil {
				set.dev = l.Attrs().Name // it may have been renamed since
				out = append(out, set)
			}
			return err
		}
		if dev == "" {
			return generation.Sweep(s, "", visit)
		}
		a, err := generation.Find(s, dev)
		if err != nil {
			return err
		}
		own := a.Together()
		if own == "" {
			defer a.Close()
			return visit(a)
		}
		a.Close()
		return generation.Sweep(s, "", func(a *attach.Attachment) error { // the sets of all are one
			if a.Together() != own {
				return nil
			}
			return visit(a)
		})
	})
	if err == nil && len(out) == 0 {
		err = noSet(dev, name, known)
	}
	if err != nil {
		for _, s := range out {
			s.Close()
		}
		return nil, err
	}
	return out, nil
}

func noSet(dev, name string, known []string) error {
	where := "in this network namespace"
	if dev != "" {
		where = "on " + dev
	}
	if len(known) == 0 {
		return fmt.Errorf("%w: no policy %s has a dynamic set (%q was asked for)", ErrNoSet, where,
			name)
	}
	slices.Sort(known)
	return fmt.Errorf("%w: %q; the policy %s has %s", ErrNoSet, name, where,
		strings.Join(slices.Compact(known), ", "))
}

// OpenSetOf opens the maps of a set of an attachment, nil if it has none of that name.
func OpenSetOf(s *store.Store, a *attach.Attachment, name string) (_ *Set, err error) {
	out := &Set{dev: a.Current().Dev, Name: name}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	if !slices.ContainsFunc(a.Current().Sets,
		func(info store.SetInfo) bool { return info.Name == name }) {
		return nil, nil
	}
	if out.Writers, err = s.OpenWriters(a.Key); err != nil {
		return nil, err
	}
	// A writer that puts other memory in place holds this lock meanwhile.
	if err := out.Writers.Lock(s.Ctx); err != nil {
		return nil, err
	}
	defer out.Writers.Unlock()
	out.serial = out.Writers.Serial()
	for i, n := range a.Needed() {
		g := a.Generations[n]
		at := slices.IndexFunc(g.Sets, func(info store.SetInfo) bool { return info.Name == name })
		// the policy to return to may have another set of that name
		if at < 0 || g.Sets[at].EntryType() != a.Current().TypeOf(name) {
			continue
		}
		if err := out.openIn(s, a.Key, g, g.Sets[at]); err != nil {
			return nil, err
		}
		if i == 0 {
			out.typ = g.Sets[at].EntryType()
			out.rollUp = g.Sets[at].RollUp
			out.spared = g.Spared
		}
	}
	return out, nil
}

// openIn opens the set where a generation has it.
func (s *Set) openIn(st *store.Store, key string, g *store.Description, info store.SetInfo) error {
	at, err := OpenPlace(st, key, g, info.Name)
	if err != nil {
		return err
	}
	if at.Outer == nil {
		return kernel.Refuse(nil,
			"the map of dynamic set %q on %s is gone; `levee up` makes it anew", info.Name, s.dev)
	}
	for i := range s.Maps {
		for _, p := range s.Maps[i].Places {
			// A shadow has the map of the policy in force. What is pinned beside it may be memory
			// from before a merge, and opening the other by its number takes CAP_SYS_ADMIN.
			if same, err := store.SameMap(p.Outer, at.Outer); same || err != nil {
				return errors.Join(err, at.Outer.Close())
			}
		}
	}
	opened, err := Access(at, info.Name, info.EntryType(), info.Lease)
	if err != nil {
		return errors.Join(err, at.Outer.Close())
	}
	for i := range s.Maps {
		m := &s.Maps[i]
		same, err := store.SameMap(m.Inner, opened.Inner)
		if err != nil {
			return errors.Join(err, opened.Close(), at.Outer.Close())
		}
		if !same {
			continue
		}
		if err := opened.Close(); err != nil {
			return errors.Join(err, at.Outer.Close())
		}
		m.Places = append(m.Places, at)
		return nil
	}
	s.Maps = append(s.Maps, InForce{opened, []Place{at}})
	return nil
}

// Close ends the use of the set; its entries stay.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, m := range s.Maps {
		errs = append(errs, m.Close())
	}
	s.Maps = nil
	if s.Writers != nil {
		errs = append(errs, s.Writers.F.Close())
		s.Writers = nil
	}
	return errors.Join(errs...)
}

// Hold locks the set, at the maps that are in force now, or gives up when ctx ends while another
// writer has it. The caller releases.
func (s *Set) Hold(ctx context.Context) error {
	for {
		held, err := s.tryHold(ctx)
		if held || err != nil {
			return err
		}
		if err := s.reopen(ctx); err != nil {
			return err
		}
	}
}

// tryHold locks the set unless other maps than those that it has open may be in force.
func (s *Set) tryHold(ctx context.Context) (held bool, err error) {
	s.mu.Lock()
	defer func() {
		if !held {
			s.mu.Unlock()
		}
	}()
	if s.Writers == nil {
		return false, fmt.Errorf("dynamic set %q is closed: %w", s.Name, os.ErrClosed)
	}
	if err := s.Writers.Lock(ctx); err != nil {
		return false, err
	}
	if s.Writers.Serial() != s.serial {
		s.Writers.Unlock()
		return false, nil
	}
	for _, m := range s.Maps {
		m.Mend() // after another process that was killed in the middle of a change
	}
	return true, nil
}

// reopen opens the maps that are in force now. It takes the lock of the runtime directory, which
// comes before those of sets: the caller holds none of them.
func (s *Set) reopen(ctx context.Context) error {
	all, err := openSets(ctx, s.dev, s.Name)
	if err != nil {
		return err
	}
	fresh := all[0]
	for _, other := range all { // of interfaces that have the policy as one
		if other.dev == s.dev {
			fresh = other
		}
	}
	for _, other := range all {
		defer other.Close() // of fresh: what s had open
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Maps, fresh.Maps = fresh.Maps, s.Maps
	s.typ, s.rollUp, s.spared = fresh.typ, fresh.rollUp, fresh.spared
	s.Writers, fresh.Writers = fresh.Writers, s.Writers
	s.serial = fresh.serial
	return nil
}

func (s *Set) Release() {
	s.Writers.Unlock()
	s.mu.Unlock()
}

// Add puts entries into the set, or renews those that are there: all of them, or, with an error,
// none. A full set gives an error that matches prefix.ErrFull, and counts the entries as refused,
// unless its policy says rollup (see prefix.Dynamic.RollUp). Many entries at once become visible to
// packets in one step.
func (s *Set) Add(ctx context.Context, entries ...Entry) error {
	if err := s.Hold(ctx); err != nil {
		return err
	}
	defer s.Release()
	if err := s.check(entries); err != nil {
		return err
	}
	return addAll([]*Set{s}, entries)
}

// Replace makes the set hold exactly these entries, in one step for packets: each look-up sees the
// whole of what was there before or the whole of what is there then. Of two entries for one prefix
// the later counts. With an error nothing has changed.
func (s *Set) Replace(ctx context.Context, entries []Entry) error {
	if err := s.Hold(ctx); err != nil {
		return err
	}
	defer s.Release()
	if err := s.check(entries); err != nil {
		return err
	}
	return replaceAll([]*Set{s}, entries)
}

// Delete takes prefixes out of a set of addresses and says how many were there.
func (s *Set) Delete(ctx context.Context, prefixes ...netip.Prefix) (int, error) {
	elements := make([]policy.Element, len(prefixes))
	for i, p := range prefixes {
		elements[i].Prefix = p
	}
	return s.Remove(ctx, elements...)
}

// Remove takes entries out of the set and says how many were there.
func (s *Set) Remove(ctx context.Context, elements ...policy.Element) (int, error) {
	if err := s.Hold(ctx); err != nil {
		return 0, err
	}
	defer s.Release()
	if err := s.checkElements(elements); err != nil {
		return 0, err
	}
	n := s.remove(elements)
	mergeDue([]*Set{s})
	return n, nil
}

// checkElements says what keeps elements from being entries of the set, which is held.
func (s *Set) checkElements(elements []policy.Element) error {
	for i, e := range elements {
		if err := CheckEntry(e, s.typ); err != nil {
			return fmt.Errorf("dynamic set %q: entry %d: %w; nothing was changed", s.Name, i+1, err)
		}
	}
	return nil
}

// remove takes entries out of the set, which is held, and says how many were there.
func (s *Set) remove(elements []policy.Element) (n int) {
	for i, m := range s.Maps {
		for _, e := range elements {
			if m.Delete(e) && i == 0 {
				n++
			}
		}
	}
	return n
}

// List returns the set's entries, IPv4 before IPv6, in order of address, protocol and port.
func (s *Set) List(ctx context.Context) ([]Entry, error) {
	if err := s.Hold(ctx); err != nil {
		return nil, err
	}
	out := s.Maps[0].entries()
	s.Release() // before sorting, which takes longer
	return sortedEntries(out), nil
}

// Entries returns what a dynamic set of the policy on dev holds: nothing if there is no such policy
// or set.
func Entries(ctx context.Context, dev, name string) ([]Entry, error) {
	s, err := Open(ctx, dev, name)
	switch {
	case errors.Is(err, ErrNoSet), errors.As(err, new(*generation.NotAttachedError)),
		errors.As(err, new(*generation.NoServiceError)):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer s.Close()
	return s.List(ctx)
}

// Type returns what the entries of the set are: addresses, services, endpoints or names.
func (s *Set) Type() policy.SetType {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.typ
}

// TypeOf returns the type of the dynamic set of that name, chosen as by Add: of the first, where
// several interfaces have one.
func TypeOf(ctx context.Context, dev, name string) (policy.SetType, error) {
	all, err := openSets(ctx, dev, name)
	if err != nil {
		return policy.Addresses, err
	}
	for _, s := range all {
		defer s.Close()
	}
	return all[0].typ, nil
}

// check says what keeps entries from being those of the set, which is held.
func (s *Set) check(entries []Entry) error {
	if err := CheckEntries(entries, s.typ); err != nil {
		return fmt.Errorf("dynamic set %q: %w; nothing was changed", s.Name, err)
	}
	return nil
}

func CheckEntries(entries []Entry, t policy.SetType) error {
	for i, e := range entries {
		err := CheckEntry(e.Element(), t)
		if err == nil && e.Lease < 0 && e.Lease != Forever {
			err = fmt.Errorf("%v: a lease of %v", e.Element(), e.Lease)
		}
		if err != nil {
			return fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return nil
}
