package sets

import (
	"cmp"
	"io/fs"
	"slices"

	"levee/internal/dataplane/attach"
	"levee/internal/dataplane/generation"
	"levee/internal/dataplane/store"
	"levee/internal/kernel"
)

// readSets is SetList for a reader.
func readSets(s *store.Store, dev, name string) (out []Contents, err error) {
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
				set, err := CopyOf(s, a.Key, g, info)
				if err != nil {
					return err
				}
				out = append(out, Contents{g.Dev, info.EntryType(),
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

// CopyOf returns a copy of a set, in memory of this process.
func CopyOf(s *store.Store, key string, g *store.Description, info store.SetInfo) (*Memory, error) {
	at, err := OpenPlace(s, key, g, info.Name)
	if err != nil {
		return nil, err
	}
	if at.Outer == nil {
		return nil, kernel.Refuse(fs.ErrNotExist, "open the map of dynamic set %q on %s", info.Name,
			g.Dev)
	}
	defer at.Outer.Close()
	inner, err := at.memory()
	if err != nil {
		return nil, err
	}
	defer inner.Close()
	mem, err := store.CopyOfMap(inner)
	if err != nil {
		return nil, err
	}
	c := &Memory{Name: info.Name, Typ: info.EntryType(), Clock: s.Clock, Mem: mem}
	return c, c.OpenTable()
}

// entries lists the live entries of a set, in no order.
func (s *Memory) entries() []Entry {
	now := s.Now()
	s.Expire(now)
	out := make([]Entry, 0, s.Len())
	for e, expires := range s.All() {
		out = append(out, EntryOf(e, s.left(expires)))
	}
	return out
}

// sortedEntries puts entries in order: IPv4 before IPv6, by address, protocol and port; names by
// their text.
func sortedEntries(entries []Entry) []Entry {
	slices.SortFunc(entries, compareEntries)
	return entries
}

func compareEntries(a, b Entry) int {
	if a.Name != "" || b.Name != "" { // to compare what is no prefix takes long
		return cmp.Compare(a.Name, b.Name)
	}
	if c := a.Prefix.Compare(b.Prefix); c != 0 {
		return c
	}
	return a.Service.Compare(b.Service)
}
