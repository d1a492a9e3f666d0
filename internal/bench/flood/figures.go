package flood

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"levee/internal/bench"
	"levee/internal/report"
)

// Figures holds the results of one rung and family.
type Figures struct {
	// MedianPPS is packets a second of the mix, as many of each flood, over the rounds; Interval
	// bounds it at 95 %. Both are null when there is no figure; Why then says why. In an incomplete
	// report the interval alone may be missing.
	MedianPPS *float64    `json:"median_pps"`
	Interval  *[2]float64 `json:"interval"`
	// AtLeast: the generator was the limit, not the rung, in so many rounds that the true median
	// may be higher. Limits says how that showed.
	AtLeast bool     `json:"at_least"`
	Limits  []string `json:"limits,omitempty"`
	// NsPerPacket is the run time of the receiving thread, and of the application, for each packet
	// of the mix. It tells rungs apart that the generator cannot saturate, a little too high for
	// them: they work in smaller batches.
	NsPerPacket *float64    `json:"ns_per_packet"`
	NsInterval  *[2]float64 `json:"ns_interval"`
	// NsQuartile is the lower quartile of the same over the rounds: what a packet takes in the
	// quarter of them that was least disturbed. Its interval, null of fewer than thirteen rounds,
	// holds it at 97.5 %, so that the quotient of two such intervals holds that of the quartiles at
	// 95 %.
	NsQuartile         *float64    `json:"ns_quartile"`
	NsQuartileInterval *[2]float64 `json:"ns_quartile_interval"`
	// NsLeast is the mean of the third of the rounds in which it was least: what a packet takes
	// while nothing disturbs. Its interval is as that of the quartile.
	NsLeast         *float64    `json:"ns_least_third"`
	NsLeastInterval *[2]float64 `json:"ns_least_third_interval"`
	// Medians over the rounds. Cycles and instructions are null where the machine has no counters
	// for them; the shares of the receiving core are of driver, stack and rung, and of the
	// application.
	CyclesPerPacket       *float64          `json:"cycles_per_packet"`
	InstructionsPerPacket *float64          `json:"instructions_per_packet"`
	ReceivingCPU          *float64          `json:"receiving_cpu"`
	ApplicationCPU        *float64          `json:"application_cpu"`
	ReachedPPS            *float64          `json:"reached_application_pps"`
	ByTraffic             map[string]Figure `json:"by_traffic,omitempty"`
	// why there is no figure, or rounds were lost
	Why      []string `json:"why,omitempty"`
	GoodRuns int      `json:"good_rounds"` // that count
	// Displaced says how many rounds were measured with the cores elsewhere, and whether they
	// count.
	Displaced string `json:"displaced,omitempty"`

	// Placed counts the rounds that had the cores as in the reference.
	Placed int `json:"-"`

	rounds map[int]mixed // that count
	valid  int           // rounds with a figure, wherever the cores were
}

// Figure is a median with its 95 % interval.
type Figure struct {
	MedianPPS float64    `json:"median_pps"`
	Interval  [2]float64 `json:"interval"`
}

// Ratio compares two rungs of the same rounds. Bound is empty, or what is known of the true ratio
// when the generator limited one of them: "at least", "at most", "unknown" when it limited both.
// Median is that of the packets a second, round by round; Busy the same for packets a second of run
// time of receiver and application. Least, which is printed and drawn, is the quotient of run times
// in the least third of the rounds (NsLeast), the other rung's over this one's; its interval is
// null where one of the rungs has none. Quartile is the same of lower quartiles.
type Ratio struct {
	Median           float64     `json:"median"`
	Interval         [2]float64  `json:"interval"`
	Bound            string      `json:"bound,omitempty"`
	Busy             float64     `json:"busy"`
	BusyInterval     [2]float64  `json:"busy_interval"`
	Quartile         float64     `json:"quartile"`
	QuartileInterval *[2]float64 `json:"quartile_interval"`
	Least            float64     `json:"least_third"`
	LeastInterval    *[2]float64 `json:"least_third_interval"`
}

// figure returns the median with the interval that order statistics give it (report.Summary).
// Values are bench.MinRounds or more, or the interval is unbounded.
func figure(values []float64) Figure {
	m, low, high := report.Summary(values)
	return Figure{MedianPPS: m, Interval: [2]float64{low, high}}
}

// RoundValues are packets a second and ns a packet of the rounds that count, in their order.
func (f *Figures) RoundValues() (pps, ns []float64) {
	for _, round := range slices.Sorted(maps.Keys(f.rounds)) {
		pps, ns = append(pps, f.rounds[round].pps), append(ns, f.rounds[round].ns)
	}
	return pps, ns
}

// mixed is one round of a rung over all floods of the mix.
type mixed struct {
	pps, ns              float64
	cycles, instructions *float64
	receiving, app       float64 // shares of the core
	reached              float64 // packets a second
	limit                string  // why it is a lower bound, empty if it is none
	moved, shared        bool    // the cores were elsewhere, and not levee's own
}

// unlike tells whether the round is of other circumstances than the reference.
func (m mixed) unlike() bool { return m.moved || m.shared }

// before tells whether a try at a round counts rather than another: with the cores as in the
// reference, then if it is no bound, and else the earlier.
func (m mixed) before(later mixed) bool {
	if m.unlike() != later.unlike() {
		return later.unlike()
	}
	return m.limit == ""
}

// Figures draws those of one rung and family from its windows.
func (c *Comparison) Figures(g *Rung, family string) *Figures {
	return c.figures(g, family, c.Reference())
}

