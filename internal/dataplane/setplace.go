package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"levee/internal/filter/codegen"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// place is where programs find the memory of a dynamic set: an entry of an array of maps. The
// kernel gives the id of the memory there, and a handle for an id only to CAP_SYS_ADMIN. So the
// memory is pinned beside the program, or this process has a handle.
type place struct {
	outer *ebpf.Map
	key   uint32
	name  string    // of the set
	pins  string    // of its generation, "" if it has none
	read  bool      // only
	inner *ebpf.Map // the memory, where it has no pins
}

// Directories of pins of memories, by name of the set. A memory that takes the place of another is
// pinned as the next one first.
const (
	pinMemory = "memory"
	pinNext   = "next"
)

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
	return place{outer: l.maps[at.Map], key: at.Key, name: name, inner: l.memories[name]}
}

// memory opens what is in a place now.
func (at place) memory() (*ebpf.Map, error) {
	var id uint32
	if err := at.outer.Lookup(at.key, &id); err != nil {
		return nil, kernel.Refuse(err, "open dynamic set %q", at.name)
	}
	if is, err := hasID(at.inner, id); is || err != nil {
		if err != nil {
			return nil, err
		}
		return at.inner.Clone()
	}
	for _, dir := range []string{pinMemory, pinNext} {
		m, err := at.pinned(dir, id)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		if dir == pinNext && !at.read { // a command was killed before it did this
			err = os.Rename(at.pin(pinNext), at.pin(pinMemory))
		}
		if err != nil {
			err = kernel.Refuse(err, "pin the memory of dynamic set %q", at.name)
			return nil, errors.Join(err, m.Close())
		}
		return m, nil
	}
	if at.read { // it was replaced meanwhile
		return nil, kernel.Refuse(fs.ErrNotExist, "open the memory of dynamic set %q", at.name)
	}
	m, err := ebpf.NewMapFromID(ebpf.MapID(id)) // a levee that did not pin memories put it there
	if err != nil {
		return nil, kernel.Refuse(err, "open the memory of dynamic set %q, which is not pinned "+
			"(without its pin this needs CAP_SYS_ADMIN)", at.name)
	}
	return m, nil
}

func (at place) pin(dir string) string { return filepath.Join(at.pins, dir, at.name) }

