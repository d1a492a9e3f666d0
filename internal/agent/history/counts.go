package history

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Reading is a counter as it stood at a moment. It grows, but for when it begins anew.
type Reading struct {
	Series
	Packets, Bytes uint64
}

// Limits of Counts.
const (
	// mostRules is the largest number of rules that have series of their own: those that count
	// most.
	mostRules = 192
	// mostLate is the longest time that two readings may be apart. What was counted meanwhile is
	// spread over the seconds between them; after a longer pause nobody knows when it came.
	mostLate = 10 * time.Second
	// choose is the number of seconds that pass before rules with series of their own are chosen
	// again.
	choose = 60
)

// Counts makes what was counted in a second of what counters said before and after it. The zero
// value is ready.
type Counts struct {
	last   time.Time // reading, with its monotonic clock
	unix   int64     // the same by the wall clock
	before map[Key]Reading
	weight map[Key]float64 // of rules, where there are too many
	own    map[Key]bool
	chosen int64
}

// Second holds the counts of one second, which is named by its Unix time.
type Second struct {
	Unix    int64
	Amounts []Amount
}

// Read takes a reading of all counters at a moment; now has a monotonic clock, unless the wall
// clock was never set. Out come the seconds that are complete by it, none after the first reading.
// A counter that is smaller than before has begun anew. One that appears beside others of its
// interface has counted since then; one whose interface appears has not been watched. Rules with a
// verdict are summed up by it, too.
func (c *Counts) Read(now time.Time, all []Reading) []Second {
	passed := now.Sub(c.last)
	if c.last.IsZero() {
		passed = -1
	}
	if passed >= 0 && passed < time.Second && now.Unix() == c.unix {
		return nil // the next reading takes it along
	}
	c.last = now
	return c.read(now.Unix(), passed, all)
}

// read is Read at a time by the wall clock, when so much has passed by the monotonic one since the
// reading before; less than nothing: there was none.
func (c *Counts) read(now int64, passed time.Duration, all []Reading) []Second {
	before, wall := c.before, now-c.unix
	c.unix, c.before = now, make(map[Key]Reading, len(all))
	known := map[string]bool{}
	for k := range before {
		known[k.Dev] = true
	}
	var out []Amount
	for _, r := range all {
		r.Series = r.Series.bounded()
		c.before[r.Key] = r
		b, there := before[r.Key]
		if !there && !known[r.Dev] {
			continue
		}
		a := Amount(r)
		if r.Packets >= b.Packets && r.Bytes >= b.Bytes {
			a.Packets, a.Bytes = r.Packets-b.Packets, r.Bytes-b.Bytes
		}
		out = append(out, a)
	}
	if passed < 0 || passed > mostLate {
		return nil
	}
	out = append(c.fewer(now, out), verdicts(out)...)
	seconds := int64(1)
	// a clock that was set says nothing about how many seconds were counted
	if d := time.Duration(wall)*time.Second - passed; wall > 1 && d.Abs() < 2*time.Second {
		seconds = wall
	}
	return spread(now, seconds, out)
}

// verdicts returns the sums of rules by what becomes of their packets.
func verdicts(all []Amount) (out []Amount) {
	at := map[Key]int{}
	for _, a := range all {
		if a.Kind != Rule || a.Verdict == "" {
			continue
		}
		k := Key{a.Dev, Verdict, a.Verdict}
		i, there := at[k]
		if !there {
			i = len(out)
			at[k] = i
			out = append(out, Amount{Series: Series{Key: k, Verdict: a.Verdict}})
		}
		out[i].Packets += a.Packets
		out[i].Bytes += a.Bytes
	}
	return out
}

// spread divides amounts among the seconds that end with one.
func spread(end, seconds int64, all []Amount) []Second {
	out := make([]Second, seconds)
	for i := range out {
		out[i].Unix = end - seconds + 1 + int64(i)
	}
	Spread(out, all)
	return out
}

// Spread divides amounts among seconds, which get them besides what they have; the sums stay.
func Spread(seconds []Second, all []Amount) {
	n := uint64(len(seconds))
	for i := range n {
		for _, a := range all {
			a.Packets = a.Packets*(i+1)/n - a.Packets*i/n
			a.Bytes = a.Bytes*(i+1)/n - a.Bytes*i/n
			seconds[i].Amounts = append(seconds[i].Amounts, a)
		}
	}
}

// fewer leaves the rules that count most a series each, and makes one of an interface's others.
func (c *Counts) fewer(now int64, all []Amount) []Amount {
	rules := 0
	for _, a := range all {
		if a.Kind == Rule {
			rules++
		}
	}
	if rules <= mostRules {
		c.weight, c.own = nil, nil
		return all
	}
	weight := make(map[Key]float64, rules)
	for _, a := range all {
		if a.Kind == Rule {
			weight[a.Key] = c.weight[a.Key]*0.999 + float64(a.Packets)
		}
	}
	c.weight = weight
	if c.own == nil || (now-c.chosen < 0 || now-c.chosen >= choose) {
		c.chosen, c.own = now, c.heaviest()
	}
	var out []Amount
	others := map[string]int{} // where in out
	for _, a := range all {
		if a.Kind != Rule || c.own[a.Key] {
			out = append(out, a)
			continue
		}
		at, there := others[a.Dev]
		if !there {
			at = len(out)
			others[a.Dev] = at
			out = append(out, Amount{
				Series: Series{Key: Key{a.Dev, Rule, Others}, Label: "other rules"}})
		}
		out[at].Packets += a.Packets
		out[at].Bytes += a.Bytes
	}
	return out
}

func (c *Counts) heaviest() map[Key]bool {
	keys := slices.Collect(maps.Keys(c.weight))
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(c.weight[b], c.weight[a]), // then those of before
			cmp.Compare(btoi(c.own[b]), btoi(c.own[a])), compareKeys(a, b))
	})
	own := map[Key]bool{}
	for _, k := range keys[:mostRules] {
		own[k] = true
	}
	return own
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
