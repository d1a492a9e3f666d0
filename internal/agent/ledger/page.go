package ledger

import (
	"bytes"
	"encoding/hex"
	"errors"

	"go.etcd.io/bbolt"
)

// visited is the largest number of leases that one page looks at, matching or not: a page of a rare
// kind may be short and have others behind it.
const visited = 100_000

// ErrPlace is wrapped where a place in the list is none.
var ErrPlace = errors.New("this is no place in the list: take the one that the page before gave")

// Page visits leases from the one behind a place on, "" for the first, until visit returns false or
// enough were visited. next is the place of the next page, "" where there is none.
func (l *Ledger) Page(after string, visit func(Lease) bool) (next string, err error) {
	from, err := hex.DecodeString(after)
	if err != nil || after != "" && entryOf(from) == nil {
		return "", ErrPlace
	}
	err = l.view(func(tx *bbolt.Tx) error {
		c := &cursor{tx: tx}
		k, v := c.seek(from)
		if after != "" && bytes.Equal(k, from) {
			k, v = c.next()
		}
		for n := 0; k != nil; k, v = c.next() {
			lease, err := l.decode(k, v)
			if err != nil {
				return err
			}
			n++
			if more := visit(lease); more && n < visited {
				continue
			}
			here := hex.EncodeToString(k)
			if k, _ = c.next(); k != nil {
				next = here
			}
			return nil
		}
		return nil
	})
	return next, err
}
