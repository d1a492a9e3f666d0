package detect

import (
	"fmt"
	"math"
	"slices"
	"time"

	"levee/internal/lab/demo"
)

// Goals of the table.
const (
	goalDrop     = 1.0   // seconds from the first packet
	goalDropped  = 0.99  // of the flood, from after on
	goalLost     = 0.001 // of the clients' packets
	goalGone     = 60.0  // seconds after the flood's end
	goalWorse    = 5.0   // seconds, by a flood that looks like clients
	goalWasted   = 0.1   // of the line, by a ramp
	goalFactor   = 2.0   // between collateral predicted and measured
	goalCore     = 0.1   // of a core, under a flood
	goalRestCore = 0.01
	goalMemory   = 60e6 // bytes, at rest
	after        = 2 * time.Second
)

// Figures holds the results of a row. What could not be measured is not a number.
type Figures struct {
	Flood string `json:"flood"`
	What  string `json:"what"`
	// Missing is the reason that there is nothing else; empty if there is.
	Missing string `json:"missing,omitempty"`
	Waves   []Part `json:"waves"`
	// Drop is the longest time from the first packet of a wave to the drop in XDP, in seconds.
	Drop figure `json:"drop_seconds"`
	// Noticed and Acted are when the defender says that it noticed the flood, and had its first
	// rule in force, in seconds from the first packet: where the time goes.
	Noticed figure `json:"noticed_seconds"`
	Acted   figure `json:"acted_seconds"`
	// Resolution of Drop.
	Resolution float64 `json:"resolution_seconds"`
	// Dropped is the least share of a wave that was dropped from two seconds after its start on.
	Dropped figure `json:"dropped_share"`
	// Wasted is the most of the line, over a second, that a ramp had to itself.
	Wasted figure `json:"wasted_share"`
	// Lost is the packets of clients that XDP dropped while the flood lasted, over those that it
	// took; Refused the share of what left them that found the ring full.
	Lost     figure `json:"lost_share"`
	LostN    int64  `json:"lost_packets"`
	GoodN    uint64 `json:"good_packets"`
	Refused  figure `json:"refused_share"`
	Answered figure `json:"answered_share"`       // of the requests due during the flood
	Later    figure `json:"answered_later_share"` // from two seconds after its start on
	Quiet    figure `json:"answered_quiet_share"` // before it
	// Worse is the longest time, in seconds, for which clients of one kind got less than nine of
	// ten answers that they got before, and XDP dropped packets: without rules they are as well
	// off as without a defender.
	Worse figure  `json:"worse_seconds"`
	Gone  figure  `json:"gone_seconds"` // from the flood's end until the rules are gone
	Late  float64 `json:"gone_resolution_seconds"`
	// Predicted and AtMost are what the defender said that its rules take of good packets, Measured
	// what they took while they were in force, of which Counted packets say so.
	Predicted figure     `json:"collateral_predicted"`
	AtMost    figure     `json:"collateral_at_most"`
	Measured  figure     `json:"collateral_measured"`
	Counted   uint64     `json:"collateral_counted"`
	Cost      Cost       `json:"cost"`
	Missed    []string   `json:"missed"` // goals, in words
	Incidents []Incident `json:"incidents"`
}

// Part is one wave.
type Part struct {
	What    string  `json:"what"`
	Offered float64 `json:"offered_pps"`
	Drop    figure  `json:"drop_seconds"`
	Dropped figure  `json:"dropped_share"`
}

// figure is a number, null in JSON where there is none.
type figure float64

var none = figure(math.NaN())

func (f figure) is() bool { return !math.IsNaN(float64(f)) }

// MarshalJSON implements json.Marshaler.
func (f figure) MarshalJSON() ([]byte, error) {
	if !f.is() || math.IsInf(float64(f), 0) {
		return []byte("null"), nil
	}
	return fmt.Appendf(nil, "%.9g", float64(f)), nil
}

func ratio[N int64 | uint64](part, of N) figure {
	if of <= 0 {
		return none
	}
	return figure(float64(part) / float64(of))
}

// fewest is the number of a flood's packets that must have come between two samples for them to say
// something.
const fewest = 20

// drop returns the time from the first packet of a wave until XDP drops at least half of what
// comes, and the time between the two samples that say so. The driver tells both counts at one
// moment.
func drop(samples []sample, from, to time.Duration) (at figure, resolution float64) {
	in := within(samples, from, to)
	for i := 1; i < len(in); i++ {
		came, dropped := in[i].xdp-in[i-1].xdp, in[i].dropped-in[i-1].dropped
		if came >= fewest && 2*dropped >= came {
			return figure((in[i].at - from).Seconds()), (in[i].at - in[i-1].at).Seconds()
		}
	}
	return none, 0
}

