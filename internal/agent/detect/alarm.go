package detect

import (
	"cmp"
	"math"
	"slices"
	"time"

	"levee/internal/agent/kind"
)

// judge says what is too much.
func (d *Detector) judge(now time.Time) (out []Alarm) {
	excuses := d.excuses(now)
	d.usual.most = d.mostSYNs(now)
	if !d.fixed() {
		out = d.over(d.root, where{}, now, excuses)
	}
	for w, n := range d.nodes {
		if n.sum[kind.CountSamples] == 0 {
			continue
		}
		out = append(out, d.over(n, w, now, excuses)...)
	}
	slices.SortFunc(out, func(a, b Alarm) int {
		return cmp.Or(cmp.Compare(b.Rate/b.Threshold, a.Rate/a.Threshold),
			a.To.Addr().Compare(b.To.Addr()), a.From.Addr().Compare(b.From.Addr()))
	})
	return out
}

// over are the alarms of a node, that of the kind furthest above its threshold first. While less is
// too much, others are only what is too much otherwise. So many packets of connections excuse SYNs,
// at most.
func (d *Detector) over(n *node, w where, now time.Time, excuses float64) (out []Alarm) {
	j := judged{d: d, n: n, now: now, times: 1, sum: n.sum}
	if now.Before(d.strict) {
		j.times = strict
		// Of a place without a history nobody knows how much of flows that go on is usual.
		j.whole = n == d.root || !n.prof.empty()
	}
	j.sum[kind.CountTCP] = min(j.sum[kind.CountTCP], excuses)
	j.measured()
	have := j.sum.kinds(d.usual)
	if j.whole {
		have = j.sum.all(d.usual)
	}
	var of [kind.Num]compared
	part := j.compare(&have, &of)
	var kinds Kinds
	for k := range kind.Num {
		c := &of[k]
		if c.limit == 0 || c.over <= part*c.limit {
			n.since[k] = time.Time{}
			continue
		}
		if n.since[k].IsZero() {
			n.since[k] = n.began(now, k, c.rate, c.whole)
		}
		kinds |= 1 << k
		a := j.alarm(k, c.rate, part*c.limit, c.whole)
		if len(out) > 0 && a.Rate/a.Threshold <= out[0].Rate/max(1, out[0].Threshold) {
			out = append(out, a)
		} else {
			out = slices.Insert(out, 0, a)
		}
	}
	if len(out) == 0 {
		return nil
	}
	out = slices.DeleteFunc(out, func(a Alarm) bool {
		return a.Kind != out[0].Kind && (d.fixed() ||
			a.Rate <= j.most(a.Kind, d.floor(a.Kind, now), 1, j.whole))
	})
	j.together(out, kinds)
	for i := range out {
		if w.source() {
			out[i].From = w.prefix()
		} else {
			out[i].To = w.prefix()
		}
	}
	return out
}

// compared is a rate with the limit above which it is too much, 0 for none, and how much of it is
// not by chance.
type compared struct {
	rate, limit, over float64
	whole             bool
}

// Several kinds are too much together that none is by itself, where they have so many limits
// between them: then less of each is, the part soon.
const manyKinds = 2

// compare compares the rates of kinds with their limits, and says which part of a limit is too
// much.
func (j *judged) compare(have *[kind.Num]float64, out *[kind.Num]compared) (part float64) {
	sum := 0.0
	for k, rate := range have {
		of := kind.Kind(k)
		c := &out[k]
		if c.rate, c.limit, c.whole = j.limit(of, rate); c.limit == 0 {
			continue
		}
		if c.over = c.rate - j.sum.chance(of, c.whole); j.d.mute(j.n, of, j.now) {
			c.limit = 0
			continue
		}
		sum += min(1, c.over/c.limit)
	}
	if sum >= manyKinds && j.times == 1 && !j.d.fixed() {
		return soon
	}
	return 1
}

// judged is a node at the moment in which its rates are judged.
type judged struct {
	d     *Detector
	n     *node
	now   time.Time
	times float64 // of what is too much at other times
	whole bool    // packets of flows that go on count
	sum   raw     // that of the node, with fewer packets of connections
	// What is usual, and what the place has besides a flood. Both are known once a kind may be too
	// much.
	usual, had rates
	known      bool
}

