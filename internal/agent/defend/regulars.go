package defend

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"levee/internal/agent/signature"
)

// regulars are the sources of good traffic, with how much usually comes of each and how much of
// that rules in force drop. Whoever forges such a source is not believed: a rule costs a regular
// only what is missing of what usually comes. Of who is no regular, and has done a handshake, as
// much is taken to be usual as comes of a regular on average.
type regulars struct {
	of      map[netip.Addr]*regular
	known   map[int]string        // labels of live rules, by slot of the program in force
	peer    func(netip.Addr) bool // says who has done a handshake; nil: nobody knows
	samples map[string]sampled    // what good samples say of live rules, by label
	began   time.Time             // of the first packet
	typical float64               // packets a second of one, on average
	dropped []frame               // of them, the last
	next    int
}

// regular is one source.
type regular struct {
	usual   float64 // packets a second
	second  float64 // that pass in this second
	sums    [len(windows)]sum
	first   time.Time // the zero time for who came in the first ten seconds of all
	seen    time.Time
	times   int  // seconds in which it was seen
	strange bool // it came with the flood, and has done a handshake
	late    late // what came of it since the traffic is unlike the time before
}

// late is the usual rate of one source of a crowd: packets a second, on average over the seconds in
// which it came.
type late struct {
	usual float64
	times int
}

// sum holds the packets of a source of late: those that came, and those that usually would have.
type sum struct {
	passed  float64
	usual   float64
	dropped map[string]lost // by rule
}

// sampled is the number of packets that a sample of good traffic has of each source, and how many
// of them a rule would drop.
type sampled map[netip.Addr]struct{ packets, dropped int }

// told is the number of a source's packets that say what it sends.
const told = 20

// windows are the shares of a count that are left after a second. The short one tells what costs
// much at once, the long one what costs little, which few samples show.
var windows = [...]float64{0.5, 0.95}

// lost are packets that a rule has dropped, by samples that stand for several: with the squares of
// what each stands for, which say how sure that is.
type lost struct{ packets, squares float64 }

// Bounds of regulars.
const (
	mostRegulars = 1 << 13
	begins       = 10 * time.Second // whose sources were there before
	minTimes     = 3                // a source is a regular that came in so many seconds
	learns       = 0.1              // part of a second in what is usual
	mostDropped  = 500              // packets that are kept
	doubt        = 2.0              // standard deviations that may be missing or dropped by chance
	// Who sends more than so many times what a regular does is no client, whatever its handshake.
	mostStrange = 4
)

func newRegulars() *regulars { return &regulars{of: map[netip.Addr]*regular{}} }

func newRegular() *regular {
	r := &regular{}
	for i := range r.sums {
		r.sums[i].dropped = map[string]lost{}
	}
	return r
}

// pass is told of a packet that has passed, and says whether its source is new.
func (g *regulars) pass(now time.Time, from netip.Addr, weight float64, clean bool) (isNew bool) {
	if g.began.IsZero() {
		g.began = now
	}
	r := g.of[from]
	if r == nil {
		if !clean || !from.IsValid() || len(g.of) >= mostRegulars {
			return false
		}
		r = newRegular()
		if now.Sub(g.began) > begins {
			r.first = now
		}
		g.of[from] = r
	}
	r.second += weight
	r.seen = now
	return now.Sub(r.first) < newFor
}

// isRegular says whether a source is a regular.
func (g *regulars) isRegular(from netip.Addr) bool {
	r := g.of[from]
	return r != nil && r.times >= minTimes
}

// drop is told of a packet that a live rule has dropped.
func (g *regulars) drop(label string, from netip.Addr, weight float64, f *frame) {
	r := g.of[from]
	if (r == nil || r.times < minTimes) && g.peer != nil && g.peer(from) {
		if r == nil && len(g.of) < mostRegulars {
			r = newRegular()
			r.seen, g.of[from] = f.at, r
		}
		if r != nil {
			r.strange = true
		}
	}
	if r == nil || r.times < minTimes && !r.strange {
		return
	}
	for i := range r.sums {
		was := r.sums[i].dropped[label]
		r.sums[i].dropped[label] = lost{was.packets + weight, was.squares + weight*weight}
	}
	if len(g.dropped) < mostDropped {
		g.dropped = append(g.dropped, *f)
		return
	}
	g.dropped[g.next] = *f
	g.next = (g.next + 1) % mostDropped
}

// came notes, at the end of a second without a flood, the traffic of late, in case a flood begins.
// A clean second resets the note of unusual traffic.
func (g *regulars) came(clean bool) {
	for _, r := range g.of {
		switch l := &r.late; {
		case clean:
			*l = late{}
		case r.second > 0:
			l.times++
			l.usual += max(learns, 1/float64(l.times)) * (r.second - l.usual)
		}
	}
}

