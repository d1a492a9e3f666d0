package bench

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"levee/internal/report"
)

// mixed is one round of a rung over all floods of the mix.
type mixed struct {
	pps, ns              float64
	cycles, instructions *float64
	receiving, app       float64 // shares of the core
	reached              float64 // packets a second
	limit                string  // why it is a lower bound, empty if it is none
	elsewhere, shared    bool    // where the cores were not at home, and not levee's own
}

// away tells whether the round is of other circumstances than those at home.
func (m mixed) away() bool { return m.elsewhere || m.shared }

// before tells whether a try at a round counts rather than another: with the cores at home and not shared, then if it is
// no bound, and else the earlier.
func (m mixed) before(later mixed) bool {
	if m.away() != later.away() {
		return later.away()
	}
	return m.limit == ""
}

// figures draws those of one rung and family from its windows; home is what they are to
// be of.
func (r *Report) figures(g *Rung, family string, home home) *Figures {
	f := &Figures{rounds: map[int]mixed{}}
	floods := 0
	for _, t := range r.Traffic {
		if t.Family == family {
			floods++
		}
	}
	lost := reasons{}
	byTraffic := map[int]map[string]float64{} // by round
	for _, windows := range g.attempts(family) {
		if bad := slices.IndexFunc(windows, func(w Window) bool { return len(w.Invalid) > 0 }); bad >= 0 {
			lost.add(windows[bad].Invalid[0])
			continue
		}
		if len(windows) != floods {
			continue
		}
		round, m := windows[0].Round, mix(windows)
		m.elsewhere = slices.ContainsFunc(windows, func(w Window) bool { return w.displaced(home.distance) })
		m.shared = slices.ContainsFunc(windows, func(w Window) bool { return w.crowded(home) })
		if old, ok := f.rounds[round]; ok && old.before(m) {
			continue // as a try more that another family needed
		}
		f.rounds[round] = m
		byTraffic[round] = map[string]float64{}
		for _, w := range windows {
			byTraffic[round][w.Traffic] = w.PPS
		}
	}
	f.valid = len(f.rounds)
	f.leaveOutAway(home)
	f.GoodRuns = len(f.rounds)
	if f.GoodRuns < r.Rounds {
		f.Why = lost.list()
	}
	if g.Missing != "" || f.valid < r.needed() {
		return f
	}
	f.medians()
	f.ByTraffic = map[string]Figure{}
	for _, t := range r.Traffic {
		var v []float64
		for round := range f.rounds {
			if pps, ok := byTraffic[round][t.Name]; ok {
				v = append(v, pps)
			}
		}
		if len(v) >= minRounds {
			f.ByTraffic[t.Name] = summary(v)
		}
	}
	return f
}

// leaveOutAway removes the rounds that were measured with the cores elsewhere or shared, where enough others for an interval
// remain.
func (f *Figures) leaveOutAway(home home) {
	total, elsewhere, shared := len(f.rounds), 0, 0
	for _, m := range f.rounds {
		switch {
		case m.elsewhere:
			elsewhere++
		case m.shared:
			shared++
		}
	}
	if f.placed = total - elsewhere - shared; f.placed == total {
		return
	}
	var why []string
	if elsewhere > 0 {
		why = append(why, fmt.Sprintf("%d rounds of %d were measured with the cores elsewhere (a cache line did not take about %.0f ns there and back)", elsewhere, total, home.distance))
	}
	if shared > 0 {
		why = append(why, fmt.Sprintf("%d rounds of %d with cores that were shared (an operation took more than %.3f ns)", shared, total, home.work*crowded))
	}
	f.Displaced = strings.Join(why, ", ")
	if f.placed < minRounds {
		f.Displaced += ": they count in the medians, for there are too few others"
		return
	}
	f.Displaced += ": they do not count"
	maps.DeleteFunc(f.rounds, func(_ int, m mixed) bool { return m.away() })
}

// reasons counts why rounds were lost; those that differ in their numbers alone are one.
type reasons map[string]*struct {
	example string
	times   int
}

func (r reasons) add(why string) {
	kind := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c == '.' {
			return -1
		}
		return c
	}, why)
	if r[kind] == nil {
		r[kind] = &struct {
			example string
			times   int
		}{example: why}
	}
	r[kind].times++
}

func (r reasons) list() []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(r)) {
		why := r[kind].example
		if n := r[kind].times; n > 1 {
			why += fmt.Sprintf(" (and so, more or less, in %d tries)", n)
		}
		out = append(out, why)
	}
	return out
}

// needed is how many rounds must have a figure: two of three, and as many as an interval needs. What a
// run that was interrupted has measured is shown in any case.
func (r *Report) needed() int {
	if r.Incomplete {
		return 1
	}
	return max((2*r.Rounds+2)/3, minRounds)
}

// attempts groups the windows of a family by the visit that they belong to.
func (g *Rung) attempts(family string) [][]Window {
	var out [][]Window
	for _, w := range g.Windows {
		if w.Family != family {
			continue
		}
		if n := len(out); n == 0 || w.Round != out[n-1][0].Round || w.Attempt != out[n-1][0].Attempt {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], w)
	}
	return out
}

