package ledger

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// Change gives one origin in one set exactly these leases, also where they end sooner than those
// that it has, takes out what is gone, and notes positions, all or nothing, on the disk when it
// returns. Since of a lease that was there stays.
func (l *Ledger) Change(set, origin string, leases []Lease, gone []Entry,
	positions map[string][]byte) error {
	return l.update(func(tx *bbolt.Tx) error {
		s, err := l.number(tx, sets, set)
		if err != nil {
			return err
		}
		o, err := l.number(tx, origins, origin)
		if err != nil {
			return err
		}
		key := func(e Entry) []byte {
			return binary.BigEndian.AppendUint16(entryKey(s, e), o)
		}
		for _, p := range gone { // first: they make room
			k := key(p)
			b := bucketOf(tx, k)
			if b.Get(k) == nil {
				continue
			}
			if err := b.Delete(k); err != nil {
				return err
			}
			l.leases--
		}
		for i := range leases {
			of := &leases[i]
			k := key(of.Entry)
			b := bucketOf(tx, k)
			since := of.Since
			if v := b.Get(k); v != nil {
				old, err := l.decode(k, v)
				if err != nil {
					return err
				}
				since = old.Since
			} else if l.leases >= MaxLeases {
				return ErrFull
			} else {
				l.leases++
			}
			if err := b.Put(k, value(k, since, of.Until)); err != nil {
				return err
			}
		}
		return notePositions(tx, positions)
	})
}

// value is what stands in the file under a key.
func value(k []byte, since, until time.Time) []byte {
	v := binary.BigEndian.AppendUint64(make([]byte, 0, valueBytes), uint64(since.UnixMilli()))
	ms := uint64(0)
	if !until.IsZero() {
		ms = uint64(until.UnixMilli())
	}
	v = binary.BigEndian.AppendUint64(v, ms)
	return binary.BigEndian.AppendUint32(v, sum(k, v))
}

func notePositions(tx *bbolt.Tx, positions map[string][]byte) error {
	for name, p := range positions {
		if err := tx.Bucket(bucketPositions).Put([]byte(name), p); err != nil {
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

// Entries visits the leases of entries, in their order, with the number of the entry.
func (l *Ledger) Entries(set string, entries []Entry, visit func(int, Lease)) error {
	n, known := l.names[sets][set]
	if !known {
		return nil
	}
	return l.view(func(tx *bbolt.Tx) error {
		for i, e := range entries {
			start := entryKey(n, e)
			c := bucketOf(tx, start).Cursor()
			for k, v := c.Seek(start); len(k) == len(start)+originKey &&
				bytes.HasPrefix(k, start); k, v = c.Next() {
				lease, err := l.decode(k, v)
				if err != nil {
					return err
				}
				visit(i, lease)
			}
		}
		return nil
	})
}
