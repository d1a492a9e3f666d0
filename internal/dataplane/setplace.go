package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/filter/codegen"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// place is where programs find the memory of a dynamic set: an entry of an array of maps.
type place struct {
	outer *ebpf.Map
	key   uint32
}

// pinnedPlace is a place by the name of its map's pin.
type pinnedPlace struct {
	Map string `json:"map"`
	Key uint32 `json:"key"`
}

// pinnedPlaces are the places of a program's sets, by name.
func pinnedPlaces(p *codegen.Program) map[string]pinnedPlace {
	out := make(map[string]pinnedPlace, len(p.Places))
	for name, at := range p.Places {
		out[name] = pinnedPlace{at.Map, at.Key}
	}
	return out
}

// place is where the loaded program has a set.
func (l *loaded) place(p *codegen.Program, name string) place {
	at := p.Places[name]
	return place{l.maps[at.Map], at.Key}
}

// openPlace opens the map in which a generation has a set; that of the place is nil if it is gone.
func (s *store) openPlace(key string, g *description, name string) (place, error) {
	at := g.Places[name]
	m, err := s.openPinned(key, g.Generation, at.Map)
	return place{m, at.Key}, err
}

// openPinned opens a map of a generation, nil if it has none of that name.
func (s *store) openPinned(key string, generation int, name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(s.pins(key, generation), name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, kernel.Refuse(err, "open the pinned map %s", name)
	}
	return m, nil
}

// sameMap says whether two handles are of one map.
func sameMap(a, b *ebpf.Map) (bool, error) {
	var ids [2]ebpf.MapID
	for i, m := range []*ebpf.Map{a, b} {
		info, err := m.Info()
		if err != nil {
			return false, kernel.Refuse(err, "ask the kernel about a map of dynamic sets")
		}
		ids[i], _ = info.ID()
	}
	return ids[0] == ids[1], nil
}

// atOnce is how many memories are put into a map that sets share with one call, which waits once for the programs that may use it.
const atOnce = 128

// placeSets gives the sets of a program their memory: one of memories, or a new one. Maps of replace have theirs.
func placeSets(p *codegen.Program, l *loaded, replace, memories map[string]*ebpf.Map) error {
	in := map[string][]*policy.Set{}
	for _, ps := range p.Dynamic {
		name := p.Places[ps.Name].Map
		if l.maps[name] == nil {
			return fmt.Errorf("load program: it has no map for dynamic set %q", ps.Name)
		}
		if replace[name] == nil {
			in[name] = append(in[name], ps)
		}
	}
	for _, sets := range in {
		for some := range slices.Chunk(sets, atOnce) {
			if err := putSets(p, l, some, memories); err != nil {
				return err
			}
		}
	}
	return nil
}

// putSets gives sets that share a map, or one that has a map of its own, their memory.
func putSets(p *codegen.Program, l *loaded, sets []*policy.Set, memories map[string]*ebpf.Map) error {
	var keys, handles []uint32
	for _, ps := range sets {
		at := p.Places[ps.Name]
		m := memories[ps.Name]
		if m == nil {
			s, err := newMemory(ps.Name, ps.Type, ps.Max, at.Room, ps.Lease)
			if err != nil {
				return err
			}
			defer s.Close()
			m = s.inner
		}
		keys, handles = append(keys, at.Key), append(handles, uint32(m.FD()))
	}
	outer := l.maps[p.Places[sets[0].Name].Map]
	var err error
	if len(keys) > 1 {
		_, err = outer.BatchUpdate(keys, handles, nil)
	}
	if len(keys) == 1 || errors.Is(err, ebpf.ErrNotSupported) { // batches of maps: Linux 5.16
		for i := range keys {
			if err = outer.Put(keys[i], handles[i]); err != nil {
				break
			}
		}
	}
	if err != nil {
		return kernel.Refuse(err, "put the memory of %d dynamic sets, %q the first, in place", len(sets), sets[0].Name)
	}
	return nil
}
