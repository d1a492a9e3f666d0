package event

import (
	"hash/maphash"
	"maps"
	"time"
)

// maxNewest is how many events of the newest time are told apart.
const maxNewest = 4096

// again knows which events were judged before, where a place holds them again: a log that an
// editor, or sed -i, has written anew. Events that say when they were are old there up to the
// newest that was judged, until the first that is not. Of those of that same time, which a log of
// whole seconds has many of, the records decide.
type again struct {
	renewal uint64
	old     bool           // nothing new was read of the renewal yet
	newest  time.Time      // of all that were judged
	records map[uint64]int // of that time, by hash; nil: not known
	left    map[uint64]int // of these, what the renewal has not held yet
	seed    maphash.Seed
}

func newAgain() *again { return &again{seed: maphash.MakeSeed(), records: map[uint64]int{}} }

// begin says which renewal of the place the next record is of.
func (g *again) begin(renewal uint64) {
	if renewal > g.renewal {
		g.renewal, g.old, g.left = renewal, true, maps.Clone(g.records)
	}
}

// is tells whether a record of an event that was at a time is one that was judged before, and notes
// it where it is not. A clock that was set back leaves no events of times to come.
func (g *again) is(record []byte, renewal uint64, at, now time.Time) bool {
	if at.After(now) {
		at = now
	}
	if g.newest.After(now) {
		g.newest, g.records, g.left = now, map[uint64]int{}, map[uint64]int{}
	}
	hash := maphash.Bytes(g.seed, record)
	after := at.Compare(g.newest)
	if g.old && renewal == g.renewal {
		if after < 0 || after == 0 && (g.records == nil || g.left[hash] > 0) {
			if after == 0 && g.left != nil {
				g.left[hash]--
			}
			return true
		}
		g.old = false
	}
	switch {
	case after > 0:
		g.newest, g.records = at, map[uint64]int{hash: 1}
	case after == 0 && g.records != nil && len(g.records) < maxNewest:
		g.records[hash]++
	}
	return false
}
