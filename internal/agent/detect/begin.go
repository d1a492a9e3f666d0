package detect

import (
	"net/netip"
	"time"

	"levee/internal/agent/kind"
	"levee/internal/agent/spread"
)

// begin is the state of a detector that has learned nothing yet: the traffic that it finds may be a
// flood. In its opening, the first seconds, only traffic that is known to be harmless is learned as
// usual. A kind that is a flood then gets an opening of its own once the flood is held, or over.
type begin struct {
	odd   Kinds // not known to be harmless, in the last second
	fat   Kinds // of these, also packets of flows that go on
	waits Kinds // that were a flood in their opening
	again Kinds // in an opening of their own
	until time.Time
	calm  [kind.Num]int // seconds for which one that waits has not been odd
	looks bool          // sources are asked for
	from  [kind.Num][]netip.Addr
}

// Bounds of what is asked for in an opening.
const (
	mostFrom  = 2048 // sources of a kind in a second
	drawn     = 0.4  // of them, above which they are forged
	calmLasts = 3    // seconds without anything odd end a flood of the beginning
)

// source notes the sender of a packet of a new flow.
func (b *begin) source(of kind.Kind, a netip.Addr) {
	if b.looks && of < kind.Num && len(b.from[of]) < mostFrom {
		b.from[of] = append(b.from[of], a)
	}
}

// opens says whether the root takes what comes in a kind as usual.
func (d *Detector) opens(k kind.Kind, now time.Time) bool {
	return !d.fixed() && (d.begin.again.Has(k) || d.root.prof.opens(now))
}

// found is told of alarms. Of a kind that is odd in its opening they say that nothing is known of
// what is usual.
func (d *Detector) found(alarms []Alarm, now time.Time) {
	for _, a := range alarms {
		if d.opens(a.Kind, now) && d.begin.odd.Has(a.Kind) {
			d.begin.waits |= 1 << a.Kind
			d.begin.again &^= 1 << a.Kind
		}
	}
}

// doubt ends a second of an opening.
func (d *Detector) doubt(now time.Time) {
	b := &d.begin
	if !now.Before(b.until) {
		b.again = 0
	}
	if b.odd, b.fat = 0, 0; b.looks {
		b.odd, b.fat = d.unproven()
	}
	for k := range b.calm {
		if b.calm[k]++; b.odd.Has(kind.Kind(k)) || !b.waits.Has(kind.Kind(k)) {
			b.calm[k] = 0
		}
		if b.calm[k] >= calmLasts {
			d.reopen(now, 1<<k)
		}
		b.from[k] = b.from[k][:0]
	}
	b.looks = !d.fixed() && (b.waits|b.again != 0 || d.root.prof.opens(now))
	if !b.looks {
		b.from = [kind.Num][]netip.Addr{}
	}
}

// reopen begins the opening of kinds that waited for it.
func (d *Detector) reopen(now time.Time, kinds Kinds) {
	if kinds &= d.begin.waits; kinds == 0 {
		return
	}
	d.begin.waits &^= kinds
	d.begin.odd &^= kinds
	d.begin.again |= kinds
	d.begin.until, d.calm = now.Add(opening+lag*time.Second), now
}

// unproven are the kinds of which more came in the last second than may be usual where nothing was
// learned, and where nothing shows that it is harmless. Of SYNs, and of what the kernel answers for
// whoever asks, nothing does. Sources that are drawn at random show that it is not. Of others the
// machine has to answer a part; of flows that go on less, if they are more than a tunnel has (fat).
func (d *Detector) unproven() (odd, fat Kinds) {
	sum := &d.root.sum
	have, all := sum.kinds(d.usual), sum.all(d.usual)
	for k := range kind.Num {
		row := k.Row()
		if row.Floor == 0 {
			continue
		}
		oneWay := func(packets, part float64) bool {
			return row.Answered && d.ways.told && d.ways.sent < part*packets
		}
		novel, from := row.Novel(have[k], all[k]), d.begin.from[k]
		if novel > strict*row.Floor && (!row.Answered && !row.Begun ||
			k == kind.TCP && sum.refused() > strict*row.Floor ||
			spread.Drawn(from) > drawn || oneWay(novel, answers)) {
			odd |= 1 << k
		}
		more := all[k] - sum[kind.CountPeers]
		if row.Same > 0 && sum[row.Same]*fatFlows <= all[k] && more > fatTimes*row.Floor &&
			oneWay(more, answersFat) {
			odd, fat = odd|1<<k, fat|1<<k
		}
	}
	return odd, fat
}

// less takes from a second what is more of odd kinds than may be usual where nothing was learned.
func (s *second) less() {
	r, cut := &s.rates, float32(0)
	for k := range kind.Num {
		row := k.Row()
		if !s.odd.Has(k) {
			continue
		}
		whole := &r[k]
		if row.All != row.Counter {
			whole = &r[rateAll+int(row.All-kind.CountAllUDP)]
		}
		least := float32(strict * row.Floor)
		more := float32(row.Novel(float64(r[k]), float64(*whole))) - least
		if s.fat.Has(k) {
			more = *whole - least
		}
		if more <= 0 {
			continue
		}
		switch cut += more; {
		case k == kind.SYN:
			r[rateSYN] = max(0, r[rateSYN]-more)
		case k == kind.TCP:
			r[rateTCP] = max(0, r[rateTCP]-more)
		case whole != &r[k]:
			*whole = max(0, *whole-more)
		}
		r[k] = max(min(r[k], least), r[k]-more)
	}
	if packets := r[kind.Packets]; packets > 0 && cut > 0 {
		r[kind.Packets] = max(0, packets-cut)
		r[kind.Bits] *= r[kind.Packets] / packets
	}
}

// mute says whether a kind is no flood yet, whatever comes of it. What goes on looks new in the
// first seconds.
func (d *Detector) mute(n *node, k kind.Kind, now time.Time) bool {
	switch {
	case d.fixed():
		return false
	case d.begin.again.Has(k):
		return !d.begin.odd.Has(k) && !d.isLeft(k, now)
	case d.begin.waits.Has(k):
		return false
	}
	return !d.known && now.Sub(d.began) < warmUp && !n.prof.expects.Has(k)
}

// Expect has a detector that has learned nothing know of a flood that there was before it, of which
// so much was usual: what comes of it is no opening. The flood was seen by where it went, or where
// it came from; neither is valid for everything that is watched.
func (d *Detector) Expect(k kind.Kind, to, from netip.Prefix, usual float64) {
	if d.known || k >= kind.Num {
		return
	}
	n := d.root
	if to.IsValid() || from.IsValid() {
		w := placeOf(to.Addr(), to.Bits(), false)
		if from.IsValid() {
			w = placeOf(from.Addr(), from.Bits(), true)
		}
		if n = d.nodes[w]; n == nil {
			n = &node{}
			d.nodes[w] = n
		}
	}
	n.prof.expects |= 1 << k
	n.prof.bound[k] = max(n.prof.bound[k], float32(usual))
}

// Suspect tells a detector that has learned nothing that a flood of a kind was going on before it,
// and that its usual rate is not known. The flood may continue or be over: odd traffic counts as
// the flood from the first second, and all other traffic is an opening.
func (d *Detector) Suspect(k kind.Kind, now time.Time) {
	if d.known || d.fixed() || k >= kind.Num {
		return
	}
	d.begin.again |= 1 << k
	d.begin.until, d.begin.looks = now.Add(opening+lag*time.Second), true
}
