package bench

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"levee/internal/host"
	"levee/internal/lab/contender"
	"levee/internal/report"
)

// Report is the outcome of a ladder. Its JSON is what `levee bench ladder --json` prints; names of fields
// stay once shipped.
type Report struct {
	Started    time.Time `json:"started"`
	Command    string    `json:"command"` // to repeat it
	Quick      bool      `json:"quick"`   // short windows: not to be quoted
	Incomplete bool      `json:"incomplete"`
	Families   []string  `json:"families"`
	Rounds     int       `json:"rounds"`
	WindowMS   int64     `json:"window_ms"`
	WarmupMS   int64     `json:"warmup_ms"`
	Seed       uint64    `json:"seed"`
	Policy     string    `json:"policy"`
	Path       []string  `json:"path"` // what all rungs have in common
	Traffic    []Traffic `json:"traffic"`
	Machine    host.Info `json:"machine"`
	// CoreDistance is the least tenth of the windows' distances, in ns, 0 where there is none: windows with another
	// one count only where there are too few with this.
	CoreDistance float64 `json:"core_distance_ns"`
	// CoreWork is the least tenth of the windows' ns an operation, 0 where there is none: windows in which it took 1.15 times as
	// long count only where there are too few others. Its CoreWorkMedian is what most windows had.
	CoreWork       float64  `json:"core_work_ns"`
	CoreWorkMedian float64  `json:"core_work_median_ns"`
	Rungs          []*Rung  `json:"rungs"`
	Caveats        []string `json:"caveats"`
}

// Traffic is one flood of the mix.
type Traffic struct {
	Name   string `json:"name"`
	Family string `json:"family,omitempty"`
	What   string `json:"what"`
}

// Rung is one place to drop packets.
type Rung struct {
	Name string `json:"name"`
	// Group is "place" for one rule, an empty program or the application itself, "filter" for the rules of
	// the policy; empty in other comparisons.
	Group string `json:"group,omitempty"`
	What  string `json:"what"`
	// Rules are the rung's rules in its own language.
	Rules string `json:"rules,omitempty"`
	// Family is that of the figures that follow, the first that was measured; ByFamily has all.
	Family string `json:"family,omitempty"`
	Figures
	ByFamily map[string]*Figures `json:"by_family,omitempty"`
	Missing  string              `json:"missing,omitempty"` // why the rung could not be measured at all
	Windows  []Window            `json:"windows"`

	absent bool // its program is not installed, or it is not for this flood
}

