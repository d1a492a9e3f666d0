package prefix

import (
	"fmt"
	"iter"
	"net/netip"

	"levee/internal/filter/hashtable"
)

// Entry is a prefix of a dynamic set with the end of its lease in jiffies; 0 is never.
type Entry struct {
	Prefix  netip.Prefix
	Expires uint64
}

// Dynamic is a set of prefixes with leases in memory that eBPF programs read at the same time. What
// holds between writers and readers is said in package hashtable; of a Dynamic only Lookup and
// Probes may run beside a writer.
type Dynamic struct {
	*hashtable.Set
	geometry
	mem hashtable.Memory
	now func() uint64
}

// Format makes an empty set of zeroed memory, which must have the size that DynamicSpec gives for
// max, and chooses its seeds.
func Format(mem []byte, max int) error { return FormatRoom(mem, max, max) }

// FormatRoom is Format for memory that is laid out for room entries, at least max, so that sets of
// different max can be looked up by one function: that of room.
func FormatRoom(mem []byte, max, room int) error {
	k, _ := formatOf(room, len(mem))
	if err := k.Format(mem, max, room); err != nil {
		return err
	}
	for bit := range 64 {
		mem[offLowest+lowestHash(1<<bit)] = byte(bit)
	}
	return nil
}

// Open gives access to a formatted set. now is the clock of the leases, in jiffies. Memory that is
// not such a set gives ErrLayout; a set that a writer left half-way is mended.
func Open(mem []byte, now func() uint64) (*Dynamic, error) {
	d := &Dynamic{mem: mem, now: now}
	k, geometry := kind, plainGeometry
	if len(mem) > hashtable.AtRest && *d.mem.U64(hashtable.AtVersion) == bulky.Version {
		k, geometry = bulky, geometryOf
	}
	_, err := k.Open(mem, now, func(s *hashtable.Set) hashtable.Index {
		d.Set, d.geometry = s, geometry(s.Room())
		d.v4.table, d.v6.table = &s.Tables[0], &s.Tables[1]
		return index{d}
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Dynamic) families() [2]*family { return [2]*family{&d.v4, &d.v6} }

// of returns the family of a table.
func (d *Dynamic) of(t *hashtable.Table) *family {
	if t.Narrow {
		return &d.v4
	}
	return &d.v6
}

// locate gives the family and the key of a prefix.
func (d *Dynamic) locate(p netip.Prefix) (*family, hashtable.Key) {
	hi, lo := split(p.Addr())
	hi, lo = mask(hi, lo, p.Bits())
	if p.Addr().Is4() {
		return &d.v4, hashtable.Key{Hi: hi >> 32, Code: p.Bits() + 1}
	}
	return &d.v6, hashtable.Key{Hi: hi, Lo: lo, Code: p.Bits() + 1}
}

func lengthOf(k hashtable.Key) int { return k.Code - 1 }

// prefix returns the prefix in a key of the family.
func (f *family) prefix(k hashtable.Key) netip.Prefix {
	if f.Narrow {
		k.Hi <<= 32
	}
	return netip.PrefixFrom(join(k.Hi, k.Lo, f.width), lengthOf(k))
}

// Add puts a prefix into the set until the clock reaches expires (0: until deleted), or gives an
// entry that is there its new lease. A lease that has ended already removes the entry. Host bits
// are ignored. If the set is full of live entries the error wraps ErrFull and nothing has changed.
func (d *Dynamic) Add(p netip.Prefix, expires uint64) error {
	if !p.IsValid() {
		return fmt.Errorf("dynamic set: add %v: not a prefix", p)
	}
	f, k := d.locate(p)
	d.shorten(f, k, expires)
	if err := f.table.Add(k, expires); err != nil {
		return fmt.Errorf("dynamic set: add %v to %w", p, err)
	}
	return nil
}

// Touch fetches the memory of the prefix, so that an Add does not wait. It changes nothing.
func (d *Dynamic) Touch(p netip.Prefix) {
	if p.IsValid() {
		f, k := d.locate(p)
		f.table.Touch(k)
	}
}

// Delete takes a prefix out of the set and says whether it was there with a lease that had not
// ended.
func (d *Dynamic) Delete(p netip.Prefix) bool {
	if !p.IsValid() {
		return false
	}
	f, k := d.locate(p)
	d.mark(f, k, deleted)
	return f.table.Delete(k)
}

// Get finds the entry of exactly this prefix, if its lease has not ended.
func (d *Dynamic) Get(p netip.Prefix) (Entry, bool) {
	if !p.IsValid() {
		return Entry{}, false
	}
	f, k := d.locate(p)
	expires, ok := f.table.Get(k)
	if !ok {
		return Entry{}, false
	}
	return Entry{p.Masked(), expires}, true
}

// All lists the entries whose lease has not ended, in no order.
func (d *Dynamic) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, f := range d.families() {
			for k, expires := range f.table.Alive() {
				if !yield(Entry{f.prefix(k), expires}) {
					return
				}
			}
		}
	}
}