// isCrowd says whether a source, of which so much comes now, was one of a crowd before a flood.
func (g *regulars) isCrowd(from netip.Addr, rate float64) bool {
	r := g.of[from]
	return r != nil && r.late.times >= minTimes && rate <= mostStrange*r.late.usual
}

// second ends a second, and says which share of all good packets each rule drops. What comes in a
// clean one, without rules in force, is usual.
func (g *regulars) second(now time.Time, clean bool) map[string]float64 {
	all, typical, n := 0.0, 0.0, 0
	for from, r := range g.of {
		if now.Sub(r.seen) > goodAge {
			delete(g.of, from)
			continue
		}
		if clean {
			if r.second > 0 {
				r.times++
			}
			r.usual += max(learns, 1/float64(max(1, r.times))) * (r.second - r.usual)
			r.strange = false
		}
		all += r.usual
		if r.times >= minTimes {
			typical, n = typical+r.usual, n+1
		}
	}
	typical /= float64(max(1, n))
	g.typical = typical
	for _, r := range g.of {
		usual := r.usual
		if r.strange && r.times < minTimes {
			usual = typical
		}
		for i, fades := range windows {
			s := &r.sums[i]
			s.passed, s.usual = fades*s.passed+r.second, fades*s.usual+usual
		}
		r.second = 0
	}
	out := map[string]float64{}
	if all > 0 && !clean {
		for _, label := range g.known {
			out[label] = 0
		}
		for i := range windows {
			g.collateral(out, all, typical, i)
		}
	}
	for _, r := range g.of {
		for i, fades := range windows {
			for label, l := range r.sums[i].dropped {
				r.sums[i].dropped[label] = lost{l.packets * fades, l.squares * fades}
				if clean || l.packets < 0.01 {
					delete(r.sums[i].dropped, label)
				}
			}
		}
	}
	return out
}

// total holds the packets that a rule takes from some sources.
type total struct {
	lost
	usual, passed float64
	sample        signature.Judged // of their packets before
}

// missing returns the number of good packets that a rule has dropped.
func (t *total) missing() float64 {
	return min(t.packets-doubt*math.Sqrt(t.squares), t.usual-t.passed-doubt*math.Sqrt(t.usual))
}

// cost holds the packets that a rule takes from all sources: those whose usual packets are in a
// sample, and others. It takes no more of the former than it would of their sample. Who came before
// a flood and stops then to be part of it would be missed else, whatever the rule is.
type cost struct{ known, others total }

func (c *cost) missing() float64 {
	known := c.known.missing()
	if c.known.sample.Packets > 0 {
		known = min(known, c.known.usual*c.known.sample.Highest())
	}
	return max(0, known) + max(0, c.others.missing())
}

// collateral is the shares of all good packets that rules drop, in a window, where that is more
// than is known.
func (g *regulars) collateral(out map[string]float64, all, typical float64, window int) {
	fades := windows[window]
	costs := map[string]*cost{}
	for from, r := range g.of {
		for label, l := range r.sums[window].dropped {
			if r.strange && l.packets*(1-fades) > mostStrange*typical {
				continue
			}
			c := costs[label]
			if c == nil {
				c = &cost{}
				costs[label] = c
			}
			t, s := &c.others, g.samples[label][from]
			if s.packets >= told {
				t = &c.known
				t.sample.Packets += s.packets
				t.sample.Dropped += s.dropped
			}
			t.packets += l.packets
			t.squares += l.squares
			t.usual += r.sums[window].usual
			t.passed += r.sums[window].passed
		}
	}
	for label, c := range costs {
		out[label] = max(out[label], c.missing()*(1-fades)/all)
	}
}

// sampled notes what good samples say of rules that are new. Those that are not in force are
// forgotten.
func (g *regulars) sampled(of map[string]sampled) {
	live := slices.Collect(maps.Values(g.known))
	maps.DeleteFunc(g.samples, func(label string, _ sampled) bool {
		return !slices.Contains(live, label)
	})
	if g.samples == nil {
		g.samples = map[string]sampled{}
	}
	maps.Copy(g.samples, of)
}

// spare are packets of regulars that rules have dropped of late. They are forgotten.
func (g *regulars) spare() []frame {
	out := slices.Clone(g.dropped)
	g.dropped, g.next = nil, 0
	return out
}

// rules notes which slots of the program in force are live rules.
func (g *regulars) rules(slots map[int]string) {
	if !maps.Equal(slots, g.known) {
		g.known = slots
		for _, r := range g.of {
			for i := range r.sums {
				clear(r.sums[i].dropped)
			}
		}
	}
}