// Figures are what was found of one rung and family.
type Figures struct {
	// MedianPPS is packets a second of the mix, as many of each flood, over the rounds; Interval bounds it
	// at 95 %. Both are null when there is no figure; Why then says why. In an incomplete report the
	// interval alone may be missing.
	MedianPPS *float64    `json:"median_pps"`
	Interval  *[2]float64 `json:"interval"`
	// AtLeast: the generator was the limit, not the rung, in so many rounds that the true median may be
	// higher. Limits says how that showed.
	AtLeast bool     `json:"at_least"`
	Limits  []string `json:"limits,omitempty"`
	// NsPerPacket is the run time of the receiving thread, and of the application, for each packet of
	// the mix. It tells rungs apart that the generator cannot saturate, a little too high for them: they
	// work in smaller batches.
	NsPerPacket *float64    `json:"ns_per_packet"`
	NsInterval  *[2]float64 `json:"ns_interval"`
	// NsQuartile is the lower quartile of the same over the rounds: what a packet takes in the quarter of them that
	// was least disturbed. Its interval, null of fewer than thirteen rounds, holds it at 97.5 %, so that the quotient
	// of two such intervals holds that of the quartiles at 95 %.
	NsQuartile         *float64    `json:"ns_quartile"`
	NsQuartileInterval *[2]float64 `json:"ns_quartile_interval"`
	// NsLeast is the mean of the third of the rounds in which it was least: what a packet takes while nothing disturbs. Its
	// interval is as that of the quartile.
	NsLeast         *float64    `json:"ns_least_third"`
	NsLeastInterval *[2]float64 `json:"ns_least_third_interval"`
	// Rank is the rung's place by NsPerPacket: one more than the number of rungs whose interval ends below this one's;
	// 0 without an interval. RankShared: another rung's interval overlaps, and the data do not say which is faster.
	Rank       int  `json:"rank,omitempty"`
	RankShared bool `json:"rank_shared,omitempty"`
	// Medians over the rounds. Cycles and instructions are null where the machine has no counters for
	// them; the shares of the receiving core are of driver, stack and rung, and of the application.
	CyclesPerPacket       *float64          `json:"cycles_per_packet"`
	InstructionsPerPacket *float64          `json:"instructions_per_packet"`
	ReceivingCPU          *float64          `json:"receiving_cpu"`
	ApplicationCPU        *float64          `json:"application_cpu"`
	ReachedPPS            *float64          `json:"reached_application_pps"`
	ToXDPDrop             *Ratio            `json:"to_xdp_drop"`
	ToLevee               *Ratio            `json:"to_levee"`
	ByTraffic             map[string]Figure `json:"by_traffic,omitempty"`
	Why                   []string          `json:"why,omitempty"` // why there is no figure, or rounds were lost
	GoodRuns              int               `json:"good_rounds"`   // that count
	// Displaced says how many rounds were measured with the cores elsewhere, and whether they count.
	Displaced string `json:"displaced,omitempty"`

	rounds map[int]mixed // valid rounds only
	valid  int           // rounds with a figure, wherever the cores were, and
	placed int           // of these, those with the cores at home and not shared
}

// Figure is a median with its 95 % interval.
type Figure struct {
	MedianPPS float64    `json:"median_pps"`
	Interval  [2]float64 `json:"interval"`
}

// Ratio compares two rungs of the same rounds. Bound is empty, or what is known of the true ratio
// when the generator limited one of them: "at least", "at most", "unknown" when it limited both.
// Median is that of the packets a second, round by round; Busy the same for packets a second of run time of receiver and
// application. Least, which is printed and drawn, is the quotient of run times in the least third of the rounds (NsLeast), the
// other rung's over this one's; its interval is null where one of the rungs has none. Quartile is the same of lower quartiles.
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

// leastCaveat says what the printed ratios are.
const leastCaveat = "ratios compare the mean ns of the least third of each place's rounds, which were least disturbed; the medians of the ratios stand beside them"

func newReport(o *Options, b *bench) *Report {
	r := &Report{
		Started: time.Now().UTC().Truncate(time.Second), Command: o.Command, Quick: o.Quick, Rounds: o.Rounds, Families: o.Families,
		WindowMS: o.Window.Milliseconds(), WarmupMS: o.Warmup.Milliseconds(), Seed: o.Seed, Policy: o.PolicyName,
		Path: []string{
			"one veth pair in a lab of its own, one queue, GRO on, no qdisc at the sender",
			"receiver: NAPI in a thread that has one core; it does all the work of every rung",
			"generator: live frames on the other core, the same seed for all rungs",
			"the device is reached by nothing else; reverse-path filter off, static neighbours",
		},
		Machine: host.Fingerprint(b.receiverCPU),
		Caveats: []string{"veth has no DMA and no descriptors: ratios carry over to other machines, absolute figures do not"},
	}
	if b.sink != nil {
		r.Caveats = append(r.Caveats, leastCaveat)
		r.Path = append(r.Path, "the application runs on the receiving core too, at the same priority, in all rungs; it sleeps where nothing reaches it")
		r.Caveats = append(r.Caveats,
			"recvmmsg: receiver and application share the one core, and the figure is what the application took",
			"recvmmsg with conntrack: each packet is a new flow; its windows are short enough for the machine's conntrack table")
	}
	if b.hardware.why != "" {
		r.Caveats = append(r.Caveats, b.hardware.why)
	}
	if o.Quick {
		r.Caveats = append(r.Caveats, "--quick: short windows, for a look; quote a run without it")
	}
	for _, t := range b.mix {
		r.Traffic = append(r.Traffic, Traffic{t.name, t.family, t.what})
	}
	return r
}