// dropped returns the share of a flood that was dropped in a span of time.
func dropped(samples []sample, from, to time.Duration) figure {
	in := within(samples, from, to)
	if len(in) < 2 {
		return none
	}
	a, b := in[0], in[len(in)-1]
	came, passed := b.flood()-min(a.flood(), b.flood()), b.passed-a.passed
	if came < fewest {
		return none
	}
	return 1 - ratio(min(passed, came), came)
}

// wasted returns the most packets of a flood that passed within a second, as a share of a line.
func wasted(samples []sample, line float64) figure {
	if len(samples) < 2 {
		return none
	}
	most, first := uint64(0), 0
	for i := range samples {
		for samples[i].at-samples[first].at > time.Second {
			first++
		}
		most = max(most, samples[i].passed-samples[first].passed)
	}
	return figure(float64(most) / line)
}

// answered returns the share of requests that were answered, of those due in a span of time.
func answered(requests []demo.Request, from, to time.Duration) figure {
	all, got := 0, 0
	for _, q := range requests {
		if due := time.Duration(q.Due); due >= from && due < to {
			all++
			if q.NS > 0 {
				got++
			}
		}
	}
	return ratio(int64(got), int64(all))
}

// worse returns the longest time, in seconds of a flood, for which clients of one kind got less
// than nine of ten answers that they got before, while XDP dropped packets.
func worse(requests []demo.Request, samples []sample, from, to time.Duration) figure {
	most := 0
	for _, what := range demo.Whats {
		of := slices.DeleteFunc(slices.Clone(requests), func(q demo.Request) bool {
			return q.What != what
		})
		before, lasts := answered(of, 0, from-demo.Patience), 0
		for at := from; at < to; at += time.Second {
			end := min(to, at+time.Second)
			if got := answered(of, at, end); got < 0.9*before && drops(samples, at, end) {
				lasts++
			} else {
				lasts = 0
			}
			most = max(most, lasts)
		}
	}
	return figure(most)
}

// drops tells whether XDP dropped packets in a span of time.
func drops(samples []sample, from, to time.Duration) bool {
	in := within(samples, from, to)
	return len(in) > 1 && in[len(in)-1].dropped > in[0].dropped
}

// figures of a row.
func (row *Row) figures(line float64) *Figures {
	f := &Figures{
		Flood: row.Flood, What: row.What, Missing: row.Missing, Waves: []Part{}, Drop: none,
		Noticed: none, Acted: none, Dropped: none, Wasted: none, Lost: none, Refused: none,
		Answered: none, Later: none, Quiet: none, Worse: none, Gone: none,
		Predicted: none, AtMost: none, Measured: none, Cost: row.Cost,
		Missed: []string{}, Incidents: row.Incidents,
	}
	if f.Incidents == nil {
		f.Incidents = []Incident{}
	}
	if row.Missing != "" {
		return f
	}
	row.waves(f)
	if row.ramp {
		f.Wasted = wasted(within(row.samples, row.from, row.to), line)
	}
	row.clients(f)
	for _, i := range row.Incidents {
		f.Noticed = earlier(f.Noticed, i.Detected, row.began)
		f.Acted = earlier(f.Acted, i.Acted, row.began)
	}
	if f.Drop.is() {
		row.collateral(f)
		if row.gone > 0 {
			f.Gone, f.Late = figure(max(0, (row.gone-row.to).Seconds())), row.late.Seconds()
		} else {
			f.Gone = figure(math.Inf(1))
		}
	}
	f.judge(row)
	return f
}

// earlier returns the lesser of a time in seconds and another, from the beginning; a zero time is
// none.
func earlier(than figure, at, begin time.Time) figure {
	if at.IsZero() {
		return than
	}
	if s := figure(at.Sub(begin).Seconds()); !(than <= s) {
		return s
	}
	return than
}

// waves are the times to the drop, and what was dropped.
func (row *Row) waves(f *Figures) {
	if row.ramp {
		f.Drop, f.Resolution = drop(row.samples, row.from, row.to)
		return
	}
	undropped := false
	for _, v := range row.Waves {
		p := Part{What: v.What, Offered: v.sent.Achieved}
		var resolution float64
		p.Drop, resolution = drop(row.samples, v.from, v.to)
		p.Dropped = dropped(row.samples, v.from+after, v.to)
		f.Waves = append(f.Waves, p)
		undropped = undropped || !p.Drop.is()
		if p.Drop.is() && !(p.Drop <= f.Drop) {
			f.Drop, f.Resolution = p.Drop, resolution
		}
		if p.Dropped.is() && !(p.Dropped >= f.Dropped) {
			f.Dropped = p.Dropped
		}
	}
	if undropped && f.Drop.is() {
		f.Drop = figure(math.Inf(1))
	}
}

