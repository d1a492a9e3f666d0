package event

import (
	"time"

	"levee/internal/agent/ledger"
)

// Bounds of a counter.
const (
	maxPrefixes = 1 << 17 // that are counted, or names
	maxLetters  = 1 << 23 // bytes of those names, of which one may have a thousand
	maxTimes    = 1 << 20 // of events that are remembered, of all prefixes
	fewPrefixes = 1 << 10 // that need no sweep
	sweepShare  = 16      // a sweep comes at most that often within the time of the counter
)

// Counter tells which prefixes have had so many events within a time. It remembers the last events
// of each, so that it is exact. Nobody is forgotten before his time is over, whatever others send;
// who finds no place is refused, and counted.
type Counter struct {
	n       int
	within  time.Duration
	seen    map[ledger.Entry][]int64 // ms since 1970, the last n
	times   int                      // in seen
	letters int                      // bytes of the names in seen
	swept   time.Time
	refused uint64
}

// newCounter makes a counter of n events within a time.
func newCounter(n int, within time.Duration) *Counter {
	return &Counter{n: n, within: within, seen: map[ledger.Entry][]int64{}}
}

func (c *Counter) is(n int, within time.Duration) bool { return c.n == n && c.within == within }

// Add counts an event of a prefix, which happened at a time and was read now, and tells whether
// it is one of n within the time. An event that is said to come from the future is of now; so are
// those that were counted before the clock was set back, which else would be the last for so long.
func (c *Counter) Add(p ledger.Entry, at, now time.Time) bool {
	if at.After(now) {
		at = now
	}
	t, within := at.UnixMilli(), c.within.Milliseconds()
	seen, known := c.seen[p]
	room := func() bool {
		return c.times < maxTimes && (known || len(c.seen) < maxPrefixes &&
			c.letters+len(p.Name) <= maxLetters)
	}
	if len(seen) < c.n && !room() {
		if now.Sub(c.swept).Abs() >= c.within/sweepShare {
			c.sweep(now)
			seen, known = c.seen[p]
		}
		if !room() {
			c.refused++
			return false
		}
	}
	if len(c.seen) > fewPrefixes && now.Sub(c.swept).Abs() >= c.within {
		c.sweep(now)
		seen, known = c.seen[p]
	}
	for i := len(seen) - 1; i >= 0 && seen[i] > now.UnixMilli(); i-- {
		seen[i] = now.UnixMilli()
	}
	// in the order of time: lines of several threads differ a little
	i := len(seen)
	for i > 0 && seen[i-1] > t {
		i--
	}
	c.times -= len(seen)
	if len(seen) < c.n {
		seen = append(seen, 0)
		copy(seen[i+1:], seen[i:])
		seen[i] = t
	} else if i > 0 {
		copy(seen, seen[1:i])
		seen[i-1] = t
	}
	c.times += len(seen)
	if !known {
		c.letters += len(p.Name)
	}
	c.seen[p] = seen
	last := seen[len(seen)-1]
	return len(seen) == c.n && last-seen[0] < within && t > last-within
}

// sweep forgets keys without an event in their window.
func (c *Counter) sweep(now time.Time) {
	c.swept = now
	end := now.Add(-c.within).UnixMilli()
	for p, seen := range c.seen {
		if seen[len(seen)-1] <= end {
			c.times -= len(seen)
			c.letters -= len(p.Name)
			delete(c.seen, p)
		}
	}
}