// pinned opens the pin of a memory, nil if there is none or it is another's than that of the id.
func (at place) pinned(dir string, id uint32) (*ebpf.Map, error) {
	if at.pins == "" {
		return nil, nil
	}
	m, err := ebpf.LoadPinnedMap(at.pin(dir), &ebpf.LoadPinOptions{ReadOnly: at.read})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, kernel.Refuse(err, "open the pinned memory of dynamic set %q", at.name)
	}
	is, err := hasID(m, id)
	if err != nil || !is {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// put makes a memory what programs see in a place, in one step. The kernel waits until no program
// uses what was there before. At any moment one of the two pins is of what is in the place, also
// when the command is killed.
func (at place) put(m *ebpf.Map) error {
	if at.pins != "" {
		if err := at.settle(); err != nil {
			return err
		}
		if err := at.pinAs(pinNext, m, pinMode(codegen.DynamicSet, readersWrite())); err != nil {
			return err
		}
	}
	if err := step("put"); err != nil {
		return err
	}
	if err := at.outer.Put(at.key, m); err != nil { // traffic changes here
		return kernel.Refuse(err, "put the contents of dynamic set %q in place", at.name)
	}
	if at.pins != "" && step("repin") == nil {
		_ = os.Rename(at.pin(pinNext), at.pin(pinMemory)) // else whoever opens it next does this
	}
	return nil
}

// settle finishes what a put has left.
func (at place) settle() error {
	if _, err := os.Stat(at.pin(pinNext)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	m, err := at.memory()
	if err != nil {
		return err
	}
	return m.Close()
}

// pinAs pins a memory in a directory of pins, in place of what is pinned there.
func (at place) pinAs(dir string, m *ebpf.Map, mode fs.FileMode) error {
	for _, d := range []string{pinMemory, pinNext} {
		if err := makeDirs(filepath.Join(at.pins, d)); err != nil {
			return kernel.Refuse(err, "create the directory of pins")
		}
	}
	if err := os.Remove(at.pin(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kernel.Refuse(err, "remove the pin that a killed command left")
	}
	own, err := m.Clone() // a handle that is pinned takes its pin along
	if err != nil {
		return kernel.Refuse(err, "pin the memory of dynamic set %q", at.name)
	}
	defer own.Close()
	return pinFile(own, at.pin(dir), mode)
}

type pinner interface{ Pin(string) error }

// pinFile pins a program or a map. The mode says who may open it.
func pinFile(o pinner, path string, mode fs.FileMode) error {
	if err := o.Pin(path); err != nil {
		return kernel.Refuse(err, "pin %s", path)
	}
	if mode == secretMode {
		return nil // as bpffs makes it
	}
	if err := share(path, mode); err != nil {
		return kernel.Refuse(err, "let readers open %s", path)
	}
	return nil
}

// hasID says whether a handle, which may be nil, is of the map with an id.
func hasID(m *ebpf.Map, id uint32) (bool, error) {
	if m == nil {
		return false, nil
	}
	got, err := mapID(m)
	return err == nil && got == ebpf.MapID(id), err
}

func mapID(m *ebpf.Map) (ebpf.MapID, error) {
	info, err := m.Info()
	if err != nil {
		return 0, kernel.Refuse(err, "ask the kernel about a map of dynamic sets")
	}
	id, _ := info.ID()
	return id, nil
}

// openPlace opens the map in which a generation has a set; that of the place is nil if it is gone.
func (s *store) openPlace(key string, g *description, name string) (place, error) {
	at := g.Places[name]
	m, err := s.openPinned(key, g.Generation, at.Map)
	pins := s.pins(key, g.Generation)
	return place{outer: m, key: at.Key, name: name, pins: pins, read: s.readOnly}, err
}

// openPinned opens a map of a generation, nil if it has none of that name.
func (s *store) openPinned(key string, generation int, name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(s.pins(key, generation), name), s.pinOptions())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, s.unopened(err, "open the pinned map %s", name)
	}
	return m, nil
}

// unopened says why a pin could not be opened, to readers too.
func (s *store) unopened(err error, format string, args ...any) error {
	if s.readOnly && errors.Is(err, fs.ErrPermission) {
		format += "; nothing is for readers where others than root may load BPF programs or pin " +
			"maps, which `levee doctor` tells"
	}
	return kernel.Refuse(err, format, args...)
}

// sameMap says whether two handles are of one map.
func sameMap(a, b *ebpf.Map) (bool, error) {
	x, err := mapID(a)
	if err != nil {
		return false, err
	}
	y, err := mapID(b)
	return err == nil && x == y, err
}

// atOnce is how many memories are put into a map that sets share with one call, which waits once
// for the programs that may use it.
const atOnce = 128

// placeSets gives the sets of a program their memory: one of memories, or a new one. Maps of
// replace have theirs, of which memories has handles.
func placeSets(p *codegen.Program, l *loaded, replace, memories map[string]*ebpf.Map) error {
	for name, m := range memories {
		own, err := m.Clone()
		if err != nil {
			return kernel.Refuse(err, "keep the memory of dynamic set %q", name)
		}
		l.memories[name] = own
	}
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
			if err := putSets(p, l, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// putSets gives sets that share a map, or one that has a map of its own, their memory.
func putSets(p *codegen.Program, l *loaded, sets []*policy.Set) error {
	var keys, handles []uint32
	for _, ps := range sets {
		at := p.Places[ps.Name]
		m := l.memories[ps.Name]
		if m == nil {
			s, err := newMemory(ps.Name, ps.Type, ps.Max, at.Room, ps.Lease)
			if err != nil {
				return err
			}
			if m, err = s.release(); err != nil {
				return err
			}
			l.memories[ps.Name] = m
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
		return kernel.Refuse(err, "put the memory of %d dynamic sets, %q the first, in place",
			len(sets), sets[0].Name)
	}
	return nil
}
