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
	packets float64   // of all of them
	since   time.Time // of the first
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
	onceFor    = 2 * time.Second // who has one sample is forgotten after it, where there are many
	comesAgain = 2               // samples
	comesFor   = time.Second     // from the first to the last
	goneAfter  = 3 * time.Second
	learning   = 4 * time.Second // in which most of a flood that comes again has done so
	// ofComing is the share of all packets that newcomers have at most. Where more come again, the
	// flood does.
	ofComing = 0.02
	// unseen is the number of samples that one of the flood would have before its first. It has
	// none then with a chance of 0.7 %.
	unseen = 5
)

// Came takes a sample of a stranger, which stands for so many packets.
func (n *Sources) Came(now time.Time, from netip.Addr, weight float64) {
	if n.of == nil {
		n.of, n.since = map[netip.Addr]coming{}, now
	}
	n.packets += weight
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

// makesRoom lets go of who came once.
func (n *Sources) makesRoom(now time.Time) bool {
	maps.DeleteFunc(n.of, func(_ netip.Addr, c coming) bool {
		return c.samples == 1 && now.Sub(c.first) > onceFor
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
	for _, is := range kinds {
		var out []netip.Addr
		sum := 0.0
		for from, c := range n.of {
			if is(c) {
				out, sum = append(out, from), sum+c.packets
			}
		}
		if sum <= ofComing*n.packets {
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

// Spared forgets sources that a limit spares.
func (n *Sources) Spared(all []netip.Addr) {
	for _, a := range all {
		delete(n.of, a)
	}
}

// Sparing returns a limit on strangers with more sources that it spares, as far as it has room, and
// how many.
func Sparing(text string, more []netip.Addr) (_ string, n int) {
	head, rest, found := strings.Cut(text, " not from { ")
	list, tail, ends := strings.Cut(rest, " }")
	if !found || !ends {
		return text, 0
	}
	words := strings.Split(list, ", ")
	var all []netip.Prefix
	for _, word := range words {
		p, err := netip.ParsePrefix(word)
		if err != nil {
			a, err := netip.ParseAddr(word)
			if err != nil {
				return text, 0 // of a later version
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		all = append(all, p)
	}
	named := known.NewPrefixes(all)
	for _, a := range more {
		if len(all) < known.Most && a.Is4() == all[0].Addr().Is4() && !named.Has(a) {
			all, words, n = append(all, netip.PrefixFrom(a, a.BitLen())), append(words, a.String()),
				n+1
		}
	}
	return head + " not from { " + strings.Join(words, ", ") + " }" + tail, n
}
