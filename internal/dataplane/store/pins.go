package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/kernel"
)

// WaitForPrograms returns when every run of a program that had begun before the call has ended.
// The kernel promises that for an update of a map of maps (maybe_wait_bpf_programs,
// kernel/bpf/syscall.c), on one CPU and on nohz_full machines too, where membarrier does not.
func (f Steps) WaitForPrograms() error {
	if err := f.Step("wait"); err != nil {
		return err
	}
	inner := &ebpf.MapSpec{Name: "levee_inner", Type: ebpf.Array, KeySize: 4, ValueSize: 4,
		MaxEntries: 1}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Name: "levee_wait", Type: ebpf.ArrayOfMaps, KeySize: 4,
		ValueSize: 4, MaxEntries: 1, InnerMap: inner})
	if err != nil {
		return kernel.LoadError("create a map of maps", err)
	}
	m, err := ebpf.NewMap(inner)
	if err != nil {
		return errors.Join(kernel.LoadError("create a map", err), outer.Close())
	}
	err = outer.Put(uint32(0), m)
	if err != nil {
		err = kernel.Refuse(err, "wait until the replaced program has ended")
	}
	return errors.Join(err, outer.Close(), m.Close())
}

// Names of pins in a generation's directory, besides maps, which are pinned by their own name.
const (
	PinLink   = "link"       // in the attachment's directory
	PinProg   = "prog"       // the program
	PinTrial  = "prog_trial" // its variant with a deadline
	PinLinks  = "links"      // directory of the links of programs that do not judge
	PinBehind = "behind"     // program of a shadow for what leaves, to which that in force hands it
	PinLeave  = "egress"     // directory of the programs at egress, for interfaces that come back
)

// Pinned lists the numbers of all generations that have pins, complete or not.
func (s *Store) Pinned(key string) ([]int, error) {
	entries, err := os.ReadDir(s.BPF(key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, kernel.Refuse(err, "list the pins of attachment %s", key)
	}
	var out []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, n)
		}
	}
	return out, nil
}

// OpenProgram opens a pinned program.
func (s *Store) OpenProgram(path string) (*ebpf.Program, error) {
	p, err := ebpf.LoadPinnedProgram(path, s.PinOptions())
	if err != nil {
		return nil, kernel.Refuse(err, "open the pinned program %s", path)
	}
	return p, nil
}

// PinFile pins a program or a map. The mode says who may open it.
func PinFile(o Pinner, path string, mode fs.FileMode) error {
	if err := o.Pin(path); err != nil {
		return kernel.Refuse(err, "pin %s", path)
	}
	if mode == SecretMode {
		return nil // as bpffs makes it
	}
	if err := share(path, mode); err != nil {
		return kernel.Refuse(err, "let readers open %s", path)
	}
	return nil
}

type Pinner interface{ Pin(string) error }

// OpenPinned opens a map of a generation, nil if it has none of that name.
func (s *Store) OpenPinned(key string, generation int, name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(s.Pins(key, generation), name), s.PinOptions())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, s.unopened(err, "open the pinned map %s", name)
	}
	return m, nil
}

// unopened says why a pin could not be opened, to readers too.
func (s *Store) unopened(err error, format string, args ...any) error {
	if s.ReadOnly && errors.Is(err, fs.ErrPermission) {
		format += "; nothing is for readers where others than root may load BPF programs or pin " +
			"maps, which `levee doctor` tells"
	}
	return kernel.Refuse(err, format, args...)
}

// HasID says whether a handle, which may be nil, is of the map with an id.
func HasID(m *ebpf.Map, id uint32) (bool, error) {
	if m == nil {
		return false, nil
	}
	got, err := MapID(m)
	return err == nil && got == ebpf.MapID(id), err
}

func MapID(m *ebpf.Map) (ebpf.MapID, error) {
	info, err := m.Info()
	if err != nil {
		return 0, kernel.Refuse(err, "ask the kernel about a map of dynamic sets")
	}
	id, _ := info.ID()
	return id, nil
}

// SameMap says whether two handles are of one map.
func SameMap(a, b *ebpf.Map) (bool, error) {
	x, err := MapID(a)
	if err != nil {
		return false, err
	}
	y, err := MapID(b)
	return err == nil && x == y, err
}

// CopyOfMap returns the value of a map that has one. What may only be read cannot be mapped: the
// kernel takes such a mapping for a private one.
func CopyOfMap(m *ebpf.Map) ([]byte, error) {
	b, err := m.LookupBytes(uint32(0))
	if err != nil {
		return nil, kernel.Refuse(err, "read %s", m)
	}
	return b, nil
}

// WithMemory hands f the value of a map while programs write it. A copy of tens of MB would be made
// by the kernel in one go, and keep packets waiting; who may only read gets one all the same.
func (s *Store) WithMemory(m *ebpf.Map, f func(memory []byte)) error {
	if s.ReadOnly {
		b, err := CopyOfMap(m)
		if err == nil {
			f(b)
		}
		return err
	}
	b, err := MapMemory(m, int(m.ValueSize()))
	if err != nil {
		return err
	}
	f(b[:m.ValueSize()])
	return unix.Munmap(b)
}

func (s *Store) PinOptions() *ebpf.LoadPinOptions {
	return &ebpf.LoadPinOptions{ReadOnly: s.ReadOnly}
}

// MapMemory maps the first n bytes of a BPF_F_MMAPABLE array's values.
func MapMemory(m *ebpf.Map, n int) ([]byte, error) {
	page := os.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (n+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the memory of %s: %w", m, err)
	}
	return b, nil
}