// clients counts the packets and requests of clients by what happened to them.
func (row *Row) clients(f *Figures) {
	f.LostN = max(0, row.end.lost()-row.first.lost())
	if in := within(row.samples, row.from, row.to); len(in) > 1 {
		a, b := in[0], in[len(in)-1]
		f.GoodN = b.good() - min(a.good(), b.good())
		f.Lost = ratio(f.LostN, int64(f.GoodN))
		// While the flood lasts, what it was refused is not read at the same moment.
		f.Refused = ratio(int64(row.end.refused)-int64(row.first.refused), int64(b.sent-a.sent))
	}
	if row.forges {
		f.LostN, f.Lost = 0, none
	}
	f.Worse = worse(row.requests, row.samples, row.from, row.to)
	f.Answered = answered(row.requests, row.from, row.to)
	f.Later = answered(row.requests, row.from+after, row.to)
	f.Quiet = answered(row.requests, 0, row.from-demo.Patience)
}

// collateral fills in the shares of good packets that rules were predicted to drop, and dropped,
// from the first drop until the rules were gone. The prediction of a rule counts for as long as the
// rule dropped.
func (row *Row) collateral(f *Figures) {
	from, end := row.to, row.gone
	for _, v := range row.Waves {
		if at, _ := drop(row.samples, v.from, v.to); at.is() {
			from = v.from + time.Duration(float64(at)*float64(time.Second))
			break
		}
	}
	if end == 0 {
		end = row.last.at
	}
	if in := within(row.samples, from, end); len(in) > 1 {
		f.Counted = in[len(in)-1].good() - in[0].good()
		f.Measured = ratio(max(0, row.last.lost()-row.first.lost()), int64(f.Counted))
	}
	predicted, most := 0.0, 0.0
	acted := false
	for _, i := range row.Incidents {
		if i.Acted.IsZero() {
			continue
		}
		acted = true
		whole := end - from
		predicted += i.predicted(whole)
		share := 1.0
		if !i.Closed.IsZero() {
			share = min(1, float64(i.Closed.Sub(i.Acted))/float64(whole))
		}
		most += share * i.Collateral.AtMost
	}
	if acted {
		f.Predicted, f.AtMost = figure(predicted), figure(most)
	}
}

// predicted returns what was predicted of good packets over a time: of each rule as long as it
// dropped.
func (i *Incident) predicted(whole time.Duration) (sum float64) {
	for k := range i.Rules {
		r := &i.Rules[k]
		if r.Since.IsZero() {
			continue
		}
		share := 1.0
		for _, at := range []time.Time{i.Closed, r.Gone, r.Loosened} {
			if !at.IsZero() {
				share = min(1, max(0, float64(at.Sub(r.Since))/float64(whole)))
			}
		}
		sum += share * r.Collateral
	}
	return sum
}

// few is the largest number of expected packets that may stay unseen.
const few = 3

// near tells whether collateral was predicted within the factor, as far as the packets can tell:
// those of which it was predicted, if these can tell it up to the goal of what may be lost, and
// those that were counted.
func (f *Figures) near() bool {
	p, m := float64(f.Predicted), float64(f.Measured)
	return (m <= goalFactor*p || m <= min(goalLost, float64(f.AtMost))) &&
		(p <= goalFactor*m || p*float64(f.Counted) <= few)
}

// judge lists the goals that are missed.
func (f *Figures) judge(row *Row) {
	miss := func(format string, args ...any) {
		f.Missed = append(f.Missed, fmt.Sprintf(format, args...))
	}
	switch {
	case row.mimics: // who cannot be told from clients need not be dropped
		if f.Worse > goalWorse {
			miss("clients were worse off for %.0f s, goal %.0f s", f.Worse, goalWorse)
		}
	case !f.Drop.is():
		miss("nothing was dropped")
	case row.ramp:
		if f.Wasted > goalWasted {
			miss("the ramp took %.1f %% of the line, goal %.0f %%", 100*f.Wasted, 100*goalWasted)
		}
	case math.IsInf(float64(f.Drop), 1):
		miss("a wave was not dropped")
	case f.Drop > goalDrop:
		miss("dropped after %.2f s, goal %.0f s", f.Drop, goalDrop)
	}
	if f.Dropped < goalDropped && !row.mimics {
		miss("%.2f %% dropped from 2 s on, goal %.0f %%", 100*f.Dropped, 100*goalDropped)
	}
	if f.Lost > goalLost && !row.mimics {
		miss("%.3f %% of the clients' packets dropped, goal %.1f %%", 100*f.Lost, 100*goalLost)
	}
	if math.IsInf(float64(f.Gone), 1) {
		miss("rules were still in force when the row was given up")
	} else if f.Gone > goalGone {
		miss("rules gone after %.0f s, goal %.0f s", f.Gone, goalGone)
	}
	if f.Drop.is() && !f.Predicted.is() {
		miss("no collateral was predicted")
	} else if f.Predicted.is() && f.Measured.is() && !f.near() {
		miss("collateral of %.3f %% predicted and %.3f %% measured, goal within a factor of %.0f",
			100*f.Predicted, 100*f.Measured, goalFactor)
	}
	if f.Cost.Core > goalCore {
		miss("%.1f %% of a core, goal %.0f %%", 100*f.Cost.Core, 100*goalCore)
	}
}
