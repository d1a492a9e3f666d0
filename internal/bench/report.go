package bench

import (
	"maps"
	"slices"
	"time"

	"levee/internal/machine"
	"levee/internal/peer"
)

// Report is the outcome of a ladder. Its JSON is what `levee bench ladder --json` prints; names of fields
// stay once shipped.
type Report struct {
	Started  time.Time    `json:"started"`
	Command  string       `json:"command"` // to repeat it
	Quick    bool         `json:"quick"`   // short windows: not to be quoted
	Rounds   int          `json:"rounds"`
	WindowMS int64        `json:"window_ms"`
	WarmupMS int64        `json:"warmup_ms"`
	Seed     uint64       `json:"seed"`
	Policy   string       `json:"policy"`
	Path     []string     `json:"path"` // what all rungs have in common
	Traffic  []Traffic    `json:"traffic"`
	Machine  machine.Info `json:"machine"`
	Rungs    []*Rung      `json:"rungs"`
	Caveats  []string     `json:"caveats"`
}

// Traffic is one flood of the mix.
type Traffic struct {
	Name string `json:"name"`
	What string `json:"what"`
}

// Rung is one place to drop packets.
type Rung struct {
	Name string `json:"name"`
	What string `json:"what"`
	// Rules are the rung's rules in its own language.
	Rules string `json:"rules,omitempty"`
	// MedianPPS is packets a second of the mix, half of each flood, over the rounds; Interval bounds it
	// at 95 %. Both are null when there is no figure; Why then says why.
	MedianPPS *float64    `json:"median_pps"`
	Interval  *[2]float64 `json:"interval"`
	// AtLeast: the generator was the limit, not the rung, in one window or more.
	AtLeast bool `json:"at_least"`
	// NsPerPacket is the run time of the receiving thread for each packet of the mix. It tells rungs apart
	// that the generator cannot saturate, a little too high for them: they work in smaller batches.
	NsPerPacket *float64    `json:"ns_per_packet"`
	NsInterval  *[2]float64 `json:"ns_interval"`
	// Ratios are medians over the rounds of this rung's packets a second over the other's.
	ToXDPDrop *Ratio            `json:"to_xdp_drop"`
	ToLevee   *Ratio            `json:"to_levee"`
	ByTraffic map[string]Figure `json:"by_traffic,omitempty"`
	Missing   string            `json:"missing,omitempty"` // why the rung could not be measured at all
	Why       []string          `json:"why,omitempty"`     // why there is no figure
	Windows   []Window          `json:"windows"`

	rounds map[int]mixed // valid rounds only
	absent bool          // its program is not installed
}

// Figure is a median with its 95 % interval.
type Figure struct {
	MedianPPS float64    `json:"median_pps"`
	Interval  [2]float64 `json:"interval"`
}

// mixed is one round of a rung over all floods of the mix.
type mixed struct{ pps, ns float64 }

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
		Started: time.Now().UTC().Truncate(time.Second), Command: o.Command, Quick: o.Quick, Rounds: o.Rounds,
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
	if o.Quick {
		r.Caveats = append(r.Caveats, "--quick: short windows, for a look; quote a run without it")
	}
	for _, t := range b.mix {
		r.Traffic = append(r.Traffic, Traffic{t.name, t.what})
	}
	return r
}

// summarise draws the figures of all rungs from their windows.
func (r *Report) summarise() {
	for _, g := range r.Rungs {
		g.summarise(r.Rounds, len(r.Traffic))
	}
	for _, g := range r.Rungs {
		g.ToXDPDrop = compare(g, r.Rung(peer.XDPDrop().Name()))
		g.ToLevee = compare(g, r.Rung("levee"))
	}
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

// Complete tells whether each rung that this machine has got a figure.
func (r *Report) Complete() bool {
	return !slices.ContainsFunc(r.Rungs, func(g *Rung) bool { return g.MedianPPS == nil && !g.absent })
}

// summarise draws the figure of one rung. floods is how many the mix has.
func (g *Rung) summarise(rounds, floods int) {
	g.rounds = map[int]mixed{}
	why := map[string]int{}
	byTraffic := map[string][]float64{}
	for _, windows := range g.attempts() {
		if bad := slices.IndexFunc(windows, func(w Window) bool { return len(w.Invalid) > 0 }); bad >= 0 {
			why[windows[bad].Invalid[0]]++
			continue
		}
		if len(windows) != floods {
			continue
		}
		g.rounds[windows[0].Round] = mix(windows)
		for _, w := range windows {
			byTraffic[w.Traffic] = append(byTraffic[w.Traffic], w.PPS)
			g.AtLeast = g.AtLeast || !w.Saturated
		}
	}
	if g.Missing != "" || len(g.rounds) < max(rounds, minRounds) {
		g.AtLeast = false
		g.Why = slices.Sorted(maps.Keys(why))
		return
	}
	var pps, ns []float64
	for _, m := range g.rounds {
		pps, ns = append(pps, m.pps), append(ns, m.ns)
	}
	f, n := summary(pps), summary(ns)
	g.MedianPPS, g.Interval = &f.MedianPPS, &f.Interval
	g.NsPerPacket, g.NsInterval = &n.MedianPPS, &n.Interval
	g.ByTraffic = map[string]Figure{}
	for name, pps := range byTraffic {
		g.ByTraffic[name] = summary(pps)
	}
}

// attempts groups the windows by the visit that they belong to.
func (g *Rung) attempts() [][]Window {
	var out [][]Window
	for i, w := range g.Windows {
		if i == 0 || w.Round != g.Windows[i-1].Round || w.Attempt != g.Windows[i-1].Attempt {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], w)
	}
	return out
}

// hasGood tells whether the rung has a window with a figure.
func (g *Rung) hasGood() bool {
	return slices.ContainsFunc(g.Windows, func(w Window) bool { return len(w.Invalid) == 0 })
}

// mix is the rate for as many packets of each flood: times add up, not rates.
func mix(windows []Window) mixed {
	var m mixed
	for _, w := range windows {
		m.pps += 1 / w.PPS
		m.ns += w.NsPerPacket
	}
	n := float64(len(windows))
	return mixed{n / m.pps, m.ns / n}
}

// compare is g over base, nil where one of them has no figure.
func compare(g, base *Rung) *Ratio {
	if base == nil || g.MedianPPS == nil || base.MedianPPS == nil {
		return nil
	}
	var ratios, busy []float64
	for round, m := range g.rounds {
		if other, ok := base.rounds[round]; ok {
			ratios = append(ratios, m.pps/other.pps)
			busy = append(busy, other.ns/m.ns)
		}
	}
	f, s := summary(ratios), summary(busy)
	r := &Ratio{Median: f.MedianPPS, Interval: f.Interval, Busy: s.MedianPPS, BusyInterval: s.Interval}
	switch {
	case g == base:
	case g.AtLeast && base.AtLeast:
		r.Bound = "unknown"
	case g.AtLeast:
		r.Bound = "at least"
	case base.AtLeast:
		r.Bound = "at most"
	}
	return r
}
