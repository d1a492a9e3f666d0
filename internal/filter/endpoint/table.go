package endpoint

import (
	"fmt"
	"iter"
	"net/netip"
	"sync/atomic"

	"levee/internal/filter/hashtable"
)

// Table is a dynamic set of endpoints in memory that eBPF programs read at the same time. What
// holds between writers and readers is said in package hashtable; of a Table only Lookup may run
// beside a writer.
type Table struct {
	*hashtable.Set
	table *hashtable.Table // the only one
	mem   hashtable.Memory
}

// FormatRoom makes an empty set of zeroed memory that is laid out for room entries, at least max,
// as prefix.FormatRoom, and chooses its seeds.
func FormatRoom(mem []byte, max, room int) error { return kind.Format(mem, max, room) }

// Open gives access to a formatted set. now is the clock of the leases, in jiffies. Memory that is
// not such a set gives ErrLayout; a set that a writer left half-way is mended.
func Open(mem []byte, now func() uint64) (*Table, error) {
	if len(mem) < offBuckets {
		return nil, fmt.Errorf("dynamic set: %d bytes of memory: %w", len(mem), ErrLayout)
	}
	t := &Table{mem: mem}
	_, err := kind.Open(mem, now, func(s *hashtable.Set) hashtable.Index {
		t.Set, t.table = s, &s.Tables[0]
		return index{t}
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Add puts an entry into the set, or gives one that is there its new lease. A lease that has ended
// already removes the entry. Bits of the address and of the port that do not count are ignored. If
// the set is full of live entries, or has no room for another shape, the error wraps ErrFull or
// ErrShapes and nothing has changed.
func (t *Table) Add(e Entry) error {
	k, ok := keyOf(e)
	if !ok {
		return fmt.Errorf("dynamic set: add %v: not an endpoint", e)
	}
	if err := t.table.Add(k, e.Expires); err != nil {
		return fmt.Errorf("dynamic set: add to %w", err)
	}
	return nil
}

// Touch fetches the memory for which an Add of the entry would wait. It changes nothing.
func (t *Table) Touch(e Entry) {
	if k, ok := keyOf(e); ok {
		t.table.Touch(k)
	}
}

// Delete takes an entry out of the set, whatever its lease, and reports whether its lease had not
// ended.
func (t *Table) Delete(e Entry) bool {
	k, ok := keyOf(e)
	return ok && t.table.Delete(k)
}

// Get gives the end of the lease of exactly this entry, if it has not ended.
func (t *Table) Get(e Entry) (expires uint64, ok bool) {
	k, ok := keyOf(e)
	if !ok {
		return 0, false
	}
	return t.table.Get(k)
}

// All lists the entries whose lease has not ended, in no order.
func (t *Table) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for k, expires := range t.table.Alive() {
			if !yield(entryOf(k, expires)) {
				return
			}
		}
	}
}

// Lookup says whether a live entry covers the address, protocol and port (0 where there is none).
// It may run beside a writer.
func (t *Table) Lookup(a netip.Addr, proto uint8, port uint16) bool {
	if !a.IsValid() {
		return false
	}
	number, list := shapesOf(a.Is4())
	// from the end: see Count
	for i := int(min(atomic.LoadUint32(t.mem.U32(number)), MaxShapes)) - 1; i >= 0; i-- {
		shape := atomic.LoadUint32(t.mem.U32(list + 4*i))
		length, _ := lengthOf(codeOf(shape))
		p, err := a.Prefix(length)
		if err != nil {
			continue
		}
		k, ok := keyOf(Entry{Prefix: p, Proto: proto, Port: port, Bits: uint8(shape >> 8)})
		if ok && t.table.Holds(k) {
			return true
		}
	}
	return false
}