// limit returns the rate above which a kind is too much, 0 where none is, and the rate to compare
// with it, which counts flows that go on if whole.
func (j *judged) limit(of kind.Kind, rate float64) (compared, limit float64, whole bool) {
	d, n := j.d, j.n
	limit, whole = d.fixedOf(of), j.whole
	if !d.fixed() && kind.Rows[of].Floor > 0 {
		if !whole && (n == d.root || !n.prof.empty()) &&
			(j.fat(of) || n == d.root && d.oneWayFor(of, j.now)) {
			rate, whole = j.sum.of(of, true), true
		}
		if least := d.least(of, j.now, j.times); rate > soon*least {
			if !j.known {
				j.usual, j.known = n.prof.usual(j.now), true
				j.had = d.had(n, j.usual)
			}
			limit = j.most(of, least, j.times, whole)
		}
	}
	if limit > 0 && rate <= limit && rate > soon*limit && !whole && !d.fixed() {
		rate = max(rate, n.steady(of, limit, d.usual))
	}
	return rate, limit, whole
}

func (j *judged) alarm(of kind.Kind, rate, limit float64, whole bool) Alarm {
	d, n := j.d, j.n
	a := Alarm{Share: n.share(of, &j.had, j.now, whole),
		Kind: of, Rate: rate, Threshold: limit, Usual: j.usual.usually(of, whole),
		UsualAll: j.had.usually(of, true), Own: j.sum[kind.Rows[of].All],
		Packets: n.sum[kind.CountPackets] - n.sum.chance(kind.Packets, true),
		Bits:    n.sum[kind.CountBits] - n.sum.chance(kind.Bits, true), Since: n.since[of],
		Learned: !d.fixed(), Unknown: !d.fixed() && j.usual == rates{}}
	a.Answered = a.UsualAll > j.usual.usually(of, true)
	if d.opens(of, j.now) && d.begin.odd.Has(of) {
		a.Unknown, a.Usual = true, 0
	}
	return a
}

// together tells each alarm of all kinds that are too much, and the first which packets are of its
// kind alone.
func (j *judged) together(alarms []Alarm, kinds Kinds) {
	d, all := j.d, 0.0
	last, times := j.n.lately() // the window may hold little of a flood that has just begun
	usual := d.usual
	if kinds.Has(kind.SYN) { // more than usual of them are the flood's, and excuse no segments
		usual.most = max(fewSYNs*kind.Rows[kind.SYN].Floor, float64(j.usual[rateSYN]))
	}
	lately := last.all(usual)
	for k, rate := range j.sum.all(usual) {
		of := kind.Kind(k)
		now := lately[k] - math.Sqrt(times)*last.chance(of, true)
		if !d.fixed() && kind.Rows[of].Floor > 0 &&
			max(rate, now) > j.most(of, strict*d.floor(of, j.now), strict, true) {
			kinds |= 1 << of
		}
		if kinds.Has(of) && of != kind.Bits {
			all += rate
		}
	}
	others := 0.0
	for _, a := range alarms[1:] {
		others += a.Own
	}
	alarms[0].Own = max(0, all-others)
	for i := range alarms {
		alarms[i].Kinds, alarms[i].All = kinds, all
	}
}

// had returns the rates of a place besides a flood: the usual ones, or those before the alarm where
// the machine has answered these, as a crowd of clients.
func (d *Detector) had(n *node, usual rates) rates {
	if d.ways.told && !d.fixed() {
		for k, v := range n.prof.lastly() {
			usual[k] = max(usual[k], v)
		}
	}
	return usual
}

// What is too much in each bin of half a second is too much: to wait for a whole second of a flood
// that is little above it takes longer than to stop it. soon is what half a second has of a second.
const (
	halfBins = bins / 2
	soon     = 0.4
)

// steady is the rate of a kind in the last half second, 0 if a bin of it is not above a limit.
func (n *node) steady(k kind.Kind, limit float64, u ratios) float64 {
	sum, long := 0.0, 0.0
	for i := range halfBins {
		at := (n.at + bins - 1 - i) % bins
		seconds := n.long[at].Seconds()
		packets := n.ring[at].kinds(u)[k]
		if packets <= limit*seconds {
			return 0
		}
		sum, long = sum+packets, long+seconds
	}
	return sum / max(halfBins/10.0, long)
}

// A flood of few flows that go on has more of them than a tunnel or a test of a line, and several
// times of what is too much of others.
const (
	fatFlows = 32
	fatTimes = 3
)

