package dataplane

import (
	"io/fs"
	"slices"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// readSets is SetList for a reader.
func readSets(s *store.Store, dev, name string) (out []SetContents, err error) {
	var known []string
	err = generation.Steady(func() error {
		out, known = nil, nil
		return generation.ReadEach(s, false, func(a *attach.Attachment) error {
			g := a.Current()
			for _, info := range g.Sets {
				known = append(known, info.Name)
				if info.Name != name || dev != "" && g.Dev != dev {
					continue
				}
				set, err := copyOf(s, a.Key, g, info)
				if err != nil {
					return err
				}
				out = append(out, SetContents{g.Dev, info.EntryType(),
					sortedEntries(set.entries())})
			}
			return nil
		})
	})
	if err == nil && len(out) == 0 {
		err = noSet(dev, name, known)
	}
	return out, err
}

// copyOf is a copy of a set, in memory of this process.
func copyOf(s *store.Store, key string, g *store.Description, info store.SetInfo) (*set, error) {
	at, err := openPlace(s, key, g, info.Name)
	if err != nil {
		return nil, err
	}
	if at.outer == nil {
		return nil, kernel.Refuse(fs.ErrNotExist, "open the map of dynamic set %q on %s", info.Name,
			g.Dev)
	}
	defer at.outer.Close()
	inner, err := at.memory()
	if err != nil {
		return nil, err
	}
	defer inner.Close()
	mem, err := store.CopyOfMap(inner)
	if err != nil {
		return nil, err
	}
	c := &set{name: info.Name, typ: info.EntryType(), clock: s.Clock, mem: mem}
	return c, c.openTable()
}

// entries lists the live entries of a set, in no order.
func (s *set) entries() []SetEntry {
	now := s.now()
	s.Expire(now)
	out := make([]SetEntry, 0, s.Len())
	for e, expires := range s.All() {
		out = append(out, SetEntry{e.Prefix, e.Service, s.left(expires)})
	}
	return out
}

// sortedEntries puts entries in order: IPv4 before IPv6, by address, protocol and port.
func sortedEntries(entries []SetEntry) []SetEntry {
	slices.SortFunc(entries, compareEntries)
	return entries
}

func compareEntries(a, b SetEntry) int {
	if c := a.Prefix.Compare(b.Prefix); c != 0 {
		return c
	}
	return a.Service.Compare(b.Service)
}
