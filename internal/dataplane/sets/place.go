package sets

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

// Place is an entry of an array of maps, by which programs find the memory of a dynamic set. The
// kernel gives the id of the memory there, and a handle for an id only to CAP_SYS_ADMIN. So the
// memory is pinned beside the program, or this process has a handle.
type Place struct {
	Outer *ebpf.Map
	Key   uint32
	Name  string // of the set
	Pins  string // of its generation, "" if it has none
	read  bool   // only
	steps store.Steps
	Inner *ebpf.Map // the memory, where it has no pins
}

// Directories of pins of memories, by name of the set. A memory that takes the place of another is
// pinned as the next one first.
const (
	PinMemory = "memory"
	PinNext   = "next"
)

// PinnedPlaces returns the places of a program's sets, by name.
func PinnedPlaces(p *codegen.Program) map[string]store.PinnedPlace {
	out := make(map[string]store.PinnedPlace, len(p.Places))
	for name, at := range p.Places {
		out[name] = store.PinnedPlace{Map: at.Map, Key: at.Key}
	}
	return out
}

// memory opens what is in a place now.
func (at Place) memory() (*ebpf.Map, error) {
	var id uint32
	if err := at.Outer.Lookup(at.Key, &id); err != nil {
		return nil, kernel.Refuse(err, "open dynamic set %q", at.Name)
	}
	if is, err := store.HasID(at.Inner, id); is || err != nil {
		if err != nil {
			return nil, err
		}
		return at.Inner.Clone()
	}
	for _, dir := range []string{PinMemory, PinNext} {
		m, err := at.Pinned(dir, id)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		if dir == PinNext && !at.read { // a command was killed before it did this
			err = os.Rename(at.pin(PinNext), at.pin(PinMemory))
		}
		if err != nil {
			err = kernel.Refuse(err, "pin the memory of dynamic set %q", at.Name)
			return nil, errors.Join(err, m.Close())
		}
		return m, nil
	}
	if at.read { // it was replaced meanwhile
		return nil, kernel.Refuse(fs.ErrNotExist, "open the memory of dynamic set %q", at.Name)
	}
	m, err := ebpf.NewMapFromID(ebpf.MapID(id)) // a levee that did not pin memories put it there
	if err != nil {
		return nil, kernel.Refuse(err, "open the memory of dynamic set %q, which is not pinned "+
			"(without its pin this needs CAP_SYS_ADMIN)", at.Name)
	}
	return m, nil
}

func (at Place) pin(dir string) string { return filepath.Join(at.Pins, dir, at.Name) }

// Pinned opens the pin of a memory, nil if there is none or it is another's than that of the id.
func (at Place) Pinned(dir string, id uint32) (*ebpf.Map, error) {
	if at.Pins == "" {
		return nil, nil
	}
	m, err := ebpf.LoadPinnedMap(at.pin(dir), &ebpf.LoadPinOptions{ReadOnly: at.read})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, kernel.Refuse(err, "open the pinned memory of dynamic set %q", at.Name)
	}
	is, err := store.HasID(m, id)
	if err != nil || !is {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// put makes a memory the one that programs see in a place, in one step. The kernel waits until no
// program uses the former memory. At any moment one of the two pins is of the memory in the place,
// even if the command is killed.
func (at Place) put(m *ebpf.Map) error {
	if at.Pins == "" {
		return at.exchange(m)
	}
	return store.OnHost(func() error { return at.exchange(m) }) // the pins lie there
}

func (at Place) exchange(m *ebpf.Map) error {
	if at.Pins != "" {
		if err := at.settle(); err != nil {
			return err
		}
		if err := at.PinAs(PinNext, m, store.PinMode(codegen.DynamicSet,
			store.ReadersWrite())); err != nil {
			return err
		}
	}
	if err := at.steps.Step("put"); err != nil {
		return err
	}
	if err := at.Outer.Put(at.Key, m); err != nil { // traffic changes here
		return kernel.Refuse(err, "put the contents of dynamic set %q in place", at.Name)
	}
	if at.Pins != "" && at.steps.Step("repin") == nil {
		_ = os.Rename(at.pin(PinNext), at.pin(PinMemory)) // else whoever opens it next does this
	}
	return nil
}

// settle finishes what a put has left.
func (at Place) settle() error {
	if _, err := os.Stat(at.pin(PinNext)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	m, err := at.memory()
	if err != nil {
		return err
	}
	return m.Close()
}

// PinAs pins a memory in a directory of pins, in place of what is pinned there.
func (at Place) PinAs(dir string, m *ebpf.Map, mode fs.FileMode) error {
	for _, d := range []string{PinMemory, PinNext} {
		if err := store.MakeDirs(filepath.Join(at.Pins, d)); err != nil {
			return kernel.Refuse(err, "create the directory of pins")
		}
	}
	if err := os.Remove(at.pin(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kernel.Refuse(err, "remove the pin that a killed command left")
	}
	own, err := m.Clone() // a handle that is pinned takes its pin along
	if err != nil {
		return kernel.Refuse(err, "pin the memory of dynamic set %q", at.Name)
	}
	defer own.Close()
	return store.PinFile(own, at.pin(dir), mode)
}

// OpenPlace opens the map in which a generation has a set; that of the place is nil if it is gone.
func OpenPlace(s *store.Store, key string, g *store.Description, name string) (Place, error) {
	at := g.Places[name]
	m, err := s.OpenPinned(key, g.Generation, at.Map)
	pins := s.Pins(key, g.Generation)
	return Place{Outer: m, Key: at.Key, Name: name, Pins: pins, read: s.ReadOnly,
		steps: s.Steps}, err
}
