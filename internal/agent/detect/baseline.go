package detect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Baseline holds the knowledge of a Detector, for one that goes on after a restart. It has nothing
// of the last minutes, which may be the beginning of a flood.
type Baseline struct {
	Kinds    int       `json:"kinds"` // that rates are of: others mean others
	At       time.Time `json:"at"`
	Syn      float64   `json:"syn"`
	Fresh    float64   `json:"fresh"`
	All      Learned   `json:"all"`
	Networks []Network `json:"places"`
}

// Learned holds the usual rates of one place.
type Learned struct {
	Day  []rates   `json:"day"`
	Week []rates   `json:"week,omitempty"`
	Hour []rates   `json:"hour"` // minutes of this hour
	Last []rates   `json:"last"` // of the hour before
	At   time.Time `json:"at"`   // the minute
	// Bound holds the highest rates that may be usual; none before the opening is over.
	Bound rates `json:"bound"`
}

// Network is a source or destination network with its usual rates.
type Network struct {
	Prefix netip.Prefix `json:"prefix"`
	Source bool         `json:"source,omitempty"`
	Seen   time.Time    `json:"seen"`
	Learned
}

// Bounds of a baseline.
const (
	mostNetworks = 512 // the last that were seen
	baselineAge  = 8 * 24 * time.Hour
	restart      = time.Hour // after which the last hour says nothing
)

// Baseline returns what the detector has learned until a time.
func (d *Detector) Baseline(now time.Time) *Baseline {
	b := &Baseline{Kinds: numRates, At: now, Syn: d.usual.Syn, Fresh: d.usual.Fresh,
		All: d.learned(d.root, now)}
	for w, n := range d.nodes {
		l := d.learned(n, now)
		if n.prof.empty() && l.Bound == (rates{}) {
			continue
		}
		b.Networks = append(b.Networks, Network{w.prefix(), w.source(), n.seen, l})
	}
	slices.SortFunc(b.Networks, func(a, b Network) int {
		return cmp.Or(b.Seen.Compare(a.Seen), a.Prefix.Addr().Compare(b.Prefix.Addr()),
			cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	b.Networks = b.Networks[:min(mostNetworks, len(b.Networks))]
	return b
}

// learned returns what a node has learned. Beneath a flood of the beginning it knows no bound yet.
func (d *Detector) learned(n *node, now time.Time) Learned {
	l := n.prof.learned()
	if !n.prof.opens(now) && d.begin.waits|d.begin.again == 0 {
		l.Bound = n.prof.bound
	}
	return l
}

func (p *profile) learned() Learned {
	l := Learned{Day: slices.Clone(p.Day[:]), Hour: slices.Clone(p.hour),
		Last: slices.Clone(p.last), At: p.at}
	if p.weekly {
		l.Week = slices.Clone(p.Week[:])
	}
	return l
}

// Restore has a detector that has seen nothing go on with a baseline. One of more than a week and a
// day ago, or of another version of levee, is none, and false.
func (d *Detector) Restore(b *Baseline, now time.Time) bool {
	if age := now.Sub(b.At); b.Kinds != numRates || age < 0 || age > baselineAge {
		return false
	}
	if b.Syn > 0 && b.Fresh > 0 {
		d.usual = ratios{Syn: b.Syn, Fresh: b.Fresh}
	}
	d.root.prof.restore(&b.All, now)
	for i := range b.Networks[:min(mostNetworks, len(b.Networks))] {
		if p := &b.Networks[i]; p.Prefix.IsValid() {
			n := &node{seen: p.Seen}
			n.prof.restore(&p.Learned, now)
			d.nodes[placeOf(p.Prefix.Addr(), p.Prefix.Bits(), p.Source)] = n
		}
	}
	d.known = d.root.prof.knows(now) || b.All.Bound != rates{}
	d.begin.looks = d.begin.looks && d.root.prof.opens(now)
	return true
}

func (p *profile) restore(l *Learned, now time.Time) {
	copy(p.Day[:], l.Day)
	copy(p.Week[:], l.Week)
	p.hour = slices.Clone(l.Hour[:min(60, len(l.Hour))])
	p.last, p.median = slices.Clone(l.Last[:min(60, len(l.Last))]), nil
	if p.at = l.At; now.Sub(l.At) > restart {
		p.close(l.At)
		p.hour, p.last, p.at = nil, nil, time.Time{}
	}
	p.bound = p.lately()
	if l.Bound != (rates{}) || !p.empty() {
		p.first, p.grown = now.Add(-opening), now
	}
	for k, v := range l.Bound {
		p.bound[k] = max(p.bound[k], v)
	}
	for h := range p.Day { // it was harmless at another hour
		for k, v := range p.Day[h] {
			p.bound[k] = max(p.bound[k], v)
		}
	}
}

// knows says whether something is usual at this hour, or was lately.
func (p *profile) knows(now time.Time) bool {
	return p.usual(now) != rates{} && (len(p.hour)+len(p.last) >= minutes ||
		p.Day[now.UTC().Hour()] != rates{})
}

func (p *profile) empty() bool {
	return p.Day == [24]rates{} && len(p.hour) == 0 && len(p.last) == 0
}

// MarshalJSON writes four digits of each rate, and none behind the last that is not 0.
func (r rates) MarshalJSON() ([]byte, error) {
	n := len(r)
	for n > 0 && r[n-1] == 0 {
		n--
	}
	out := []byte{'['}
	for i, v := range r[:n] {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendFloat(out, float64(v), 'g', 4, 32)
	}
	return append(out, ']'), nil
}

// Text says how much a baseline holds.
func (b *Baseline) Text() string {
	return fmt.Sprintf("what was usual until %s, of %d networks", b.At.Format(time.DateTime),
		len(b.Networks))
}
