package loader

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/sets"
	"levee/internal/filter/codegen"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// Place returns where the loaded program has a set.
func (l *Loaded) Place(p *codegen.Program, name string) sets.Place {
	at := p.Places[name]
	return sets.Place{Outer: l.Maps[at.Map], Key: at.Key, Name: name, Inner: l.Memories[name]}
}

// placeSets gives the sets of a program their memory: one of memories, or a new one. Maps of
// replace have theirs, of which memories has handles.
func placeSets(p *codegen.Program, l *Loaded, replace, memories map[string]*ebpf.Map) error {
	for name, m := range memories {
		own, err := m.Clone()
		if err != nil {
			return kernel.Refuse(err, "keep the memory of dynamic set %q", name)
		}
		l.Memories[name] = own
	}
	in := map[string][]*policy.Set{}
	for _, ps := range p.Dynamic {
		name := p.Places[ps.Name].Map
		if l.Maps[name] == nil {
			return fmt.Errorf("load program: it has no map for dynamic set %q", ps.Name)
		}
		if replace[name] == nil {
			in[name] = append(in[name], ps)
		}
	}
	for _, sets := range in {
		for some := range slices.Chunk(sets, atOnce) {
			if err := putSets(p, l, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// putSets gives sets that share a map, or one that has a map of its own, their memory.
func putSets(p *codegen.Program, l *Loaded, all []*policy.Set) error {
	var keys, handles []uint32
	for _, ps := range all {
		at := p.Places[ps.Name]
		m := l.Memories[ps.Name]
		if m == nil {
			s, err := sets.NewMemory(ps, at.Room, p.Names)
			if err != nil {
				return err
			}
			if m, err = s.Release(); err != nil {
				return err
			}
			l.Memories[ps.Name] = m
		}
		keys, handles = append(keys, at.Key), append(handles, uint32(m.FD()))
	}
	outer := l.Maps[p.Places[all[0].Name].Map]
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
		return kernel.Refuse(err, "put the memory of %d dynamic all, %q the first, in place",
			len(all), all[0].Name)
	}
	return nil
}

// atOnce is the number of memories that are put into a shared map with one call, which waits once
// for the programs that may use it.
const atOnce = 128
