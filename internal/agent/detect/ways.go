package detect

import (
	"time"

	"levee/internal/agent/kind"
)

// ways compares arriving traffic with the packets that the machine sends, as its interface counts
// them: traffic of one way is harmless less often than traffic that is answered. The count includes
// packets to others, so that only more of both shows that something was answered.
type ways struct {
	told  bool     // somebody says how much it sends
	sent  float64  // packets in the last second
	first struct { // what was there from the beginning on
		sent float64
		kind [kind.Num]float64
	}
	calm  [2]calm             // the last seconds without a flood, the later one last
	alone Kinds               // of which more comes than then, that nobody answers
	slow  Kinds               // of which more comes, that nobody answers
	fat   [kind.Num]time.Time // since when few flows have too much of a kind
	lone  [kind.Num]int       // readings of a moment, one behind the other, in which nobody did
	mute  Kinds               // of which nobody answered few flows in the last reading
	read  time.Time           // the last of these
}

// calm is a second without an alarm.
type calm struct {
	sent float64
	all  raw
}

// Shares of what comes that are answers, at least: of a service, and of a transfer of few flows,
// such as by its acknowledgements.
const (
	answers    = 0.25
	answersFat = 0.02
	fatLasts   = 1500 * time.Millisecond // where nothing is read meanwhile
)

// Sent is told how many packets the machine has sent in the last second. Where nobody says so,
// nothing is judged by it.
func (d *Detector) Sent(packets float64) {
	w := &d.ways
	w.told, w.sent, w.alone = true, packets, 0
	if !d.alarm && !d.from.Before(d.strict) && !d.isDropping(d.from) {
		w.calm = [2]calm{w.calm[1], {packets, d.root.sum}}
	}
	for k := range kind.Num {
		row, was := k.Row(), &w.calm[0]
		if more := d.root.sum[row.All] - was.all[row.All]; !row.Answered ||
			more > leftLeast && packets-was.sent < answers*more {
			w.alone |= 1 << k
		}
	}
}

// isLeft says whether more of a kind comes beside what rules drop than before the flood, and nobody
// answers it: rules have left it. Of an agent that began amid the flood nobody knows what was
// before.
func (d *Detector) isLeft(k kind.Kind, now time.Time) bool {
	all, was := k.Row().All, &d.ways.calm[0].all
	return d.isDropping(now) && d.ways.alone.Has(k) && was[kind.CountSamples] > 0 &&
		d.root.sum[all]-was[all] > leftLeast
}

// Of what nobody answers less is too much. One reading may be of the time before it came.
const (
	lonely    = 0.5 // of the floor
	readings  = 2
	readEvery = 250 * time.Millisecond
	stale     = 3 * readEvery
)

// Doubts says whether more of a kind comes than is harmless if nobody answers it, and less than is
// too much in any case: SentNow says more, where somebody knows.
func (d *Detector) Doubts(now time.Time) bool {
	if d.fixed() || now.Sub(d.ways.read) < readEvery {
		return false
	}
	for k := range kind.Num {
		if row := k.Row(); row.Answered && row.Floor > 0 {
			rate, most := d.lately(k), 2*row.Floor
			if rate > soon*row.Floor && row.Crowd { // a crowd excuses so many times more
				usual := d.root.prof.usual(now)
				most *= d.root.crowd(&usual)
			}
			if rate > soon*row.Floor && rate < most || !d.ways.fat[k].IsZero() {
				return true
			}
		}
	}
	return false
}

// lately is the rate of a kind in the last bins.
func (d *Detector) lately(k kind.Kind) float64 {
	sum, _ := d.root.lately()
	return sum.kinds(d.usual)[k]
}

