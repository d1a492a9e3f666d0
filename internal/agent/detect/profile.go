package detect

import (
	"math"
	"slices"
	"time"

	"levee/internal/agent/kind"
)

// Times of learning.
const (
	warmUp   = 6 * time.Second  // without alarms, at the beginning
	lag      = 3                // seconds are held back so long, as an alarm may come
	minutes  = 5                // and minutes
	cool     = 2 * time.Minute  // after an alarm nothing is learned
	ofMinute = 3                // the third highest second of a minute stands for it
	opening  = 10 * time.Second // what comes in it is usual, as begin says
	doubling = 10 * time.Minute // what is usual lately doubles in so long, at most
	slowly   = 24 * time.Hour   // the same of what nobody answers
)

// profile holds the usual rates of the kinds of floods, in packets a second.
type profile struct {
	Day    [24]rates  // by hour of the day (UTC)
	Week   [168]rates // by hour of the week; of everything that is watched alone
	weekly bool

	seconds []second  // that are held back
	minute  []rates   // seconds of this minute that are not
	held    []rates   // minutes that are held back
	hour    []rates   // minutes of this hour
	last    []rates   // of the hour before
	median  *rates    // of both, if somebody has asked since they changed
	at      time.Time // the minute

	// bound holds the highest rates that may be usual where nothing is known of the hour: the rates
	// of late, which have grown slowly. What rises faster does not make itself usual.
	bound rates
	first time.Time // second that was learned
	grown time.Time

	expects Kinds // of which a flood was known before anything was learned
	before  rates // of the seconds before the last alarm
}

// second is the counts of one second, with sets of kinds: those learned as they are (opening),
// those of which more goes unanswered than usual (slow), and those that are not known to be
// harmless (odd, fat; see begin).
type second struct {
	rates
	opening, slow, odd, fat Kinds
}

// floorOf are the floors of the kinds by their rates; rates without an alarm have 0.
var floorOf = func() (out [numRates]float32) {
	for k, r := range kind.Rows {
		out[k] = float32(r.Floor)
		if r.All != r.Counter {
			out[rateAll+int(r.All-kind.CountAllUDP)] = float32(r.Floor)
		}
	}
	return out
}()

// kindOf are the kinds of rates, Num for those of none.
var kindOf = func() (out [numRates]kind.Kind) {
	for k := range out {
		out[k] = kind.Num
	}
	for k, r := range kind.Rows {
		out[k] = kind.Kind(k)
		if r.All != r.Counter {
			out[rateAll+int(r.All-kind.CountAllUDP)] = kind.Kind(k)
		}
	}
	return out
}()

// rates are those of the kinds, and those that tell a crowd of clients.
type rates [numRates]float32

const (
	rateSYN  = int(kind.Num) + iota // connections that are begun
	rateTCP                         // packets of connections
	rateAll                         // and behind it, those of kind.CountAllUDP and on
	numRates = rateAll + int(kind.CountPackets-kind.CountAllUDP)
)

// second learns one.
func (p *profile) second(now time.Time, s second) {
	p.turn(now)
	p.seconds = append(p.seconds, s)
	if len(p.seconds) > lag {
		old := &p.seconds[0]
		// What is found in this second may have begun in the oldest one that is not learned yet.
		old.slow, old.odd, old.fat = old.slow|s.slow, old.odd|s.odd, old.fat|s.fat
		old.less()
		p.minute = append(p.minute, old.rates)
		p.allow(now, old)
		p.seconds = slices.Delete(p.seconds, 0, 1)
	}
}

// opens says whether what comes is usual, however much, as far as it is known to be harmless.
func (p *profile) opens(now time.Time) bool {
	return p.first.IsZero() || now.Sub(p.first) < opening
}

// allow raises the bound of what may be usual by what came in a second: to twice as much in
// doubling, and from nothing to a quarter of what is too much at least. What nobody answers may be
// the rise of a flood, and be twice as much in a day.
func (p *profile) allow(now time.Time, s *second) {
	if p.first.IsZero() {
		p.first, p.grown = now, now
	}
	long := now.Sub(p.grown)
	p.grown = now
	part := min(1, long.Seconds()/doubling.Seconds())
	times := float32(math.Exp2(part))
	late := float32(math.Exp2(min(1, long.Seconds()/slowly.Seconds())))
	for k, v := range s.rates {
		most := p.bound[k]*times + floorOf[k]*float32(strict*part)
		if s.slow.Has(kindOf[k]) {
			most = max(p.bound[k]*late, min(most, floorOf[k]*strict))
		}
		if (p.opens(now) || s.opening.Has(kindOf[k])) && !p.expects.Has(kindOf[k]) {
			most = v
		}
		p.bound[k] = max(p.bound[k], min(v, most))
	}
}

