package dataplane

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"levee/internal/dataplane/store"
	"levee/internal/filter/codegen"
	"levee/internal/kernel"
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

// pinnedPlaces are the places of a program's sets, by name.
func pinnedPlaces(p *codegen.Program) map[string]store.PinnedPlace {
	out := make(map[string]store.PinnedPlace, len(p.Places))
	for name, at := range p.Places {
		out[name] = store.PinnedPlace{Map: at.Map, Key: at.Key}
	}
	return out
}

// memory opens what is in a place now.
func (at place) memory() (*ebpf.Map, error) {
	var id uint32
	if err := at.outer.Lookup(at.key, &id); err != nil {
		return nil, kernel.Refuse(err, "open dynamic set %q", at.name)
	}
	if is, err := store.HasID(at.inner, id); is || err != nil {
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
	is, err := store.HasID(m, id)
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
		if err := at.pinAs(pinNext, m, store.PinMode(codegen.DynamicSet,
			store.ReadersWrite())); err != nil {
			return err
		}
	}
	if err := store.Step("put"); err != nil {
		return err
	}
	if err := at.outer.Put(at.key, m); err != nil { // traffic changes here
		return kernel.Refuse(err, "put the contents of dynamic set %q in place", at.name)
	}
	if at.pins != "" && store.Step("repin") == nil {
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
		if err := store.MakeDirs(filepath.Join(at.pins, d)); err != nil {
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
	return store.PinFile(own, at.pin(dir), mode)
}

// openPlace opens the map in which a generation has a set; that of the place is nil if it is gone.
func openPlace(s *store.Store, key string, g *store.Description, name string) (place, error) {
	at := g.Places[name]
	m, err := s.OpenPinned(key, g.Generation, at.Map)
	pins := s.Pins(key, g.Generation)
	return place{outer: m, key: at.Key, name: name, pins: pins, read: s.ReadOnly}, err
}
