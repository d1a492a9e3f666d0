// Package newcomers tells clients who come while a limit on strangers holds a flood from the flood
// (docs/explanation/decisions/0238-newcomers.md).
package newcomers

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/agent/known"
)

// Sources are those of a flood that a limit on strangers holds. Who comes once that is in force,
// and comes again as clients do, is told from it by samples of what the limit drops.
type Sources struct {
	of      map[netip.Addr]coming
	since   time.Time // of the first
	packets float64   // of all of them, from
	from    time.Time // then on, and
	rate    float64   // a second in the time before that; 0: there was none
	swept   time.Time // when room was made last
	// Packets of those that a limit spares, since a time, and who sent more than clients do then.
	spared map[netip.Addr]float64
	watch  time.Time
	out    map[netip.Addr]bool
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
	// ofComing is the share of what comes that newcomers have at most. Where more come again, the
	// flood does.
	ofComing = 0.02
	// unseen is the number of samples that one of the flood would have before its first. It has
	// none then with a chance of 0.7 %.
	unseen = 5
)

// Came takes a sample of a stranger, which stands for so many packets.
func (n *Sources) Came(now time.Time, from netip.Addr, weight float64) {
	if n.of == nil {
		n.of, n.since, n.from = map[netip.Addr]coming{}, now, now
	}
	if now.Sub(n.from) >= learning {
		n.rate, n.packets, n.from = n.packets/now.Sub(n.from).Seconds(), 0, now
	}
	n.packets += weight
	if n.Spares(from) {
		n.spared[from] += weight
		return
	}
	if n.out[from] {
		return
	}
	c, there := n.of[from]
	if !there {
		if len(n.of) >= mostComing && !n.makesRoom(now) {
			return
		}
		c.first = now
	}
	c.last = now
	c.samples++
	c.packets += weight
	n.of[from] = c
}

// makesRoom lets go of who came once, and of who is gone.
func (n *Sources) makesRoom(now time.Time) bool {
	if now.Sub(n.swept) < sweepEvery {
		return false
	}
	n.swept = now
	maps.DeleteFunc(n.of, func(_ netip.Addr, c coming) bool {
		gone := now.Sub(c.last)
		return gone > againFor || c.samples == 1 && gone > onceFor
	})
	return len(n.of) < mostComing
}

// Clients returns who comes again like clients, the first first: all who do where these are few, as
// of a flood from drawn addresses; else those that came so late that the flood has nobody like
// them. Who sends more than so many packets a second is no client.
func (n *Sources) Clients(now time.Time, most float64) []netip.Addr {
	again := func(c coming) bool {
		return c.packets <= most*now.Sub(c.first).Seconds() && c.samples >= comesAgain &&
			c.last.Sub(c.first) >= comesFor && now.Sub(c.last) < goneAfter
	}
	late := func(c coming) bool {
		rate := float64(c.samples) / now.Sub(c.first).Seconds()
		return again(c) && rate*c.first.Sub(n.since).Seconds() >= unseen
	}
	kinds := []func(coming) bool{again, late}
	if now.Sub(n.since) < learning { // who has yet to come again is no reason
		kinds = kinds[1:]
	}
	rate := n.rate
	if rate == 0 {
		rate = n.packets / max(1, now.Sub(n.from).Seconds())
	}
	for _, is := range kinds {
		var out []netip.Addr
		sum := 0.0
		for from, c := range n.of {
			if is(c) {
				out, sum = append(out, from), sum+c.packets/now.Sub(c.first).Seconds()
			}
		}
		if sum <= ofComing*rate {
			slices.SortFunc(out, func(a, b netip.Addr) int {
				if d := n.of[a].first.Compare(n.of[b].first); d != 0 {
					return d
				}
				return a.Compare(b)
			})
			return out
		}
	}
	return nil
}

// Spared notes sources that a limit spares from now on.
func (n *Sources) Spared(now time.Time, all []netip.Addr) {
	if n.spared == nil {
		n.spared, n.out, n.watch = map[netip.Addr]float64{}, map[netip.Addr]bool{}, now
	}
	for _, a := range all {
		delete(n.of, a)
		n.spared[a] = 0
	}
}

// Rest forgets all but whom the limit spares, and whom it did: the flood pauses.
func (n *Sources) Rest() { *n = Sources{spared: n.spared, watch: n.watch, out: n.out} }

// Spares says whether a limit spares a source.
func (n *Sources) Spares(from netip.Addr) bool {
	_, is := n.spared[from]
	return is
}

// TooMuch returns spared sources that send more than so many packets a second now, as bots do that
// waited for it. They are newcomers no more.
func (n *Sources) TooMuch(now time.Time, most float64) (all []netip.Addr) {
	bar := most * (1 + now.Sub(n.watch).Seconds())
	for a, packets := range n.spared {
		if packets > bar {
			all = append(all, a)
			delete(n.spared, a)
			if len(n.out) < mostComing {
				n.out[a] = true
			}
		}
	}
	if now.Sub(n.watch) >= watched {
		n.watch = now
		for a := range n.spared {
			n.spared[a] = 0
		}
	}
	return all
}

// Without returns a limit on strangers that spares some sources no more, and how many it had.
func Without(text string, some []netip.Addr) (_ string, n int) {
	head, words, tail, ok := listed(text)
	if !ok {
		return text, 0
	}
	was := len(words)
	words = slices.DeleteFunc(words, func(word string) bool {
		a, err := netip.ParseAddr(word)
		return err == nil && slices.Contains(some, a)
	})
	if len(words) == 0 { // a list has one
		return text, 0
	}
	return head + strings.Join(words, ", ") + tail, was - len(words)
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
func Sparing(text string, more []netip.Addr) (_ string, added []netip.Addr) {
	head, words, tail, ok := listed(text)
	if !ok {
		return text, nil
	}
	var all []netip.Prefix
	for _, word := range words {
		p, err := netip.ParsePrefix(word)
		if err != nil {
			a, err := netip.ParseAddr(word)
			if err != nil {
				return text, nil // of a later version
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		all = append(all, p)
	}
	named := known.NewPrefixes(all)
	for _, a := range more {
		if len(words) < known.Most && a.Is4() == all[0].Addr().Is4() && !named.Has(a) {
			words, added = append(words, a.String()), append(added, a)
		}
	}
	return head + strings.Join(words, ", ") + tail, added
}