// forget drops what is held back: an alarm has come.
func (p *profile) forget() {
	p.before = p.lastly()
	p.seconds, p.minute, p.held = p.seconds[:0], p.minute[:0], p.held[:0]
}

// lastly returns what came in each of the last seconds, at least, or of those before the last
// alarm. It was not too much: beside a flood it is none. Of what nobody answers it is 0, as of a
// rise, and of what is not known to be harmless.
func (p *profile) lastly() (out rates) {
	if len(p.seconds) < lag {
		return p.before
	}
	out = p.seconds[0].rates
	for i := range p.seconds {
		s := &p.seconds[i]
		for k, v := range s.rates {
			if out[k] = min(out[k], v); (s.slow | s.odd).Has(kindOf[k]) {
				out[k] = 0
			}
		}
	}
	return out
}

// turn ends minutes and hours.
func (p *profile) turn(now time.Time) {
	minute := now.UTC().Truncate(time.Minute)
	if minute.Equal(p.at) {
		return
	}
	if len(p.minute) > 0 {
		var high rates
		for k := range high {
			high[k] = highest(p.minute, k, min(ofMinute, (len(p.minute)+9)/10))
		}
		p.held = append(p.held, high)
		p.minute = p.minute[:0]
	}
	if len(p.held) > minutes {
		p.hour, p.median = append(p.hour, p.harmless(p.held[0])), nil
		p.held = slices.Delete(p.held, 0, 1)
	}
	if before := p.at; !before.IsZero() && before.Hour() != minute.Hour() {
		p.close(before)
	}
	p.at = minute
}

// harmless returns what may be usual of a minute: nothing of a rise is learned that may be a
// flood's.
func (p *profile) harmless(r rates) rates {
	for k := range r {
		if floorOf[k] > 0 {
			r[k] = min(r[k], p.bound[k])
		}
	}
	return r
}

// close learns an hour: the median of its minutes, which an attack of less than half of it does
// not move, and which moves what is usual by half at most.
func (p *profile) close(hour time.Time) {
	if len(p.hour) < 10 {
		return
	}
	var m rates
	for k := range m {
		m[k] = highest(p.hour, k, (len(p.hour)+1)/2)
	}
	p.Day[hour.Hour()].learn(m)
	if p.weekly {
		p.Week[int(hour.Weekday())*24+hour.Hour()].learn(m)
	}
	p.last, p.hour, p.median = p.hour, p.last[:0], nil
}

func (r *rates) learn(m rates) {
	for k, v := range m {
		switch old := r[k]; {
		case old == 0:
			r[k] = v
		default:
			r[k] = old + (min(max(v, old/2), old*1.5)-old)/2
		}
	}
}

// highest returns the n-th highest rate of a kind, from 1.
func highest(of []rates, kind, n int) float32 {
	all := make([]float32, len(of))
	for i := range of {
		all[i] = of[i][kind]
	}
	slices.Sort(all)
	return all[max(0, len(all)-max(1, n))]
}

// usual returns the rate of each kind that was usual at an hour, and lately. Lately counts at most
// twice as much as is usual, once that is known: what rises for hours does not make itself usual.
func (p *profile) usual(now time.Time) (out rates) {
	now = now.UTC()
	lately := p.lately()
	for k := range out {
		h := now.Hour()
		past := max(p.Day[h][k], p.Day[(h+1)%24][k], p.Day[(h+23)%24][k])
		if w := int(now.Weekday())*24 + h; p.weekly {
			past = max(past, p.Week[w][k], p.Week[(w+1)%168][k], p.Week[(w+167)%168][k])
		}
		switch out[k] = lately[k]; {
		case past > 0:
			out[k] = max(past, min(lately[k], 2*past))
		case floorOf[k] > 0:
			out[k] = min(lately[k], p.bound[k])
		}
	}
	return out
}

// lately returns the median of the last minutes. In the first minutes it returns the highest second
// instead, with the rates that may be usual: an alarm compares with the traffic of now, and not
// with that of before.
func (p *profile) lately() (out rates) {
	if len(p.last)+len(p.hour) < minutes {
		all := slices.Concat(p.last, p.hour, p.held, p.minute)
		for k := range out {
			if out[k] = p.bound[k]; len(all) > 0 {
				out[k] = max(out[k], highest(all, k, 1))
			}
		}
		return out
	}
	if p.median == nil { // it is asked for ten times a second, and changes once a minute
		all := slices.Concat(p.last, p.hour)
		for k := range out {
			out[k] = highest(all, k, (len(all)+1)/2)
		}
		p.median = &out
	}
	return *p.median
}
