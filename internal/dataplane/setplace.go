package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

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

// sharedPlaces are the places of a program's sets that share maps, by name; nil if none do.
func sharedPlaces(p *codegen.Program) map[string]pinnedPlace {
	var out map[string]pinnedPlace
	for name, at := range p.Places {
		if !strings.HasPrefix(at.Map, codegen.SharedPrefix) {
			continue
		}
		if out == nil {
			out = map[string]pinnedPlace{}
		}
		out[name] = pinnedPlace{at.Map, at.Key}
	}
	return out
}

// placeOf says where a generation has a set.
func (d *description) placeOf(name string) pinnedPlace {
	if at, ok := d.Places[name]; ok {
		return at
	}
	return pinnedPlace{Map: codegen.SetPrefix + name}
}

// place is where the loaded program has a set.
func (l *loaded) place(p *codegen.Program, name string) place {
	at := p.Places[name]
	return place{l.maps[at.Map], at.Key}
}

// openPlace opens the map in which a generation has a set; that of the place is nil if it is gone.
func (s *store) openPlace(key string, g *description, name string) (place, error) {
	at := g.placeOf(name)
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

// keptSets are the sets of the policy in force, for the one that takes its place.
type keptSets struct {
	maps     map[string]*ebpf.Map // of their own, which stay the maps they are
	memories map[string]*ebpf.Map // by name of the set: where its map does not stay, but its shape does
	other    map[*policy.Set]place
	opened   map[string]*ebpf.Map // maps of the generation in force
}

func (k *keptSets) Close() {
	for _, maps := range []map[string]*ebpf.Map{k.opened, k.memories} {
		for _, m := range maps {
			m.Close()
		}
	}
}

// loadOverSets loads a program over the dynamic sets of the policy in force: a set of the same name and
// shape stays in the memory that it is in; of another shape, it gets the old entries.
func (u *up) loadOverSets(p *codegen.Program) (*loaded, error) {
	if err := step("load"); err != nil {
		return nil, unable(err)
	}
	k := &keptSets{map[string]*ebpf.Map{}, map[string]*ebpf.Map{}, map[*policy.Set]place{}, map[string]*ebpf.Map{}}
	defer k.Close()
	for _, ps := range p.Dynamic {
		if err := u.keepSet(k, p, ps); err != nil {
			return nil, err
		}
	}
	l, err := load(p, k.maps, k.memories)
	if err != nil {
		return nil, unable(err)
	}
	if err := step("sets"); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	for ps, old := range k.other {
		if err := copySet(ps, old, l.place(p, ps.Name)); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// keepSet finds the set of the policy in force that a new one continues, and decides how it is continued.
func (u *up) keepSet(k *keptSets, p *codegen.Program, ps *policy.Set) error {
	old, err := u.setInForce(k, ps)
	if err != nil || old.outer == nil {
		return err
	}
	s, err := openSet(old, ps.Name, ps.Type, ps.Lease)
	if err != nil {
		return err
	}
	defer s.Close()
	to := p.Places[ps.Name]
	spec := p.Spec.Maps[to.Map]
	// Where entries lie depends on the room itself; sizes may agree by chance.
	same := s.Max() == ps.Max && s.Room() == to.Room && s.inner.ValueSize() == spec.InnerMap.ValueSize
	own := to.Map == codegen.SetPrefix+ps.Name && k.opened[to.Map] == old.outer
	switch {
	case same && own && spec.Compatible(old.outer) == nil:
		k.maps[to.Map] = old.outer
	case same:
		if k.memories[ps.Name], err = s.inner.Clone(); err != nil {
			delete(k.memories, ps.Name)
			return kernel.Refuse(err, "keep the memory of dynamic set %q", ps.Name)
		}
	default:
		k.other[ps] = old
	}
	return nil
}

// setInForce is where the dynamic set of the policy in force is that a new one continues; its map is nil if there is none of that name and
// type: entries of another type are those of another set.
func (u *up) setInForce(k *keptSets, ps *policy.Set) (place, error) {
	if u.at == nil {
		return place{}, nil
	}
	g := u.at.current()
	if slices.ContainsFunc(g.Sets, func(info SetInfo) bool { return info.Name == ps.Name && info.EntryType() != ps.Type }) {
		return place{}, nil
	}
	at := g.placeOf(ps.Name)
	if m := k.opened[at.Map]; m != nil {
		return place{m, at.Key}, nil
	}
	m, err := u.openPinned(u.at.key, g.Generation, at.Map)
	if m != nil {
		k.opened[at.Map] = m
	}
	return place{m, at.Key}, err
}