// Lookup says whether a live entry covers the address. It may run beside a writer.
func (d *Dynamic) Lookup(a netip.Addr) bool {
	if member, _, known := d.inBulk(a); known {
		return member
	}
	for _, found := range d.tries(a) {
		if found {
			return true
		}
	}
	return false
}

// Probes returns how many prefix lengths a look-up tries, each a bucket and sometimes its
// neighbour: those that the filter names for the address, up to the first with a live entry. Where
// the bulk knows the answer it is how many of its levels are asked.
func (d *Dynamic) Probes(a netip.Addr) (tried int) {
	if _, levels, known := d.inBulk(a); known {
		return levels
	}
	for n, found := range d.tries(a) {
		tried = n
		if found {
			break
		}
	}
	return tried
}

// tries looks for the prefixes that a look-up of an address asks for, numbered from 1, in its
// order, and says whether they are there.
func (d *Dynamic) tries(a netip.Addr) iter.Seq2[int, bool] {
	return func(yield func(int, bool) bool) {
		if !a.IsValid() {
			return
		}
		f, host := d.locate(netip.PrefixFrom(a, a.BitLen()))
		n := 0
		for length := range f.candidates(d.wanted(f, host)) {
			p, err := a.Prefix(length)
			if err != nil { // a length of a foreign writer
				continue
			}
			n++
			if _, k := d.locate(p); !yield(n, f.table.Holds(k)) {
				return
			}
		}
	}
}

// index is the Index of package hashtable for sets of prefixes: it counts their lengths.
type index struct{ *Dynamic }

// Admit takes every prefix.
func (index) Admit(*hashtable.Table, *hashtable.Key, uint64) error { return nil }

// Dismiss has nothing to take back.
func (index) Dismiss(hashtable.Key) {}

// Count keeps the numbers of entries, and what programs read: the set of lengths in use, and the
// filter.
func (d index) Count(t *hashtable.Table, k hashtable.Key, by int) {
	f := d.of(t)
	if by > 0 {
		d.mark(f, k, added)
		d.admit(f, k)
	}
	c := d.mem.U32(f.counts + 4*lengthOf(k))
	*c += uint32(by)
	if by < 0 {
		*d.mem.U64(offRemoved) += uint64(-by)
	}
	if by > 0 && *c == 1 || by < 0 && *c == 0 {
		d.use(f)
	}
}

// Settle builds the filters anew if so many entries were removed that they may say far too much.
func (d index) Settle() {
	if *d.mem.U64(offRemoved) > uint64(256+d.Max()/16) {
		d.buildFilters()
	}
}

// Sound compares the lengths in use with the counts.
func (d index) Sound() (total uint32, ok bool) {
	for _, f := range d.families() {
		if number, used := d.inUse(f); number != *d.mem.U64(f.lengths) || used != d.usedOf(f) {
			return 0, false
		}
		for length := range f.width + 1 {
			total += *d.mem.U32(f.counts + 4*length)
		}
	}
	return total, true
}

// Possible says that there are no host bits.
func (d index) Possible(t *hashtable.Table, k hashtable.Key) bool {
	_, again := d.locate(d.of(t).prefix(k))
	return again == k
}

// Recount counts the entries of each length. A length with entries stays in use. The bulk is given
// up: what has spoilt the counts may have spoilt marks.
func (d index) Recount() (total uint32) {
	d.forget()
	for _, f := range d.families() {
		var counts [129]uint32
		for _, k := range f.table.Entries() {
			counts[lengthOf(k)]++
			total++
		}
		for length := range f.width + 1 {
			*d.mem.U32(f.counts + 4*length) = counts[length]
		}
		d.use(f)
	}
	d.buildFilters()
	return total
}
