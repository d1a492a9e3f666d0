package ladder

import (
	"fmt"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/lab/contender"
	"levee/internal/report"
)

// Report is the outcome of a ladder. Its JSON is what `levee bench ladder --json` prints; names of
// fields stay once shipped.
type Report struct {
	bench.Head
	Interrupted bool            `json:"incomplete"`
	Families    []string        `json:"families"`
	WindowMS    int64           `json:"window_ms"`
	WarmupMS    int64           `json:"warmup_ms"`
	Policy      string          `json:"policy"`
	Path        []string        `json:"path"` // what all rungs have in common
	Traffic     []flood.Traffic `json:"traffic"`
	// CoreDistance is the least tenth of the windows' distances, in ns, 0 where there is none:
	// windows with another one count only where there are too few with this.
	CoreDistance float64 `json:"core_distance_ns"`
	// CoreWork is the least tenth of the windows' ns an operation, 0 where there is none: windows
	// in which it took 1.15 times as long count only where there are too few others. CoreWorkMedian
	// is what most windows had.
	CoreWork       float64 `json:"core_work_ns"`
	CoreWorkMedian float64 `json:"core_work_median_ns"`
	Rungs          []*Rung `json:"rungs"`

	all *flood.Comparison
}

// Rung is one place to drop packets.
type Rung struct {
	*flood.Rung
	// Group is "place" for one rule, an empty program or the application itself, "filter" for the
	// rules of the policy.
	Group string `json:"group,omitempty"`
	// Rules are the rung's rules in its own language.
	Rules string `json:"rules,omitempty"`
	// Family is that of the figures that follow, the first that was measured; ByFamily has all.
	Family string `json:"family,omitempty"`
	Figures
	ByFamily map[string]*Figures `json:"by_family,omitempty"`
	Raw      []flood.Window      `json:"windows"`

	udp bool // it drops nothing but UDP to flood.Port
}

// Figures are those of one rung and family, and how they compare.
type Figures struct {
	flood.Figures
	// Rank is the rung's place by NsPerPacket: one more than the number of rungs whose interval
	// ends below this one's; 0 without an interval. RankShared: another rung's interval overlaps,
	// and the data do not say which is faster.
	Rank       int          `json:"rank,omitempty"`
	RankShared bool         `json:"rank_shared,omitempty"`
	ToXDPDrop  *flood.Ratio `json:"to_xdp_drop"`
	ToXDPRead  *flood.Ratio `json:"to_xdp_read"`
	ToLevee    *flood.Ratio `json:"to_levee"`
}

// leastCaveat says what the printed ratios are.
const leastCaveat = "ratios compare the mean ns of the least third of each place's rounds, which " +
	"were least disturbed; the medians of the ratios stand beside them"

func newReport(o *Options, l *flood.Lab, c *flood.Comparison) *Report {
	r := &Report{
		Head: o.Head(l.ReceiverCPU, l.Caveat(), leastCaveat,
			"recvmmsg: receiver and application share the one core, and the figure is what the "+
				"application took",
			"recvmmsg with conntrack: each packet is a new flow; its windows are short enough "+
				"for the machine's conntrack table"),
		Families: o.Families, WindowMS: o.Window.Milliseconds(), WarmupMS: o.Warmup.Milliseconds(),
		Policy: o.PolicyName,
		Path: append(l.Path(),
			"the device is reached by nothing else; reverse-path filter off, static neighbours",
			"the application runs on the receiving core too, at the same priority, in all rungs; "+
				"it sleeps where nothing reaches it"),
		Traffic: c.Traffic, all: c,
	}
	if why := l.NoCounters(); why != "" {
		r.Caveats = append(r.Caveats, why)
	}
	r.WarnOfQuick()
	return r
}

// add takes a rung into the report, and its parts.
func (r *Report) add(g *Rung) {
	r.Rungs, r.all.Rungs = append(r.Rungs, g), append(r.all.Rungs, g.Rung)
}