// figures returns the figures of windows that are to be like the reference.
func (c *Comparison) figures(g *Rung, family string, r Reference) *Figures {
	f := &Figures{rounds: map[int]mixed{}}
	floods := 0
	for _, t := range c.Traffic {
		if t.Family == family {
			floods++
		}
	}
	lost := reasons{}
	byTraffic := map[int]map[string]float64{} // by round
	for _, windows := range g.attempts(family) {
		if bad := slices.IndexFunc(windows,
			func(w Window) bool { return len(w.Invalid) > 0 }); bad >= 0 {
			lost.add(windows[bad].Invalid[0])
			continue
		}
		if len(windows) != floods {
			continue
		}
		round, m := windows[0].Round, mix(windows)
		m.moved = slices.ContainsFunc(windows, func(w Window) bool { return w.Moved(r) })
		m.shared = slices.ContainsFunc(windows, func(w Window) bool { return w.Shared(r) })
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
	f.leaveOutUnlike(r)
	f.GoodRuns = len(f.rounds)
	if f.GoodRuns < c.Rounds {
		f.Why = lost.list()
	}
	if g.Missing != "" || f.valid < c.needed() {
		return f
	}
	f.medians()
	f.ByTraffic = map[string]Figure{}
	for _, t := range c.Traffic {
		var v []float64
		for round := range f.rounds {
			if pps, ok := byTraffic[round][t.Name]; ok {
				v = append(v, pps)
			}
		}
		if len(v) >= bench.MinRounds {
			f.ByTraffic[t.Name] = figure(v)
		}
	}
	return f
}

// leaveOutUnlike removes the rounds that were measured with the cores elsewhere or shared, where
// enough others for an interval remain.
func (f *Figures) leaveOutUnlike(r Reference) {
	total, moved, shared := len(f.rounds), 0, 0
	for _, m := range f.rounds {
		switch {
		case m.moved:
			moved++
		case m.shared:
			shared++
		}
	}
	if f.Placed = total - moved - shared; f.Placed == total {
		return
	}
	var why []string
	if moved > 0 {
		why = append(why, fmt.Sprintf("%d rounds of %d were measured with the cores elsewhere (a "+
			"cache line did not take about %.0f ns there and back)", moved, total, r.Distance))
	}
	if shared > 0 {
		why = append(why, fmt.Sprintf("%d rounds of %d with cores that were shared (an operation "+
			"took more than %.3f ns)", shared, total, r.Work*bench.SameStep))
	}
	f.Displaced = strings.Join(why, ", ")
	if f.Placed < bench.MinRounds {
		f.Displaced += ": they count in the medians, for there are too few others"
		return
	}
	f.Displaced += ": they do not count"
	maps.DeleteFunc(f.rounds, func(_ int, m mixed) bool { return m.unlike() })
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

// needed returns how many rounds must have a figure: two of three, and as many as an interval
// needs. What a run that was interrupted has measured is shown in any case.
func (c *Comparison) needed() int {
	if c.Incomplete {
		return 1
	}
	return max((2*c.Rounds+2)/3, bench.MinRounds)
}

// attempts groups the windows of a family by their attempt.
func (g *Rung) attempts(family string) [][]Window {
	var out [][]Window
	for _, w := range g.Windows {
		if w.Family != family {
			continue
		}
		if n := len(out); n == 0 || w.Round != out[n-1][0].Round ||
			w.Attempt != out[n-1][0].Attempt {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], w)
	}
	return out
}

// mix returns the rate for as many packets of each flood: times add up, not rates.
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

// over returns the median of something over the rounds, with its interval where there are enough of
// them.
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
	s := figure(values)
	if len(values) < bench.MinRounds {
		return &s.MedianPPS, nil
	}
	return &s.MedianPPS, &s.Interval
}

// Of the intervals of a quartile and of the least third: quotients of two at this confidence hold
// at 95 % (Bonferroni), and of fewer rounds there is none.
const (
	confidence     = 1 - (1-report.Confidence)/2
	quartileRounds = 13
)

// fewestLike rounds with the cores as in the reference do for both: these scatter by some percent,
// and where the cores are makes half as much again, so that a few are better than a mixture that
// differs from rung to rung.
const fewestLike = 3

// undisturbed fills what a packet takes in the rounds that were least disturbed.
func (f *Figures) undisturbed() {
	var ns, alike []float64
	// in their order, from which intervals are drawn
	for _, round := range slices.Sorted(maps.Keys(f.rounds)) {
		m := f.rounds[round]
		ns = append(ns, m.ns)
		if !m.unlike() {
			alike = append(alike, m.ns)
		}
	}
	if len(alike) >= fewestLike {
		ns = alike
	}
	q, low, high := report.Quantile(ns, 0.25, confidence)
	f.NsQuartile = &q
	if !math.IsInf(low, 0) && !math.IsInf(high, 0) {
		f.NsQuartileInterval = &[2]float64{low, high}
	}
	least, low, high := report.LeastThird(ns, confidence)
	f.NsLeast = &least
	if len(ns) >= quartileRounds {
		f.NsLeastInterval = &[2]float64{low, high}
	}
}

// Over is f over base, nil where one of them has no figure or too few rounds.
func (f *Figures) Over(base *Figures) *Ratio {
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
	if len(ratios) < bench.MinRounds {
		return nil
	}
	p, s := figure(ratios), figure(busy)
	r := &Ratio{Median: p.MedianPPS, Interval: p.Interval, Busy: s.MedianPPS,
		BusyInterval: s.Interval, Quartile: *base.NsQuartile / *f.NsQuartile,
		Least: *base.NsLeast / *f.NsLeast}
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
