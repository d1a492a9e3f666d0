package prefix

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// OpenMap is Open on a map made from DynamicSpec, loaded or pinned, which it maps into memory. If
// max is not 0, a map that has never been formatted is formatted for it. Close it after use; the map
// itself stays the caller's.
func OpenMap(m *ebpf.Map, max int, now func() uint64) (*Dynamic, error) {
	if m.Type() != ebpf.Array || m.MaxEntries() != 1 || m.Flags()&unix.BPF_F_MMAPABLE == 0 {
		return nil, fmt.Errorf("dynamic set: %v is not a mappable array with one entry: %w", m, ErrLayout)
	}
	mem, err := unix.Mmap(m.FD(), 0, int(m.ValueSize()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("dynamic set: map %v into memory: %w", m, err)
	}
	if max != 0 && len(mem) >= offBuckets && binary.NativeEndian.Uint64(mem[offMagic:]) == 0 {
		err = Format(mem, max)
	}
	var d *Dynamic
	if err == nil {
		d, err = Open(mem, now)
	}
	if err != nil {
		// What went wrong is told; unmapping what was just mapped cannot fail.
		_ = unix.Munmap(mem)
		return nil, err
	}
	d.unmap = func() error { return unix.Munmap(mem) }
	return d, nil
}

// Close gives back the memory of OpenMap; the set must not be used after it.
func (d *Dynamic) Close() error {
	if d.unmap == nil {
		return nil
	}
	unmap := d.unmap
	d.unmap, d.mem = nil, nil
	if err := unmap(); err != nil {
		return fmt.Errorf("dynamic set: unmap: %w", err)
	}
	return nil
}
