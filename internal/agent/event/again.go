package event

import (
	"hash/maphash"
	"maps"
	"time"

	"levee/internal/agent/ledger"
)

// maxNewest is the number of events of the newest time that are told apart.
const maxNewest = 4096

// again knows which events were judged before, where a place holds them again: a log that an
// editor, or sed -i, has written anew. Events that say when they were are old there up to the
// newest that was judged, until the first that is not. Of those of that same time, which a log of
// whole seconds has many of, the records decide; in a renewal that holds older events too, and so
// is the log with other words, the addresses do.
type again struct {
	renewal   uint64
	first     bool      // nothing was read of the renewal yet
	old       bool      // nothing new was read of the renewal yet
	rewritten bool      // it holds what is older than newest
	newest    time.Time // of all that were judged
	ahead     bool      // it was still to come when it was judged: what writes is ahead
	judged    time.Time // when something was, by this clock
	at        *newest   // what was of that time; nil: not known
	left      *newest   // of these, what the renewal has not held yet
	seed      maphash.Seed
}

// newest counts events of one time.
type newest struct {
	records   map[uint64]int // by hash
	addresses map[ledger.Entry]int
}

func noNewest() *newest { return &newest{map[uint64]int{}, map[ledger.Entry]int{}} }

func (n *newest) clone() *newest {
	if n == nil {
		return nil
	}
	return &newest{maps.Clone(n.records), maps.Clone(n.addresses)}
}

func newAgain() *again { return &again{seed: maphash.MakeSeed(), at: noNewest()} }

// begin says to which renewal of the place the next record belongs.
func (g *again) begin(renewal uint64) {
	if renewal > g.renewal {
		g.renewal, g.left = renewal, g.at.clone()
		g.first, g.old, g.rewritten = true, true, false
	}
}

// Clocks of those who write.
const (
	maxAhead = 24 * time.Hour // further ahead none is: such an event is of now
	mended   = time.Minute    // events behind that are so much older say that the clock was set
)

// is tells whether a record of an event of an address that was at a time is one that was judged
// before, and notes it where it is not. The clock of what writes may be ahead of this one, until
// somebody sets it: then a renewal that begins with what was since the last judgement is a new log.
// This one that was set back leaves no events of times to come.
func (g *again) is(record []byte, of ledger.Entry, renewal uint64, at, now time.Time) bool {
	ahead := at.After(now)
	if at.Sub(now) > maxAhead {
		at, ahead = now, false
	}
	begins := g.first && renewal == g.renewal && !at.Before(g.judged)
	g.first, g.judged = g.first && renewal != g.renewal, now
	switch {
	case !g.newest.After(now):
		g.ahead = false
	case !g.ahead:
		g.newest, g.at, g.left = now, noNewest(), noNewest()
	case begins && !ahead:
		g.newest, g.at, g.left, g.ahead = at, noNewest(), noNewest(), false
	case !ahead && !(g.old && renewal == g.renewal) && g.newest.Sub(at) > mended:
		g.newest, g.at, g.ahead = at, noNewest(), false
	}
	hash := maphash.Bytes(g.seed, record)
	after := at.Compare(g.newest)
	if g.old && renewal == g.renewal {
		if after < 0 {
			g.rewritten = true
			return true
		}
		if after == 0 && g.before(hash, of) {
			return true
		}
		g.old = false
	}
	switch {
	case after > 0:
		g.newest, g.at, g.ahead = at, noNewest(), ahead
		g.at.records[hash], g.at.addresses[of] = 1, 1
	case after == 0 && g.at != nil && len(g.at.records) < maxNewest:
		g.at.records[hash]++
		g.at.addresses[of]++
	}
	return false
}

// before says whether an event of the newest time was judged before the renewal, and takes it off
// what is left.
func (g *again) before(hash uint64, of ledger.Entry) bool {
	switch {
	case g.left == nil:
		return true
	case g.rewritten && g.left.addresses[of] == 0, !g.rewritten && g.left.records[hash] == 0:
		return false
	}
	g.left.records[hash]--
	g.left.addresses[of]--
	return true
}
