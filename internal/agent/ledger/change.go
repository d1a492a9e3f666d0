package ledger

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// Change sets leases of one origin in one set, even to an earlier end, removes the entries of gone,
// and stores positions. Each entry may be there once. All of it is one transaction, which is on the
// disk when Change returns; with an error nothing has changed. An existing lease keeps its Since.
// Leases in the order of their entries are fastest.
func (l *Ledger) Change(set, origin string, leases []Lease, gone []Entry,
	positions map[string][]byte) error {
	return l.write(leases, positions, func(tx *bbolt.Tx) error {
		s, err := l.number(tx, sets, set)
		if err != nil {
			return err
		}
		o, err := l.number(tx, origins, origin)
		if err != nil {
			return err
		}
		b := bucketsOf(tx)
		for _, p := range gone { // first: they make room
			k := binary.BigEndian.AppendUint16(entryKey(s, p), o)
			in := b.of(k)
			if in.Get(k) == nil {
				continue
			}
			if err := in.Delete(k); err != nil {
				return err
			}
			l.leases--
		}
		old, err := l.had(b, s, o, leases)
		if err != nil {
			return err
		}
		var k []byte
		values := make([]byte, 0, len(leases)*valueBytes) // which bbolt holds until the end
		for i := range leases {
			of, since := &leases[i], leases[i].Since
			if old[i].Origin != "" {
				since = old[i].Since
			} else if l.leases >= MaxLeases {
				return ErrFull
			} else {
				l.leases++
			}
			k = binary.BigEndian.AppendUint16(appendKey(k[:0], s, of.Entry), o)
			at := len(values)
			values = l.appendValue(values, k, since, of.Until)
			if err := b.of(k).Put(k, values[at:len(values):len(values)]); err != nil {
				return err
			}
		}
		return nil
	})
}

// write makes a change of leases, and notes them and positions, in one transaction.
func (l *Ledger) write(leases []Lease, positions map[string][]byte,
	change func(*bbolt.Tx) error) error {
	next := l.clock
	err := l.update(func(tx *bbolt.Tx) (err error) {
		if err := change(tx); err != nil {
			return err
		}
		if next, err = l.clock.note(tx, leases); err != nil {
			return err
		}
		return notePositions(tx, positions)
	})
	if err == nil {
		l.clock = next
	}
	return err
}

// had returns the leases that an origin has of a set for the entries of others, or the zero value.
func (l *Ledger) had(b buckets, set, origin uint16, of []Lease) ([]Lease, error) {
	out, w := make([]Lease, len(of)), walk{buckets: b, set: set}
	for i := range of {
		err := w.each(of[i].Entry, func(k, v []byte) (err error) {
			if binary.BigEndian.Uint16(k[len(k)-originKey:]) == origin {
				out[i], err = l.decode(k, v)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// value returns what stands in the file under a key.
func (l *Ledger) value(k []byte, since, until time.Time) []byte {
	return l.appendValue(make([]byte, 0, valueBytes), k, since, until)
}

func (l *Ledger) appendValue(v, k []byte, since, until time.Time) []byte {
	at := len(v)
	v = binary.BigEndian.AppendUint64(v, l.clock.stamp(since))
	ms := uint64(0)
	if !until.IsZero() {
		ms = l.clock.stamp(until)
	}
	v = binary.BigEndian.AppendUint64(v, ms)
	return binary.BigEndian.AppendUint32(v, sum(k, v[at:]))
}

func notePositions(tx *bbolt.Tx, positions map[string][]byte) error {
	for name, p := range positions {
		if err := note(tx, []byte(name), p); err != nil {
			return err
		}
	}
	return nil
}

// update is one transaction; after an error all is as before.
func (l *Ledger) update(do func(*bbolt.Tx) error) (err error) {
	if l.db == nil {
		return ErrClosed
	}
	defer l.guard(&err)
	before := l.leases
	known := [2]int{len(l.words[0]), len(l.words[1])}
	err = l.db.Update(do)
	if err != nil {
		l.leases = before
		for kind, n := range known { // names that were not written
			for _, name := range l.words[kind][n:] {
				delete(l.names[kind], name)
			}
			l.words[kind] = l.words[kind][:n]
		}
		return fmt.Errorf("write the ledger: %w", err)
	}
	return nil
}

// Of visits the leases of an origin in a set, in the order of their keys, from the one behind a
// place on, nil for the first. After enough of the set it returns the place where to go on; nil at
// its end.
func (l *Ledger) Of(set, origin string, after []byte, visit func(Lease)) (next []byte, err error) {
	s, known := l.names[sets][set]
	o, also := l.names[origins][origin]
	if !known || !also {
		return nil, nil
	}
	start := binary.BigEndian.AppendUint16(nil, s)
	err = l.view(func(tx *bbolt.Tx) error {
		c := &cursor{tx: tx, prefix: start}
		k, v := c.seek(slices.Concat(start, after))
		for n := 0; k != nil; k, v = c.next() {
			if bytes.Equal(k[2:], after) {
				continue
			}
			if n++; binary.BigEndian.Uint16(k[len(k)-originKey:]) == o {
				lease, err := l.decode(k, v)
				if err != nil {
					return err
				}
				visit(lease)
			}
			if n == visited {
				next = bytes.Clone(k[2:])
				return nil
			}
		}
		return nil
	})
	return next, err
}

// Entries visits the leases of entries, with the number of the entry. It is fastest where these are
// in their order.
func (l *Ledger) Entries(set string, entries []Entry, visit func(int, Lease)) error {
	n, known := l.names[sets][set]
	if !known {
		return nil
	}
	return l.view(func(tx *bbolt.Tx) error {
		w := walk{buckets: bucketsOf(tx), set: n}
		for i, e := range entries {
			err := w.each(e, func(k, v []byte) error {
				lease, err := l.decode(k, v)
				if err == nil {
					visit(i, lease)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// walk goes from entry to entry of a set. It seeks only what the last step has not passed: of
// entries in their order most are new, or next.
type walk struct {
	buckets
	set  uint16
	in   *bbolt.Cursor
	k, v []byte // the first behind what was asked for last
	from []byte // which is this
	key  []byte
}

// each visits the leases of an entry.
func (w *walk) each(e Entry, visit func(k, v []byte) error) error {
	w.key = appendKey(w.key[:0], w.set, e)
	passed := w.in != nil && isName(w.key) == isName(w.from) && bytes.Compare(w.key, w.from) > 0
	if !passed {
		w.in = w.of(w.key).Cursor()
	}
	if !passed || w.k != nil && bytes.Compare(w.k, w.key) < 0 {
		w.k, w.v = w.in.Seek(w.key)
	}
	w.from, w.key = w.key, w.from
	for len(w.k) == len(w.from)+originKey && bytes.HasPrefix(w.k, w.from) {
		if err := visit(w.k, w.v); err != nil {
			return err
		}
		w.k, w.v = w.in.Next()
	}
	return nil
}
