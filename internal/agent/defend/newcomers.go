package defend

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"levee/internal/agent/episode"
	"levee/internal/agent/known"
	"levee/internal/packet"
)

// newcomers are the sources of a flood that a limit on strangers holds. Who comes once that is in
// force, and comes again as clients do, is told from it by samples of what the limit drops
// (docs/explanation/decisions/0238-newcomers.md).
type newcomers struct {
	of      map[netip.Addr]coming
	packets float64   // of all of them
	since   time.Time // of the first
}

// coming is one source of them.
type coming struct {
	first, last time.Time
	samples     int
	packets     float64 // that these stand for
}

// Bounds of newcomers.
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

// came takes a sample of a stranger, which stands for so many packets.
func (n *newcomers) came(now time.Time, from netip.Addr, weight float64) {
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
func (n *newcomers) makesRoom(now time.Time) bool {
	maps.DeleteFunc(n.of, func(_ netip.Addr, c coming) bool {
		return c.samples == 1 && now.Sub(c.first) > onceFor
	})
	return len(n.of) < mostComing
}

// clients returns who comes again like clients, the first first: all who do where these are few, as
// of a flood from drawn addresses; else those that came so late that the flood has nobody like
// them. Who sends more than so many packets a second is no client.
func (n *newcomers) clients(now time.Time, most float64) []netip.Addr {
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

// stranger takes a packet that came while a limit on strangers, or a flood before it, was there.
func (w *Watcher) stranger(now time.Time, p *packet.Packet, weight float64) {
	if p.IsIP() && !w.regulars.isRegular(p.Src) {
		w.newcomers.came(now, p.Src, weight)
	}
}

// welcome has limits on strangers spare newcomers, as long as these hold a flood.
func (w *Watcher) welcome(ctx context.Context, now time.Time) {
	limits, hold := w.floods.Strangers(now)
	if w.welcomes = hold; !hold {
		if !w.floods.Busy() || len(limits) > 0 { // it is over
			w.newcomers = newcomers{}
		}
		return
	}
	all := w.newcomers.clients(now, max(minOfSource, mostStrange*w.regulars.typical))
	for _, l := range limits {
		if text, n := sparing(l.Rule.Rule, all); n > 0 {
			w.step(ctx, episode.Event{Spared: &episode.Spared{Label: l.Rule.Label, Rule: text,
				Sources: n}})
		}
	}
	for _, a := range all {
		delete(w.newcomers.of, a)
	}
}

// sparing returns a limit on strangers with more sources that it spares, as far as it has room, and
// how many.
func sparing(text string, more []netip.Addr) (_ string, n int) {
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
	named := newPrefixes(all)
	for _, a := range more {
		if len(all) < known.Most && a.Is4() == all[0].Addr().Is4() && !named.has(a) {
			all, words, n = append(all, netip.PrefixFrom(a, a.BitLen())), append(words, a.String()),
				n+1
		}
	}
	return head + " not from { " + strings.Join(words, ", ") + " }" + tail, n
}
