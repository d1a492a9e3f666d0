package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/kernel"
	"levee/internal/lang/policy"
)

// Forever is the lease of an entry that stays until it is deleted.
const Forever = policy.Forever

// SetEntry is an entry of a dynamic set: a prefix, a service or, with both, an endpoint. The ports
// of a service are a block, as those that policy.Element.Blocks makes.
type SetEntry struct {
	Prefix  netip.Prefix
	Service policy.Service
	// to add: 0 is the set's own, Forever none; listed: what is left, Forever none
	Lease time.Duration
}

// Element is the entry without its lease.
func (e SetEntry) Element() policy.Element {
	return policy.Element{Prefix: e.Prefix, Service: e.Service}
}

// Covering are the entries whose prefix holds an address, the longest first. An IPv4-mapped address
// is the IPv6 address that it is. Services have no prefix and hold none.
func Covering(entries []SetEntry, a netip.Addr) (out []SetEntry) {
	for _, e := range entries {
		if e.Prefix.IsValid() && e.Prefix.Contains(a) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b SetEntry) int { return b.Prefix.Bits() - a.Prefix.Bits() })
	return out
}

// set is a dynamic set in this process's memory.
type set struct {
	name   string
	typ    policy.SetType
	lease  time.Duration // default; 0: until deleted
	clock  *kernel.Clock
	frozen uint64    // jiffies for as long as time stands still; 0 if it does not
	inner  *ebpf.Map // its memory
	mem    []byte
	table
}

// openSet gives access to what is in a place now. The place's map may be closed then.
func openSet(at place, name string, typ policy.SetType, lease time.Duration) (*set, error) {
	inner, err := at.memory()
	if err != nil {
		return nil, err
	}
	return openMemory(inner, &set{name: name, typ: typ, lease: lease}, nil)
}

// newMemory makes a set that holds no entry, laid out for room of them, and that no program sees
// yet.
func newMemory(name string, typ policy.SetType, max, room int, lease time.Duration) (*set, error) {
	return makeMemory(&set{name: name, typ: typ, lease: lease}, room, 0,
		func(mem []byte) error { return format(typ, mem, max, room) })
}

// empty makes a set without entries that may take the place of another.
func (s *set) empty() (*set, error) {
	return makeMemory(&set{name: s.name, typ: s.typ, lease: s.lease}, s.Room(), len(s.mem),
		func(mem []byte) error { return format(s.typ, mem, s.Max(), s.Room()) })
}

// aside makes a copy of a set that no program sees yet.
func (s *set) aside() (*set, error) {
	return makeMemory(&set{name: s.name, typ: s.typ, lease: s.lease}, s.Room(), len(s.mem),
		s.CopyTo)
}

// makeMemory makes memory of the size that the room needs, or of another: that of memory which an
// older levee laid out.
func makeMemory(s *set, room, size int, format func(mem []byte) error) (*set, error) {
	name := s.name
	spec, err := tableSpec(s.typ, "set_"+name, room)
	if err != nil {
		return nil, err
	}
	if size > 0 {
		spec.InnerMap.ValueSize = uint32(size)
	}
	inner, err := ebpf.NewMap(spec.InnerMap)
	if err != nil {
		return nil, kernel.LoadError(fmt.Sprintf("make memory for dynamic set %q", name), err)
	}
	return openMemory(inner, s, format)
}

// openMemory maps the memory of a set, formats it if it is new, and closes it on an error.
func openMemory(inner *ebpf.Map, s *set, format func(mem []byte) error) (*set, error) {
	mem, err := store.MapMemory(inner, int(inner.ValueSize()))
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	s.inner, s.mem = inner, mem
	if format != nil {
		err = format(mem)
	}
	if err == nil {
		s.clock, err = kernel.JiffiesClock()
	}
	if err == nil {
		err = s.openTable()
	}
	if err != nil {
		return nil, errors.Join(kernel.Refuse(err, "open dynamic set %q", s.name), s.Close())
	}
	return s, nil
}

// Close gives up the memory; if no map holds it either, it is freed.
func (s *set) Close() error { return errors.Join(unix.Munmap(s.mem), s.inner.Close()) }

// release gives up the memory but for the handle that it returns.
func (s *set) release() (*ebpf.Map, error) {
	if err := unix.Munmap(s.mem); err != nil {
		return nil, errors.Join(fmt.Errorf("unmap dynamic set %q: %w", s.name, err),
			s.inner.Close())
	}
	return s.inner, nil
}

// expires is the end of a lease in jiffies, 0 for never.
func (s *set) expires(lease time.Duration) uint64 {
	if lease == 0 {
		lease = s.lease
	}
	if lease <= 0 {
		return 0
	}
	if s.frozen != 0 {
		return s.frozen + s.clock.Ticks(lease)
	}
	return s.clock.Expiry(lease)
}

// now is the time in jiffies.
func (s *set) now() uint64 {
	if s.frozen != 0 {
		return s.frozen
	}
	return s.clock.Now()
}

// left is the time until jiffies, Forever for 0.
func (s *set) left(expires uint64) time.Duration {
	if expires == 0 {
		return Forever
	}
	return s.clock.Remaining(expires)
}

// copySet copies all entries, with what is left of their leases. The caller holds the lock of
// writers until the new set is in force.
func copySet(ps *policy.Set, from, to place) error {
	old, err := openSet(from, ps.Name, ps.Type, ps.Lease)
	if err != nil {
		return err
	}
	defer old.Close()
	next, err := openSet(to, ps.Name, ps.Type, ps.Lease)
	if err != nil {
		return err
	}
	defer next.Close()
	next.Refuse(old.Refused())
	for e, expires := range old.All() {
		if err := next.Add(e, expires); err != nil {
			return fmt.Errorf("dynamic set %q holds %d entries, which do not fit into the new "+
				"policy's max %d; delete some or raise max: %w", ps.Name, old.Len(), ps.Max, err)
		}
	}
	next.settle()
	return nil
}
