package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"levee/internal/dataplane/loader"
	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/host/local"
	"levee/internal/lang/policy"
)

// fillSelf makes `self` hold what the kernel delivers to this machine now. A policy in force that
// shares the set sees the same: it means the same by it. A shadow changes nothing that is in force.
// The caller keeps other writers out.
func (u *up) fillSelf(l *loader.Loaded, p *codegen.Program) error {
	for _, ps := range p.Dynamic {
		if !ps.Self || u.beside != nil && hasSet(u.at.Current(), ps) {
			continue
		}
		there, err := local.Prefixes()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(there, sets.Reachable) {
			u.Note("this machine has no address yet: nothing is `to self` before `levee up " +
				"--keep` or another `levee up` sees one")
		}
		if err := sets.RoomFor(ps.Name, ps.Max, there); err != nil {
			return err
		}
		if err := sets.FillWith(l.Place(p, ps.Name), ps, there); err != nil {
			return err
		}
	}
	return nil
}

// restore fills the sets that are new on this interface: sets with `keep` from their files, others
// with their initial entries in the policy. Entries that do not fit are left out with a warning,
// and a file that cannot be read is put aside: a policy without its kept entries is better than
// none.
func (u *up) restore(p *codegen.Program, l *loader.Loaded, k *inherited) error {
	for _, ps := range p.Dynamic {
		_, copied := k.copied[ps]
		if copied || k.memories[ps.Name] != nil {
			continue
		}
		if !ps.Keep {
			if err := u.fillNew(l, p, ps); err != nil {
				return err
			}
			continue
		}
		path, err := sets.KeptFile(u.Dev, ps.Name)
		if err != nil {
			return err
		}
		b, err := sets.ReadKept(path)
		if errors.Is(err, fs.ErrNotExist) {
			if err := u.fillNew(l, p, ps); err != nil {
				return err
			}
			continue
		}
		var entries []sets.Entry
		if err == nil {
			entries, err = sets.DecodeKept(b, ps.Type, ps.Max, time.Now())
		}
		if err == nil {
			err = sets.CheckEntries(entries, ps.Type)
		}
		if err != nil {
			u.Note("dynamic set %q begins empty, as its kept entries cannot be read: %s: %v; %s",
				ps.Name, path, err, sets.PutAside(path))
			continue
		}
		if err := u.fill(l.Place(p, ps.Name), ps, entries, "kept"); err != nil {
			return err
		}
	}
	return nil
}

// fillNew fills a new set with its initial entries.
func (u *up) fillNew(l *loader.Loaded, p *codegen.Program, ps *policy.Set) error {
	if len(ps.Begin) == 0 {
		return nil
	}
	entries := make([]sets.Entry, len(ps.Begin))
	for i, e := range ps.Begin {
		entries[i] = sets.EntryOf(e, 0) // the set's lease
	}
	return u.fill(l.Place(p, ps.Name), ps, entries, "first")
}

// fill puts entries of some kind into a set.
func (u *up) fill(at sets.Place, ps *policy.Set, entries []sets.Entry, kind string) error {
	m, err := sets.Access(at, ps.Name, ps.Type, ps.Lease)
	if err != nil {
		return err
	}
	defer m.Close()
	m.Frozen = m.Clock.Now()
	out := 0
	for i, e := range entries {
		if i%sets.Fetched == 0 {
			for _, f := range entries[i:min(i+sets.Fetched, len(entries))] {
				m.Touch(f.Element())
			}
		}
		err := m.AddEntry(e)
		if sets.NoRoom(err) {
			out++
		} else if err != nil {
			return fmt.Errorf("dynamic set %q: %s entry %s: %w", ps.Name, kind, e.Element(), err)
		}
	}
	m.Frozen = 0
	m.Settle()
	if out > 0 {
		u.Note("%d of %d %s entries of dynamic set %q have no room in it", out, len(entries), kind,
			ps.Name)
	}
	return nil
}
