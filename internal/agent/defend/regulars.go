package defend

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"
)

// regulars are the sources of good traffic, with how much usually comes of each and how much of
// that rules in force drop. Whoever forges such a source is not believed: a rule costs a regular
// only what is missing of what usually comes.
type regulars struct {
	of      map[netip.Addr]*regular
	known   map[int]string // labels of live rules, by slot of the program in force
	dropped []frame        // of them, the last
	next    int
}

// regular is one source.
type regular struct {
	usual   float64         // packets a second
	second  float64         // that pass in this second
	passed  float64         // the same with those before, each half as much as the next
	dropped map[string]lost // by rule
	seen    time.Time
	times   int // seconds in which it was seen
}

// lost are packets that a rule has dropped, by samples that stand for several: with the squares of
// what each stands for, which say how sure that is.
type lost struct{ packets, squares float64 }

// Bounds of regulars.
const (
	mostRegulars = 1 << 13
	leastTimes   = 3   // a source is a regular that came in so many seconds
	learns       = 0.1 // part of a second in what is usual
	fades        = 0.5 // part of a second in the next
	mostDropped  = 500 // packets that are kept
	doubt        = 2.0 // standard deviations that may be missing, or be dropped, by chance
)

func newRegulars() *regulars { return &regulars{of: map[netip.Addr]*regular{}} }

// pass is told of a packet that has passed.
func (g *regulars) pass(now time.Time, from netip.Addr, weight float64, clean bool) {
	r := g.of[from]
	if r == nil {
		if !clean || !from.IsValid() || len(g.of) >= mostRegulars {
			return
		}
		r = &regular{dropped: map[string]lost{}}
		g.of[from] = r
	}
	r.second += weight
	r.seen = now
}

// drop is told of a packet that a live rule has dropped.
func (g *regulars) drop(label string, from netip.Addr, weight float64, f *frame) {
	r := g.of[from]
	if r == nil || r.times < leastTimes {
		return
	}
	was := r.dropped[label]
	r.dropped[label] = lost{was.packets + weight, was.squares + weight*weight}
	if len(g.dropped) < mostDropped {
		g.dropped = append(g.dropped, *f)
		return
	}
	g.dropped[g.next] = *f
	g.next = (g.next + 1) % mostDropped
}

// second ends a second, and says which share of all good packets each rule drops. What comes in a
// clean one, without rules in force, is usual.
func (g *regulars) second(now time.Time, clean bool) map[string]float64 {
	all := 0.0
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
		}
		r.passed, r.second = fades*r.passed+r.second, 0
		all += r.usual
	}
	out := map[string]float64{}
	if all > 0 && !clean {
		for _, label := range g.known {
			out[label] = 0
		}
		g.costs(out, all)
	}
	for _, r := range g.of {
		for label, l := range r.dropped {
			r.dropped[label] = lost{l.packets * fades, l.squares * fades}
			if clean || l.packets < 0.01 {
				delete(r.dropped, label)
			}
		}
	}
	return out
}

// costs are the shares of all good packets that rules drop.
func (g *regulars) costs(out map[string]float64, all float64) {
	type sum struct {
		lost
		usual, passed float64
	}
	sums := map[string]*sum{}
	for _, r := range g.of {
		for label, n := range r.dropped {
			s := sums[label]
			if s == nil {
				s = &sum{}
				sums[label] = s
			}
			s.packets += n.packets
			s.squares += n.squares
			s.usual += r.usual / (1 - fades)
			s.passed += r.passed
		}
	}
	for label, s := range sums {
		missing := min(s.packets-doubt*math.Sqrt(s.squares),
			s.usual-s.passed-doubt*math.Sqrt(s.usual))
		out[label] = max(0, missing) * (1 - fades) / all
	}
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
			clear(r.dropped)
		}
	}
}