// mix is the rate for as many packets of each flood: times add up, not rates.
func mix(windows []Window) mixed {
	var m mixed
	n := float64(len(windows))
	add := func(sum **float64, v *float64) {
		if v == nil {
			return
		}
		if *sum == nil {
			*sum = new(float64)
		}
		**sum += *v / n
	}
	slow := 0.0
	for _, w := range windows {
		slow += 1 / w.PPS / n
		m.ns += w.NsPerPacket / n
		m.receiving += w.ThreadBusy / n
		m.app += w.ApplicationBusy / n
		if w.Seconds > 0 {
			m.reached += float64(w.Reached) / w.Seconds / n
		}
		add(&m.cycles, w.CyclesPerPacket)
		add(&m.instructions, w.InstructionsPerPacket)
		if !w.Saturated {
			m.limit = w.Limit
		}
	}
	m.pps = 1 / slow
	return m
}

// medians summarises the rounds.
func (f *Figures) medians() {
	f.MedianPPS, f.Interval = f.over(func(m mixed) *float64 { return &m.pps })
	f.NsPerPacket, f.NsInterval = f.over(func(m mixed) *float64 { return &m.ns })
	f.undisturbed()
	f.CyclesPerPacket, _ = f.over(func(m mixed) *float64 { return m.cycles })
	f.InstructionsPerPacket, _ = f.over(func(m mixed) *float64 { return m.instructions })
	f.ReceivingCPU, _ = f.over(func(m mixed) *float64 { return &m.receiving })
	f.ApplicationCPU, _ = f.over(func(m mixed) *float64 { return &m.app })
	f.ReachedPPS, _ = f.over(func(m mixed) *float64 { return &m.reached })
	// A lower bound above the median leaves the median what it is, however high the true value.
	limits := map[string]bool{}
	for _, m := range f.rounds {
		if m.limit != "" && m.pps <= *f.MedianPPS {
			f.AtLeast, limits[m.limit] = true, true
		}
	}
	f.Limits = slices.Sorted(maps.Keys(limits))
}

// over is the median of something over the rounds, with its interval where there are enough of them.
func (f *Figures) over(of func(mixed) *float64) (*float64, *[2]float64) {
	var values []float64
	for _, m := range f.rounds {
		if v := of(m); v != nil {
			values = append(values, *v)
		}
	}
	if len(values) == 0 {
		return nil, nil
	}
	s := summary(values)
	if len(values) < minRounds {
		return &s.MedianPPS, nil
	}
	return &s.MedianPPS, &s.Interval
}

// Of the intervals of a quartile and of the least third: quotients of two at this confidence hold at 95 % (Bonferroni), and of
// fewer rounds there is none.
const (
	quartileConfidence = 1 - (1-report.Confidence)/2
	quartileRounds     = 13
)

// fewestAtHome rounds with the cores at home and not shared do for both: these scatter by some percent, and where the cores are makes
// half as much again, so that a few are better than a mixture that differs from rung to rung.
const fewestAtHome = 3

// undisturbed fills what a packet takes in the rounds that were least disturbed.
func (f *Figures) undisturbed() {
	var ns, atHome []float64
	for _, round := range slices.Sorted(maps.Keys(f.rounds)) { // in their order, from which intervals are drawn
		m := f.rounds[round]
		ns = append(ns, m.ns)
		if !m.away() {
			atHome = append(atHome, m.ns)
		}
	}
	if len(atHome) >= fewestAtHome {
		ns = atHome
	}
	q, low, high := report.Quantile(ns, 0.25, quartileConfidence)
	f.NsQuartile = &q
	if !math.IsInf(low, 0) && !math.IsInf(high, 0) {
		f.NsQuartileInterval = &[2]float64{low, high}
	}
	least, low, high := report.LeastThird(ns, quartileConfidence)
	f.NsLeast = &least
	if len(ns) >= quartileRounds {
		f.NsLeastInterval = &[2]float64{low, high}
	}
}

// compare is f over base, nil where one of them has no figure or too few rounds.
func compare(f, base *Figures) *Ratio {
	if f == nil || base == nil || f.MedianPPS == nil || base.MedianPPS == nil {
		return nil
	}
	var ratios, busy []float64
	for round, m := range f.rounds {
		other, ok := base.rounds[round]
		if !ok { // a round that was lost, or made up for
			other = mixed{pps: *base.MedianPPS, ns: *base.NsPerPacket}
		}
		ratios = append(ratios, m.pps/other.pps)
		busy = append(busy, other.ns/m.ns)
	}
	if len(ratios) < minRounds {
		return nil
	}
	p, s := summary(ratios), summary(busy)
	r := &Ratio{Median: p.MedianPPS, Interval: p.Interval, Busy: s.MedianPPS, BusyInterval: s.Interval, Quartile: *base.NsQuartile / *f.NsQuartile, Least: *base.NsLeast / *f.NsLeast}
	r.QuartileInterval = quotient(base.NsQuartileInterval, f.NsQuartileInterval)
	r.LeastInterval = quotient(base.NsLeastInterval, f.NsLeastInterval)
	if f == base {
		r.QuartileInterval, r.LeastInterval = &[2]float64{1, 1}, &[2]float64{1, 1}
	}
	switch {
	case f == base:
	case f.AtLeast && base.AtLeast:
		r.Bound = "unknown"
	case f.AtLeast:
		r.Bound = "at least"
	case base.AtLeast:
		r.Bound = "at most"
	}
	return r
}

// quotient is from the least to the most that two intervals allow, nil where one is missing.
func quotient(a, b *[2]float64) *[2]float64 {
	if a == nil || b == nil {
		return nil
	}
	return &[2]float64{a[0] / b[1], a[1] / b[0]}
}