// SentNow is told how many packets a second the machine sends at this moment, since the last time
// or Sent. All of them may be answers to one kind.
func (d *Detector) SentNow(now time.Time, packets float64) {
	w := &d.ways
	late := now.Sub(w.read) > stale
	w.read, w.mute = now, 0
	for k := range kind.Num {
		row, rate := k.Row(), d.lately(k)
		if late {
			w.lone[k] = 0
		}
		if w.lone[k]++; !row.Answered || rate <= soon*row.Floor || packets >= answers*rate {
			w.lone[k] = 0
		}
		if at := w.fat[k]; !at.IsZero() && now.Sub(at) >= readEvery &&
			packets-w.first.sent < answersFat*d.goes(k) {
			w.mute |= 1 << k
		}
	}
}

// goes returns the number of packets of a kind that come, without those of flows that go on of
// hosts with which there are connections. Who has one may just have been asked: the last bin says
// so.
func (d *Detector) goes(k kind.Kind) float64 {
	row, sum, last := k.Row(), &d.root.sum, &d.root.ring[(d.root.at+bins-1)%bins]
	all, peers := goesOn(row, sum), last[kind.CountPeers]/max(1, goesOn(row, last))
	return sum[row.All] - max(sum[kind.CountPeers], all*min(1, peers))
}

// floor is the rate below which nothing of a kind is a flood.
func (d *Detector) floor(k kind.Kind, now time.Time) float64 {
	floor := k.Row().Floor
	if d.isLone(k, now) {
		floor *= lonely
	}
	return floor
}

// isLone says whether the last readings say that nobody answers a kind.
func (d *Detector) isLone(k kind.Kind, now time.Time) bool {
	return d.ways.lone[k] >= readings && now.Sub(d.ways.read) <= stale
}

// DoubtsSegments says whether so many segments come that there is a flood among them if they are of
// no connections: Refused says how many are, where somebody knows. Those of flows that go on look
// like those of clients otherwise.
func (d *Detector) DoubtsSegments(now time.Time) bool {
	times := 1.0
	if now.Before(d.strict) {
		times = strict
	}
	least := soon * d.least(kind.TCP, now, times)
	return !d.fixed() && d.root.sum[kind.CountTCP] > least
}

// Refused is told how many segments the machine has answered with a RST, or dropped for a wrong
// checksum, since the last time, which was at most a second ago.
func (d *Detector) Refused(segments float64) { d.bin[kind.CountRefused] += segments }

// learn says of which kinds more comes than at the beginning, without more that is sent.
func (w *ways) learn(sum *raw, opening bool) Kinds {
	if !w.told {
		return 0
	}
	w.slow = 0
	if opening {
		w.first.sent = max(w.first.sent, w.sent)
	}
	for k := range kind.Num {
		row := k.Row()
		have := sum[row.All]
		if opening {
			w.first.kind[k] = max(w.first.kind[k], have)
		}
		if more := have - w.first.kind[k]; row.Floor > 0 && more > strict*row.Floor &&
			!(row.Answered && w.sent-w.first.sent >= answers*more) {
			w.slow |= 1 << k
		}
	}
	return w.slow
}

// oneWayFor says whether few flows of a kind are a flood. They are if they go unanswered, as a
// reading after their beginning says, and reach several times the floor of the kind and several
// times the usual bits. Flows of hosts with which the machine has connections do not count: a speed
// test of the line looks the same.
func (d *Detector) oneWayFor(k kind.Kind, now time.Time) bool {
	row, sum, more := k.Row(), &d.root.sum, d.goes(k)
	is := d.ways.told && row.Same > 0 && more > fatTimes*row.Floor
	if is { // what is usual takes longer to find
		usual := d.root.prof.usual(now)
		more -= float64(usual.usually(k, true))
		is = more > fatTimes*row.Floor &&
			sum[kind.CountBits] > factor*float64(usual[kind.Bits]) &&
			d.ways.sent-float64(d.ways.first.sent) < answersFat*more
	}
	at := &d.ways.fat[k]
	switch {
	case !is:
		*at = time.Time{}
	case at.IsZero():
		if *at = now; d.Ask != nil {
			d.Ask()
		}
	}
	return is && (now.Sub(*at) >= fatLasts || d.ways.mute.Has(k))
}