// summarise draws the figures of all rungs from their windows.
func (r *Report) summarise() {
	if r.Interrupted = r.all.Incomplete; r.Interrupted {
		r.Incomplete = "interrupted; these are the rounds until then"
		r.Caveats = append(r.Caveats, "incomplete: the run was interrupted; medians of fewer "+
			"than six rounds have no interval")
	}
	home := r.all.Reference()
	r.CoreDistance, r.CoreWork, r.CoreWorkMedian = home.Distance, home.Work, r.medianWork()
	if n, total := r.count(func(w *flood.Window) bool { return w.Moved(home) }); n > 0 {
		r.Caveats = append(r.Caveats, fmt.Sprintf("the hypervisor moved the cores: of %d windows "+
			"%d had them elsewhere than in the nearest tenth, where a cache line takes %.0f ns "+
			"from one to the other and back; "+
			"their rounds count only where there are too few others", total, n, r.CoreDistance))
	}
	if n, total := r.count(func(w *flood.Window) bool { return w.Shared(home) }); n > 0 {
		r.Caveats = append(r.Caveats, fmt.Sprintf("neighbours shared the cores: around %d "+
			"windows of %d an operation took %.2f times as long as in the freest tenth, or "+
			"longer; "+
			"their rounds count only where there are too few others", n, total, bench.SameStep))
	}
	families := r.families()
	for _, g := range r.Rungs {
		g.ByFamily, g.Raw = nil, g.Windows
		for i, family := range families {
			f := &Figures{Figures: *r.all.Figures(g.Rung, family)}
			if family != "" && g.ByFamily == nil {
				g.ByFamily = map[string]*Figures{}
			}
			if family != "" {
				g.ByFamily[family] = f
			}
			if i == 0 {
				g.Family, g.Figures = family, *f
			}
		}
	}
	for _, family := range families {
		r.rank(family)
	}
	for _, g := range r.Rungs {
		for i, family := range families {
			f := g.of(family)
			f.ToXDPDrop = f.over(r.Rung(contender.XDPDrop().Name()).of(family))
			f.ToXDPRead = f.over(r.Rung(contender.XDPRead().Name()).of(family))
			f.ToLevee = f.over(r.Rung("levee").of(family))
			if i == 0 {
				g.ToXDPDrop, g.ToXDPRead, g.ToLevee = f.ToXDPDrop, f.ToXDPRead, f.ToLevee
				g.Rank, g.RankShared = f.Rank, f.RankShared
			}
		}
	}
}

// over is f over base, either of which may be nil.
func (f *Figures) over(base *Figures) *flood.Ratio {
	if f == nil || base == nil {
		return nil
	}
	return f.Figures.Over(&base.Figures)
}

// rank fills the places of a family's rungs.
func (r *Report) rank(family string) {
	var all []*Figures
	var intervals []*[2]float64
	for _, g := range r.Rungs {
		f := g.of(family)
		all, intervals = append(all, f), append(intervals, f.NsInterval)
	}
	for i, place := range report.Ranks(intervals) {
		all[i].Rank, all[i].RankShared = place.Rank, place.Shared
	}
}

// count returns how many windows are so, and of how many.
func (r *Report) count(is func(*flood.Window) bool) (n, total int) {
	for w := range r.all.AllWindows() {
		if total++; is(w) {
			n++
		}
	}
	return n, total
}

// medianWork returns that of the windows' ns an operation, 0 of none.
func (r *Report) medianWork() float64 {
	var all []float64
	for w := range r.all.AllWindows() {
		if work := w.OperationNs(); work > 0 {
			all = append(all, work)
		}
	}
	if len(all) == 0 {
		return 0
	}
	m, _, _ := report.Summary(all)
	return m
}

// families returns those measured; one without a name where that was not the question.
func (r *Report) families() []string {
	if len(r.Families) == 0 {
		return []string{""}
	}
	return r.Families
}

// of returns the figures of a family, nil where there are none.
func (g *Rung) of(family string) *Figures {
	switch {
	case g == nil:
		return nil
	case family == "":
		return &g.Figures
	}
	return g.ByFamily[family]
}

// Rung finds a rung by name, nil if it was not measured.
func (r *Report) Rung(name string) *Rung {
	for _, g := range r.Rungs {
		if g.Name == name {
			return g
		}
	}
	return nil
}

// Lacking names the rungs that should have a figure and do not.
func (r *Report) Lacking() []string {
	var names []string
	for _, g := range r.Rungs {
		lacks := g.MedianPPS == nil
		for _, f := range g.ByFamily {
			lacks = lacks || f.MedianPPS == nil
		}
		if lacks && !g.Absent {
			names = append(names, g.Name)
		}
	}
	return names
}
