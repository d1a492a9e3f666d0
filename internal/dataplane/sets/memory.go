package sets

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"levee/internal/dataplane/store"
	"levee/internal/filter/names"
	"levee/internal/kernel"
	"levee/internal/lang/dnsname"
	"levee/internal/lang/literal"
	"levee/internal/lang/policy"
)

// Forever is the lease of an entry that stays until it is deleted.
const Forever = literal.Forever

// Entry is an entry of a dynamic set: a prefix, a service or, with both, an endpoint; or a name.
// The ports of a service are a block, as those that policy.Element.Blocks makes.
type Entry struct {
	Prefix  netip.Prefix
	Service policy.Service
	Name    string // as in policy.Element
	// to add: 0 is the set's own, Forever none; listed: what is left, Forever none
	Lease time.Duration
}

// Element returns the entry without its lease.
func (e Entry) Element() policy.Element {
	return policy.Element{Prefix: e.Prefix, Service: e.Service, Name: e.Name}
}

// EntryOf returns an element with a lease.
func EntryOf(e policy.Element, lease time.Duration) Entry {
	return Entry{Prefix: e.Prefix, Service: e.Service, Name: e.Name, Lease: lease}
}

// Covering returns the entries whose prefix holds an address, the longest first. An IPv4-mapped
// address is the IPv6 address that it is. Services have no prefix and hold none.
func Covering(entries []Entry, a netip.Addr) (out []Entry) {
	for _, e := range entries {
		if e.Prefix.IsValid() && e.Prefix.Contains(a) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return b.Prefix.Bits() - a.Prefix.Bits() })
	return out
}

// Standing returns the entries by which a name is in a set, the longest first: itself, or one that
// it is below.
func Standing(entries []Entry, n dnsname.Name) (out []Entry) {
	at := map[string]int{n.String(): 0}
	for i, above := 1, n; above != ""; i++ {
		above = above.Parent()
		at[above.String()] = 2 * i
		at[dnsname.Pattern{Name: above, Below: true}.String()] = 2*i + 1
	}
	for _, e := range entries {
		if _, ok := at[e.Name]; ok {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return at[a.Name] - at[b.Name] })
	return out
}

// Memory is a dynamic set in this process's memory.
type Memory struct {
	Name   string
	Typ    policy.SetType
	lease  time.Duration // default; 0: until deleted
	Clock  *kernel.Clock
	Frozen uint64    // jiffies for as long as time stands still; 0 if it does not
	Inner  *ebpf.Map // its memory
	Mem    []byte
	Table
}

// Access gives access to what is in a place now. The place's map may be closed then.
func Access(at Place, name string, typ policy.SetType, lease time.Duration) (*Memory, error) {
	inner, err := at.memory()
	if err != nil {
		return nil, err
	}
	return openMemory(inner, &Memory{Name: name, Typ: typ, lease: lease}, nil)
}

// NewMemory makes a set that holds no entry, laid out for room of them, and that no program sees
// yet. The secret is that of the program, for sets of names.
func NewMemory(ps *policy.Set, room int, secret names.Secret) (*Memory, error) {
	return makeMemory(&Memory{Name: ps.Name, Typ: ps.Type, lease: ps.Lease}, room, 0,
		func(mem []byte) error { return format(ps.Type, mem, ps.Max, room, secret) })
}

// empty makes a set without entries that may take the place of another.
func (s *Memory) empty() (*Memory, error) {
	return makeMemory(&Memory{Name: s.Name, Typ: s.Typ, lease: s.lease}, s.Room(), len(s.Mem),
		func(mem []byte) error {
			return format(s.Typ, mem, s.Max(), s.Room(), names.SecretOf(s.Mem))
		})
}

// aside makes a copy of a set that no program sees yet.
func (s *Memory) aside() (*Memory, error) {
	return makeMemory(&Memory{Name: s.Name, Typ: s.Typ, lease: s.lease}, s.Room(), len(s.Mem),
		s.CopyTo)
}

// makeMemory makes memory of the size that the room needs, or of another: that of memory which an
// older levee laid out.
func makeMemory(s *Memory, room, size int, format func(mem []byte) error) (*Memory, error) {
	name := s.Name
	spec, err := tableSpec(s.Typ, "set_"+name, room)
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
func openMemory(inner *ebpf.Map, s *Memory, format func(mem []byte) error) (*Memory, error) {
	mem, err := store.MapMemory(inner, int(inner.ValueSize()))
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	s.Inner, s.Mem = inner, mem
	if format != nil {
		err = format(mem)
	}
	if err == nil {
		s.Clock, err = kernel.JiffiesClock()
	}
	if err == nil {
		err = s.OpenTable()
	}
	if err != nil {
		return nil, errors.Join(kernel.Refuse(err, "open dynamic set %q", s.Name), s.Close())
	}
	return s, nil
}

// Close gives up the memory; if no map holds it either, it is freed.
func (s *Memory) Close() error { return errors.Join(unix.Munmap(s.Mem), s.Inner.Close()) }

// Release gives up the memory but for the handle that it returns.
func (s *Memory) Release() (*ebpf.Map, error) {
	if err := unix.Munmap(s.Mem); err != nil {
		return nil, errors.Join(fmt.Errorf("unmap dynamic set %q: %w", s.Name, err),
			s.Inner.Close())
	}
	return s.Inner, nil
}

// expires returns the end of a lease in jiffies, 0 for never.
func (s *Memory) expires(lease time.Duration) uint64 {
	if lease == 0 {
		lease = s.lease
	}
	if lease <= 0 {
		return 0
	}
	if s.Frozen != 0 {
		return s.Frozen + s.Clock.Ticks(lease)
	}
	return s.Clock.Expiry(lease)
}

// Now returns the time in jiffies.
func (s *Memory) Now() uint64 {
	if s.Frozen != 0 {
		return s.Frozen
	}
	return s.Clock.Now()
}

// left returns the time until jiffies, Forever for 0.
func (s *Memory) left(expires uint64) time.Duration {
	if expires == 0 {
		return Forever
	}
	return s.Clock.Remaining(expires)
}

// CopySet copies all entries, with what is left of their leases. The caller holds the lock of
// writers until the new set is in force.
func CopySet(ps *policy.Set, from, to Place) error {
	old, err := Access(from, ps.Name, ps.Type, ps.Lease)
	if err != nil {
		return err
	}
	defer old.Close()
	next, err := Access(to, ps.Name, ps.Type, ps.Lease)
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
	next.Settle()
	return nil
}
