// Package enforce puts leased entries into the dynamic sets of the kernel, and knows whom no entry
// may hold.
//
// In go entries with leases by the name of their set, out comes how many of them the kernel did not
// hold. It never deletes an entry that it was not told to, and never makes a lease shorter that
// somebody else has given. It decides nothing about leases.
package enforce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gaissmai/bart"

	"levee/internal/dataplane/inspect"
	"levee/internal/dataplane/sets"
	"levee/internal/lang/policy"
)

// Kernel has the sets of this network namespace open, by name.
type Kernel struct {
	// Counted are the policies in force with their sets, by a look that begins when it is called.
	Counted func(context.Context) ([]inspect.Attachment, error)

	open map[string][]*sets.Set
}

// sets opens the sets of a name.
func (k *Kernel) sets(ctx context.Context, name string) ([]*sets.Set, error) {
	if s := k.open[name]; s != nil {
		return s, nil
	}
	s, err := sets.OpenAll(ctx, name)
	if err != nil {
		return nil, err
	}
	if k.open == nil {
		k.open = map[string][]*sets.Set{}
	}
	k.open[name] = s
	return s, nil
}

// Close closes the sets; whoever asks again opens them anew, as after a policy has come or gone.
func (k *Kernel) Close() {
	for _, sets := range k.open {
		for _, s := range sets {
			s.Close()
		}
	}
	clear(k.open)
}

// each runs fn for each set of a name. After an error the sets are opened anew the next time.
func (k *Kernel) each(ctx context.Context, name string, fn func(*sets.Set) error) error {
	sets, err := k.sets(ctx, name)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range sets {
		if err := fn(s); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		k.Close()
		return err
	}
	return nil
}

// Raise makes sure that all sets of a name hold the entries for their leases, which began at a
// time. raised is how many were missing in the one that lacked most, left how many found no room
// there.
func (k *Kernel) Raise(ctx context.Context, name string, entries []sets.Entry,
	began time.Time) (raised, left int, err error) {
	err = k.each(ctx, name, func(s *sets.Set) error {
		r, l, err := s.Raise(ctx, entries, began)
		raised, left = max(raised, r), max(left, l)
		return err
	})
	return raised, left, err
}

// Lower shortens leases, which began at a time, or takes entries out, in all sets of a name. Where
// no policy in force has such a set, nothing is left to do: a second look has to say so too.
func (k *Kernel) Lower(ctx context.Context, name string, entries []sets.Lowered,
	began time.Time) error {
	err := k.each(ctx, name, func(s *sets.Set) error {
		_, err := s.Lower(ctx, entries, began)
		return err
	})
	if !errors.Is(err, sets.ErrNoSet) {
		return err
	}
	all, lookErr := k.Counted(ctx)
	if lookErr != nil {
		return lookErr
	}
	for _, at := range all {
		for _, s := range at.Sets {
			if s.Name == name {
				return fmt.Errorf("%w, but the policy on %s has it", err, at.Dev)
			}
		}
	}
	return nil
}

// Leases returns what is left of the leases of entries in the first set of a name, in their order.
func (k *Kernel) Leases(ctx context.Context, name string, entries []sets.Entry) (
	out []sets.Entry, err error) {
	sets, err := k.sets(ctx, name)
	if err != nil {
		return nil, err
	}
	left, err := sets[0].Leases(ctx, entries)
	if err != nil {
		k.Close()
		return nil, err
	}
	for i, e := range entries {
		if e.Lease = left[i]; e.Lease != 0 {
			out = append(out, e)
		}
	}
	return out, nil
}

// Protected is the addresses that no entry may have.
type Protected struct {
	table bart.Lite
	why   []reason
	names []keptZones
}

type reason struct {
	prefix netip.Prefix
	text   string
}

// Add protects the addresses of a prefix, for a reason in words.
func (k *Protected) Add(p netip.Prefix, why string) {
	p = p.Masked()
	k.table.Insert(p)
	k.why = append(k.why, reason{p, why})
}

// AddProtected protects what the protect rules and the detectors of a policy name, and says which
// sets the rules ask whose entries only the kernel knows.
func (k *Protected) AddProtected(p *policy.Policy) (dynamic []string) {
	for _, r := range p.Protect {
		for _, t := range r.Match {
			if t.Not {
				continue
			}
			why := fmt.Sprintf("protected by %s:%d", p.File, r.Pos.Line)
			if t.Set != nil && t.Set.Kind == policy.Dynamic {
				dynamic = append(dynamic, t.Set.Name)
			}
			for _, a := range t.Addresses() {
				k.Add(a, why)
			}
			for _, e := range t.Endpoints() {
				k.Add(e.Prefix, why)
			}
		}
	}
	for _, d := range p.Detects {
		for _, a := range d.Keep {
			k.Add(a, fmt.Sprintf("kept by detector %q of %s", d.Name, p.File))
		}
	}
	return dynamic
}

// Refuses says why a prefix may be no entry, "" if it may.
func (k *Protected) Refuses(p netip.Prefix) string {
	switch a := p.Addr(); {
	case a.IsUnspecified(), a.IsLoopback(), a.IsMulticast(),
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "no host has this address"
	case !k.table.OverlapsPrefix(p):
		return ""
	}
	for _, r := range k.why {
		if r.prefix.Overlaps(p) {
			return r.text
		}
	}
	return "kept"
}
