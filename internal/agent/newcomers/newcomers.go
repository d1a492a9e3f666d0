// Package newcomers tells clients who come while a limit on strangers holds a flood from the flood
// (docs/explanation/decisions/0238-newcomers.md, 0240-late-newcomers.md).
package newcomers

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/agent/known"
)

// Sources are those of a flood that a limit on strangers holds. Who comes once that is in force,
// and comes again as clients do, is told from it by samples of what the limit drops. A source of
// IPv6 is a /64: a host draws its addresses there.
type Sources struct {
	of      map[netip.Prefix]coming
	since   time.Time // that all of them are seen
	packets float64   // of all of them, from
	from    time.Time // then on, and
	rate    float64   // a second in the time before that; 0: there was none
	swept   time.Time // when room was made last
	// Those that a limit spares, since when their packets are counted, and who sent more than
	// clients do then.
	spared map[netip.Prefix]sparedOne
	watch  time.Time
	out    map[netip.Prefix]bool
}

// sparedOne is a source that a limit spares.
type sparedOne struct {
	packets float64   // since they are counted
	rate    float64   // a second in the time before that
	last    time.Time // it came
}

// network returns the source of an address.
func network(a netip.Addr) netip.Prefix {
	bits := 32
	if !a.Is4() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // of no address there is none
	return p
}

// coming is one of them.
type coming struct {
	first, last time.Time
	samples     int
	packets     float64 // that these stand for
}

// Bounds of sources.
const (
	mostComing = 1 << 16
	onceFor    = 2 * time.Second  // who has one sample is forgotten after it, where there are many
	againFor   = 10 * time.Second // who has more, the same
	sweepEvery = time.Second      // all are looked at, which takes a millisecond
	comesAgain = 2                // samples
	comesFor   = time.Second      // from the first to the last
	goneAfter  = 3 * time.Second
	watched    = 3 * time.Second // in which spared sources are counted
	learning   = 4 * time.Second // in which most of a flood that comes again has done so
	// silent is the time after which who is spared leaves his place to others.
	silent = 30 * time.Second
	// ofComing is the share of what strangers send that newcomers have at most. Where more come
	// again, the flood does: ofLate is the share of it that late ones have.
	ofComing = 0.02
	ofLate   = 0.01
	// unseen is the number of samples that one of the flood would have before its first: it has
	// none then with a chance of 1.8 %.
	unseen = 4
)

// Begin says that all sources are seen from now on, as a limit on strangers has come into force.
// Before that a greylist, of which nobody tells, may have taken the first packets of each.
func (n *Sources) Begin(now time.Time) { n.since = now }

// Came takes a sample of a stranger, which stands for so many packets.
func (n *Sources) Came(now time.Time, from netip.Addr, weight float64) {
	if n.of == nil {
		n.of, n.from = map[netip.Prefix]coming{}, now
		n.since = now
	}
	if now.Sub(n.from) >= learning {
		n.rate, n.packets, n.from = n.packets/now.Sub(n.from).Seconds(), 0, now
	}
	n.packets += weight
	who := network(from)
	if s, is := n.spared[who]; is {
		s.packets, s.last = s.packets+weight, now
		n.spared[who] = s
		return
	}
	if n.out[who] {
		return
	}
	c, there := n.of[who]
	if !there {
		if len(n.of) >= mostComing && !n.makesRoom(now) {
			return
		}
		c.first = now
	}
	c.last = now
	c.samples++
	c.packets += weight
	n.of[who] = c
}

// makesRoom lets go of who came once, and of who is gone.
func (n *Sources) makesRoom(now time.Time) bool {
	if now.Sub(n.swept) < sweepEvery {
		return false
	}
	n.swept = now
	maps.DeleteFunc(n.of, func(_ netip.Prefix, c coming) bool {
		gone := now.Sub(c.last)
		return gone > againFor || c.samples == 1 && gone > onceFor
	})
	return len(n.of) < mostComing
}

// Clients returns who comes again like clients: all who do where these are few, as of a flood from
// drawn addresses; else those that came so late that the flood has few like them, as many as have a
// small share of the flood, of which rules drop so many packets a second: the limit may hold what
// little other rules leave. The surest come first. Who sends more than most packets a second is no
// client.
func (n *Sources) Clients(now time.Time, most, drops float64) []netip.Prefix {
	rate := n.rate
	if rate == 0 {
		rate = n.packets / max(1, now.Sub(n.from).Seconds())
	}
	var again []client
	sum := 0.0
	for from, c := range n.of {
		if c.packets <= most*now.Sub(c.first).Seconds() && c.samples >= comesAgain &&
			c.last.Sub(c.first) >= comesFor && now.Sub(c.last) < goneAfter {
			again = append(again, client{from, c.missed(now, n.since), c.rate(now)})
			sum += c.rate(now)
		}
	}
	// who has yet to come again is no reason
	few := now.Sub(n.since) >= learning && sum <= ofComing*rate
	if !few { // most are not late, and of a large flood it takes long to sort them
		again = slices.DeleteFunc(again, func(c client) bool { return c.missed < unseen })
	}
	slices.SortFunc(again, func(a, b client) int {
		return cmp.Or(cmp.Compare(b.missed, a.missed), a.from.Compare(b.from))
	})
	sum = 0
	for _, s := range n.spared {
		sum += s.rate
	}
	var out []netip.Prefix
	for _, c := range again {
		if few || sum+c.rate <= ofLate*max(rate, drops) {
			out = append(out, c.from)
			sum += c.rate
		}
	}
	return out
}

