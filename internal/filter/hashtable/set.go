package hashtable

import (
	"fmt"
	"sync/atomic"
)

// Set is a dynamic set: its tables and what is known of all of them together. Only one method that
// changes or lists a set may run at a time, in all processes; see the package's comment.
type Set struct {
	Tables []Table // in the order of Kind.Layout

	mem   Memory
	max   int
	room  int
	now   func() uint64
	index Index
}

// Index is the part of a kind of set beside the tables. It tells a look-up which keys to try.
type Index interface {
	// Admit says what keeps a key out that is not there, whatever the number of entries, and gives
	// it its value. It may call Set.Reclaim.
	Admit(t *Table, k *Key, now uint64) error
	// Dismiss takes back what Admit gave a key for which there is no room.
	Dismiss(k Key)
	// Count hears of an entry that comes (by 1), before it can be found, or that has gone (by -1).
	Count(t *Table, k Key, by int)
	// Settle ends a change.
	Settle()
	// Sound says how many entries are counted, and whether that can be believed as far as a glance
	// tells.
	Sound() (total uint32, ok bool)
	// Possible says whether an entry of the table can have this key.
	Possible(t *Table, k Key) bool
	// Recount makes all counts anew from the entries, with programs reading, and says how many
	// there are.
	Recount() (total uint32)
}

// CopyTo makes dst, memory of the same size that nobody reads yet, a set with the same entries,
// seeds and counts.
func (s *Set) CopyTo(dst []byte) error {
	if len(dst) != len(s.mem) {
		return fmt.Errorf("dynamic set: copy %d bytes to %d: %w", len(s.mem), len(dst), ErrLayout)
	}
	copy(dst, s.mem)
	return nil
}

// Refused returns the number of entries that found the set full, as counted by Refuse.
func (s *Set) Refused() uint64 { return atomic.LoadUint64(s.mem.U64(atRefused)) }

// Refuse counts n entries that were not taken because the set is full. Whoever adds many at once,
// and none of them if one does not fit, knows how many that are.
func (s *Set) Refuse(n uint64) { atomic.AddUint64(s.mem.U64(atRefused), n) }

// Max returns the number of entries the set may have.
func (s *Set) Max() int { return s.max }

// Room returns the number of entries that the memory is laid out for, at least Max.
func (s *Set) Room() int { return s.room }

// Len returns the number of entries, including those whose lease has ended and that Expire has not
// yet removed.
func (s *Set) Len() int { return int(*s.mem.U32(AtTotal)) }

// begin and end bracket every modification, so that a writer killed within one is noticed.
func (s *Set) begin() { atomic.StoreUint32(s.mem.U32(AtDirty), 1) }

func (s *Set) end() {
	s.index.Settle()
	atomic.StoreUint32(s.mem.U32(AtDirty), 0)
}

// Change runs a modification that consists of several, at the time now.
func (s *Set) Change(modify func(now uint64)) {
	s.begin()
	defer s.end()
	modify(s.now())
}

// Add puts an entry into the table until the clock reaches expires (0: until deleted), or gives an
// entry that is there its new lease. A lease that has ended already removes the entry. If the set
// is full of live entries the error wraps ErrFull, if its kind refuses the key what Index.Admit
// says; it begins with the number of entries, and nothing has changed.
func (t *Table) Add(k Key, expires uint64) error {
	s := t.set
	s.begin()
	defer s.end()
	now := s.now()
	at, there := t.Find(k)
	switch {
	case expires != 0 && expires <= now:
		if there {
			t.Remove(at, k)
		}
		return nil
	case there:
		if _, alive := t.Lease(at, now); alive {
			t.Renew(at, expires)
			return nil
		}
		// What has ended comes anew: an index counts it again.
		t.Remove(at, k)
	}
	if err := s.index.Admit(t, &k, now); err != nil {
		return fmt.Errorf("%d entries: %w", s.Len(), err)
	}
	if s.Len() >= s.max && !t.reclaim(k, now) {
		s.index.Dismiss(k)
		return fmt.Errorf("%d entries: %w", s.Len(), ErrFull)
	}
	s.sweep(now)
	if !t.Insert(k, expires, now) && (!t.reclaim(k, now) || !t.Insert(k, expires, now)) {
		s.index.Dismiss(k)
		return fmt.Errorf("%d entries: no room near its place: %w", s.Len(), ErrFull)
	}
	return nil
}

// Delete takes an entry out of the table, whatever its lease, and says whether it was there with
// one that had not ended.
func (t *Table) Delete(k Key) bool {
	s, ok := t.Find(k)
	if !ok {
		return false
	}
	t.set.begin()
	defer t.set.end()
	_, alive := t.Lease(s, t.set.now())
	t.Remove(s, k)
	return alive
}