// summarise draws the figures of all rungs from their windows.
func (r *Report) summarise() {
	if r.Incomplete {
		r.Caveats = append(r.Caveats, "incomplete: the run was interrupted; medians of fewer than six rounds have no interval")
	}
	home := r.home()
	r.CoreDistance, r.CoreWork, r.CoreWorkMedian = home.distance, home.work, r.medianWork()
	if n, total := r.count(func(w *Window) bool { return w.displaced(home.distance) }); n > 0 {
		r.Caveats = append(r.Caveats, fmt.Sprintf("the hypervisor moved the cores: of %d windows %d had them elsewhere than in the nearest tenth, where a cache line takes %.0f ns from one to the other and back; "+
			"their rounds count only where there are too few others", total, n, r.CoreDistance))
	}
	if n, total := r.count(func(w *Window) bool { return w.crowded(home) }); n > 0 {
		r.Caveats = append(r.Caveats, fmt.Sprintf("neighbours shared the cores: around %d windows of %d an operation took %.2f times as long as in the freest tenth, or longer; "+
			"their rounds count only where there are too few others", n, total, crowded))
	}
	families := r.families()
	for _, g := range r.Rungs {
		g.ByFamily = nil
		for i, family := range families {
			f := r.figures(g, family, home)
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
			f.ToXDPDrop = compare(f, r.Rung(contender.XDPDrop().Name()).of(family))
			f.ToLevee = compare(f, r.Rung("levee").of(family))
			if i == 0 {
				g.ToXDPDrop, g.ToLevee = f.ToXDPDrop, f.ToLevee
				g.Rank, g.RankShared = f.Rank, f.RankShared
			}
		}
	}
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

// count is how many windows are so, and of how many.
func (r *Report) count(is func(*Window) bool) (n, total int) {
	for w := range r.windows() {
		if total++; is(w) {
			n++
		}
	}
	return n, total
}

// windows are those of all rungs.
func (r *Report) windows() iter.Seq[*Window] {
	return func(yield func(*Window) bool) {
		for _, g := range r.Rungs {
			for i := range g.Windows {
				if !yield(&g.Windows[i]) {
					return
				}
			}
		}
	}
}

// home is that of the windows until now.
func (r *Report) home() home { return homeOf(r.windows()) }

// medianWork is that of the windows' ns an operation, 0 of none.
func (r *Report) medianWork() float64 {
	var all []float64
	for w := range r.windows() {
		if work := w.work(); work > 0 {
			all = append(all, work)
		}
	}
	if len(all) == 0 {
		return 0
	}
	m, _, _ := report.Summary(all)
	return m
}

// families are those measured; one without a name where that was not the question.
func (r *Report) families() []string {
	if len(r.Families) == 0 {
		return []string{""}
	}
	return r.Families
}

// of is the figures of a family, nil where there are none.
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

// Complete tells whether each rung that this machine has got a figure of each family.
func (r *Report) Complete() bool { return len(r.Lacking()) == 0 }

// Lacking names the rungs that should have a figure and do not.
func (r *Report) Lacking() []string {
	var names []string
	for _, g := range r.Rungs {
		lacks := g.MedianPPS == nil
		for _, f := range g.ByFamily {
			lacks = lacks || f.MedianPPS == nil
		}
		if lacks && !g.absent {
			names = append(names, g.Name)
		}
	}
	return names
}

// hasGood tells whether the rung has a window with a figure.
func (g *Rung) hasGood() bool {
	return slices.ContainsFunc(g.Windows, func(w Window) bool { return len(w.Invalid) == 0 })
}