// client is a source that comes again.
type client struct {
	from         netip.Prefix
	missed, rate float64
}

// rate returns the packets a second of a source since it came.
func (c *coming) rate(now time.Time) float64 { return c.packets / now.Sub(c.first).Seconds() }

// missed returns the number of samples that a source would have had before its first, had it come
// since a time. Of those that it has so many are sure as chance leaves: one standard deviation
// less.
func (c *coming) missed(now, since time.Time) float64 {
	n := float64(c.samples)
	return (n - math.Sqrt(n)) / now.Sub(c.first).Seconds() * c.first.Sub(since).Seconds()
}

// Spared notes sources that a limit spares from now on.
func (n *Sources) Spared(now time.Time, all []netip.Prefix) {
	if n.spared == nil {
		n.spared, n.out, n.watch = map[netip.Prefix]sparedOne{}, map[netip.Prefix]bool{}, now
	}
	for _, from := range all {
		if _, is := n.spared[from]; is { // by another limit
			continue
		}
		s := sparedOne{last: now}
		if c, was := n.of[from]; was {
			s.rate = c.rate(now)
		}
		delete(n.of, from)
		n.spared[from] = s
	}
}

// All returns the sources that a limit spares, in order.
func (n *Sources) All() []netip.Prefix {
	return slices.SortedFunc(maps.Keys(n.spared), netip.Prefix.Compare)
}

// Rest forgets all but whom the limit spares, and whom it did: the flood pauses.
func (n *Sources) Rest() { *n = Sources{spared: n.spared, watch: n.watch, out: n.out} }

// Spares says whether a limit spares a source.
func (n *Sources) Spares(from netip.Addr) bool {
	_, is := n.spared[network(from)]
	return is
}

// Leaves returns spared sources that are newcomers no more: those that send more than so many
// packets a second now, as bots do that waited for it, and those that are gone.
func (n *Sources) Leaves(now time.Time, most float64) (all []netip.Prefix) {
	bar := most * (1 + now.Sub(n.watch).Seconds())
	for from, s := range n.spared {
		much := s.packets > bar
		if much || now.Sub(s.last) > silent {
			all = append(all, from)
			delete(n.spared, from)
		}
		if much && len(n.out) < mostComing {
			n.out[from] = true
		}
	}
	if long := now.Sub(n.watch); long >= watched {
		n.watch = now
		for from, s := range n.spared {
			s.packets, s.rate = 0, s.packets/long.Seconds()
			n.spared[from] = s
		}
	}
	return all
}

// Without returns a limit on strangers that spares some sources no more, and how many it had.
func Without(text string, some []netip.Prefix) (_ string, n int) {
	head, words, tail, ok := listed(text)
	if !ok {
		return text, 0
	}
	was := len(words)
	words = slices.DeleteFunc(words, func(word string) bool {
		p, ok := parsed(word)
		return ok && slices.Contains(some, p)
	})
	if len(words) == 0 { // a list has one
		return text, 0
	}
	return head + strings.Join(words, ", ") + tail, was - len(words)
}

// parsed reads an address or a network of a list.
func parsed(word string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(word); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(word)
	return p, err == nil
}

// listed takes a limit on strangers apart at its list.
func listed(text string) (head string, words []string, tail string, ok bool) {
	const begins, ends = " not from { ", " }"
	head, rest, found := strings.Cut(text, begins)
	list, tail, ended := strings.Cut(rest, ends)
	return head + begins, strings.Split(list, ", "), ends + tail, found && ended
}

// Sparing returns a limit on strangers with more sources that it spares, as far as it has room, and
// those.
func Sparing(text string, more []netip.Prefix) (_ string, added []netip.Prefix) {
	head, words, tail, ok := listed(text)
	if !ok {
		return text, nil
	}
	all := make([]netip.Prefix, len(words))
	for i, word := range words {
		if all[i], ok = parsed(word); !ok {
			return text, nil // of a later version
		}
	}
	named := known.NewPrefixes(all)
	for _, from := range more {
		if a := from.Addr(); len(words) < known.Most && a.Is4() == all[0].Addr().Is4() &&
			!named.Has(a) {
			words = append(words, strings.TrimSuffix(from.String(), "/32"))
			added = append(added, from)
		}
	}
	return head + strings.Join(words, ", ") + tail, added
}

// Last returns the n sources that Sparing has added to a limit on strangers: the last of its list.
func Last(text string, n int) (out []netip.Prefix) {
	_, words, _, ok := listed(text)
	if !ok {
		return nil
	}
	for _, word := range words[max(0, len(words)-max(0, n)):] {
		if p, ok := parsed(word); ok {
			out = append(out, p)
		}
	}
	return out
}