// note keeps the earliest end of any lease.
func (s *Set) note(expires uint64) {
	if e := s.mem.U64(atEnds); expires != 0 && expires < *e {
		*e = expires
	}
}

// Expire removes the entries whose lease has ended at the time now, and says how many.
func (s *Set) Expire(now uint64) int {
	if now < *s.mem.U64(atEnds) {
		return 0
	}
	s.begin()
	defer s.end()
	return s.expire(now)
}

// expire is Expire within a change.
func (s *Set) expire(now uint64) int {
	if now < *s.mem.U64(atEnds) {
		return 0
	}
	n := 0
	earliest := ^uint64(0)
	for i := range s.Tables {
		t := &s.Tables[i]
		for at, k := range t.Entries() {
			e, alive := t.Lease(at, now)
			if !alive {
				t.Remove(at, k)
				n++
			} else if e != 0 {
				earliest = min(earliest, e)
			}
		}
	}
	*s.mem.U64(atEnds) = earliest
	s.index.Settle()
	return n
}

// reclaim removes entries whose lease has ended to make room for k, and says whether it did.
func (t *Table) reclaim(k Key, now uint64) bool {
	before := t.set.Len()
	first, second, _ := t.hash(k)
	t.free(first, now)
	t.free(second, now)
	return t.set.Len() < before || t.set.Reclaim(now)
}

// Reclaim looks for entries whose lease has ended in the whole set, to make room for another, and
// says whether it removed any. In large sets, where that takes long, it does so not more often than
// every few hundred milliseconds: a flood of additions to a full set must not keep a CPU searching.
// It is for the inside of a change.
func (s *Set) Reclaim(now uint64) bool {
	scanned := s.mem.U64(atScanned)
	if wait := uint64(s.Tables[0].Buckets >> 12); now-*scanned < wait {
		return false
	}
	*scanned = now
	return s.expire(now) > 0
}

// sweepBuckets is the number of buckets of each table in which a new entry looks for ended leases:
// a few reads of memory that follows what was read before, and all is seen before the set has
// filled itself anew.
const sweepBuckets = 2

// sweep frees entries whose lease has ended, where the last one stopped.
func (s *Set) sweep(now uint64) {
	if now < *s.mem.U64(atEnds) {
		return
	}
	at := s.mem.U64(atSweep)
	for range sweepBuckets {
		b := int(*at % uint64(s.Tables[0].Buckets))
		for n := range s.Tables {
			t := &s.Tables[n]
			for i := range t.Slots {
				slot := Slot{b, i}
				if m := *t.meta(slot); m&metaCode != 0 && !inUse(m, now) {
					t.Remove(slot, t.keyAt(slot))
				}
			}
		}
		*at = uint64(b + 1)
	}
}

// Mend repairs what a writer that was killed in the middle of a change has left, in an open set
// too. It costs a glance where there is nothing.
func (s *Set) Mend() {
	if atomic.LoadUint32(s.mem.U32(AtDirty)) != 0 || !s.sound() {
		s.repair()
	}
}

// sound says whether the bookkeeping can be believed as far as a glance tells.
func (s *Set) sound() bool {
	total, ok := s.index.Sound()
	return ok && total == *s.mem.U32(AtTotal) && total <= uint32(s.max)
}

// repair counts everything anew after a writer was killed. Slots that hold no possible entry are
// freed, and so is the second copy of an entry that was being moved. Programs may be reading: a
// bucket's spilled count is never too low.
func (s *Set) repair() {
	s.begin()
	defer s.end()
	for n := range s.Tables {
		t := &s.Tables[n]
		spilled := make([]uint32, t.Buckets)
		for at, k := range t.Entries() {
			first, ok := t.checked(at, k)
			if !ok {
				t.Vacate(at)
			} else if first != at.bucket {
				spilled[first]++
			}
		}
		for b, n := range spilled {
			atomic.StoreUint32(t.spilled(b), n)
		}
	}
	*s.mem.U32(AtTotal) = s.index.Recount()
	*s.mem.U64(atEnds) = 0
	*s.mem.U64(atScanned) = 0
}

// checked says whether the slot holds an entry that belongs there and is not the second copy of
// one, and which is its first bucket.
func (t *Table) checked(s Slot, k Key) (first int, ok bool) {
	m := *t.meta(s)
	if int(m&metaCode) > t.Codes || !t.set.index.Possible(t, k) {
		return 0, false
	}
	first, second, tag := t.hash(k)
	if m&metaTag != tag || s.bucket != first && s.bucket != second {
		return 0, false
	}
	other, found := t.findIn(first, k, tag)
	return first, found == 0 || other == s
}