// fat says whether more packets of a kind are of flows that go on than a tunnel explains.
func (j *judged) fat(k kind.Kind) bool {
	row, s := k.Row(), &j.sum
	return row.Same > 0 && s[row.Same]*fatFlows <= s[row.All] &&
		s[row.All] > fatTimes*max(row.Floor, s[row.Counter])
}

// excuses returns the largest number of packets of connections that may stand for SYNs: those of
// the greatest crowd. More are made up, for which one forged flow suffices.
func (d *Detector) excuses(now time.Time) float64 {
	if d.root.sum[kind.CountSYN] > strict*kind.Rows[kind.SYN].Floor {
		if usual := d.root.prof.usual(now); usual[rateTCP] > 0 {
			return mostCrowd * float64(usual[rateTCP])
		}
	}
	return math.Inf(1)
}

// fewSYNs is the part of what is too much of SYNs that counts in any case.
const fewSYNs = 0.1

// mostSYNs returns the largest number of SYNs that may stand for packets of flows that are new: as
// many as the greatest crowd has, and a few in any case. 0 is all.
func (d *Detector) mostSYNs(now time.Time) float64 {
	if few := fewSYNs * kind.Rows[kind.SYN].Floor; d.root.sum[kind.CountSYN] > few {
		if usual := d.root.prof.usual(now); usual[rateSYN] > 0 {
			return max(few, mostCrowd*float64(usual[rateSYN]))
		}
	}
	return 0
}

// limit is above what a kind is too much: several times of what is usual, and a rate at least.
// Beside a flood less is, but not what the place had before.
func (n *node) limit(k kind.Kind, least, times float64, usual, had *rates, whole bool) float64 {
	limit := max(least, max(2, times*factor)*usual.usually(k, whole))
	if times < 1 {
		limit = max(limit, had.usually(k, whole)+least)
	}
	return limit
}

// most is the limit of a kind: more where a crowd of clients comes, unless nobody answers the kind.
// Handshakes may be forged, and clients are answered.
func (j *judged) most(k kind.Kind, least, times float64, whole bool) float64 {
	limit := j.n.limit(k, least, times, &j.usual, &j.had, whole)
	if row := k.Row(); row.Crowd && !(row.Answered && j.d.isLone(k, j.now)) {
		limit *= j.n.crowd(&j.usual)
	}
	return limit
}

// share returns the part of a kind's packets that is more than usual.
func (n *node) share(k kind.Kind, usual *rates, now time.Time, whole bool) float64 {
	have, was := n.sum.of(k, whole), usual.usually(k, whole)
	switch k {
	case kind.SYN:
		was = float64(usual[rateSYN])
	case kind.TCP:
		have, was = n.sum[kind.CountTCP], float64(usual[rateTCP])
	}
	if long := now.Sub(n.begun); !n.begun.IsZero() && long < time.Second {
		was *= long.Seconds()
	}
	return 1 - min(1, was/max(1, have))
}

// Strict has less be too much until a time: something is done about a flood, and what it misses is
// to be found. Packets of flows that go on count like others then: a flood of few sources repeats.
func (d *Detector) Strict(until time.Time) { d.strict = until }

// Drops is told how many packets a second rules drop, until a time. As long as that a hundredth of
// these is too much of what nobody answers. A trickle of them holds no rule in force: once the
// flood is over, nothing drops so much.
func (d *Detector) Drops(packets float64, until time.Time) {
	d.drops, d.dropsUntil = packets, until
}

// Of what rules drop so much is left at most, in packets a second. Fewer than leftLeast are no
// flood, whatever comes.
const (
	left      = 0.01
	leftLeast = 500
)

// isDropping says whether rules drop a flood at a time.
func (d *Detector) isDropping(now time.Time) bool { return d.drops > 0 && now.Before(d.dropsUntil) }

// least is below what nothing of a kind is too much; times is how much less that is than usual.
func (d *Detector) least(k kind.Kind, now time.Time, times float64) float64 {
	least := times * d.floor(k, now)
	if d.isDropping(now) && d.ways.alone.Has(k) {
		least = min(least, max(leftLeast, left*d.drops))
	}
	return least
}

func (d *Detector) fixedOf(k kind.Kind) float64 {
	switch k {
	case kind.Packets:
		return d.Packets
	case kind.Bits:
		return d.Bits
	}
	return 0
}
