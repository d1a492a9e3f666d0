package bench

import (
	"slices"
	"time"

	"levee/internal/machine"
	"levee/internal/peer"
)

// Report is the outcome of a ladder. Its JSON is what `levee bench ladder --json` prints; names of fields
// stay once shipped.
type Report struct {
	Started    time.Time    `json:"started"`
	Command    string       `json:"command"` // to repeat it
	Quick      bool         `json:"quick"`   // short windows: not to be quoted
	Incomplete bool         `json:"incomplete"`
	Families   []string     `json:"families"`
	Rounds     int          `json:"rounds"`
	WindowMS   int64        `json:"window_ms"`
	WarmupMS   int64        `json:"warmup_ms"`
	Seed       uint64       `json:"seed"`
	Policy     string       `json:"policy"`
	Path       []string     `json:"path"` // what all rungs have in common
	Traffic    []Traffic    `json:"traffic"`
	Machine    machine.Info `json:"machine"`
	Rungs      []*Rung      `json:"rungs"`
	Caveats    []string     `json:"caveats"`
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
	// Medians over the rounds. Cycles and instructions are null where the machine has no counters for
	// them; the shares of the receiving core are of driver, stack and rung, and of the application.
	CyclesPerPacket       *float64 `json:"cycles_per_packet"`
	InstructionsPerPacket *float64 `json:"instructions_per_packet"`
	ReceivingCPU          *float64 `json:"receiving_cpu"`
	ApplicationCPU        *float64 `json:"application_cpu"`
	ReachedPPS            *float64 `json:"reached_application_pps"`
	// Ratios are medians over the rounds of this rung's packets a second over the other's.
	ToXDPDrop *Ratio            `json:"to_xdp_drop"`
	ToLevee   *Ratio            `json:"to_levee"`
	ByTraffic map[string]Figure `json:"by_traffic,omitempty"`
	Why       []string          `json:"why,omitempty"` // why there is no figure, or rounds were lost
	GoodRuns  int               `json:"good_rounds"`

	rounds map[int]mixed // valid rounds only
}

// Figure is a median with its 95 % interval.
type Figure struct {
	MedianPPS float64    `json:"median_pps"`
	Interval  [2]float64 `json:"interval"`
}

// Ratio compares two rungs of the same rounds. Bound is empty, or what is known of the true ratio
// when the generator limited one of them: "at least", "at most", "unknown" when it limited both.
// Busy is the same ratio for packets a second of run time of the receiving thread.
type Ratio struct {
	Median       float64    `json:"median"`
	Interval     [2]float64 `json:"interval"`
	Bound        string     `json:"bound,omitempty"`
	Busy         float64    `json:"busy"`
	BusyInterval [2]float64 `json:"busy_interval"`
}

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
		Machine: machine.Fingerprint(b.receiverCPU),
		Caveats: []string{"veth has no DMA and no descriptors: ratios carry over to other machines, absolute figures do not"},
	}
	if b.sink != nil {
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
	families := r.families()
	for _, g := range r.Rungs {
		g.ByFamily = nil
		for i, family := range families {
			f := r.figures(g, family)
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
	for _, g := range r.Rungs {
		for i, family := range families {
			f := g.of(family)
			f.ToXDPDrop = compare(f, r.Rung(peer.XDPDrop().Name()).of(family))
			f.ToLevee = compare(f, r.Rung("levee").of(family))
			if i == 0 {
				g.ToXDPDrop, g.ToLevee = f.ToXDPDrop, f.ToLevee
			}
		}
	}
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
