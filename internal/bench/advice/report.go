package advice

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/report"
)

// Report is the outcome. Names of fields stay once shipped: `levee doctor --measure` reads them.
type Report struct {
	bench.Head
	WindowMS int64     `json:"window_ms"`
	Rules    int       `json:"netfilter_rules"`
	Advices  []*Advice `json:"advices"`
}

// Advice holds the figures of one advice, in ns a packet, null where there are none.
type Advice struct {
	Name    string        `json:"name"` // of the finding of `levee doctor`
	What    string        `json:"what"`
	With    *bench.Figure `json:"with_ns"` // what costs
	Without *bench.Figure `json:"without_ns"`
	// Gained is the median of the differences of rounds; below 0 it is lost.
	Gained *bench.Figure `json:"gained_ns"`
	Why    []string      `json:"why,omitempty"` // there are no figures

	with, without      *flood.Rung
	before, after, net []float64
}

var caveats = []string{
	bench.VethCaveat,
	"ns are run time of the receiving thread and of the application for each packet, both on one " +
		"core, under as many packets as that core takes",
	"gained is the median of the differences of rounds, with what costs less without it; where " +
		"its interval has 0 in it, nothing is shown",
}

// Lacking returns the advices without a figure.
func (r *Report) Lacking() (names []string) {
	for _, a := range r.Advices {
		if a.Gained == nil {
			names = append(names, a.Name)
		}
	}
	return names
}

// nanos returns the ns a packet of the rounds of a rung that count, by round.
func nanos(g *flood.Rung) map[int]float64 {
	out := map[int]float64{}
	for i := range g.Windows {
		if w := &g.Windows[i]; len(w.Invalid) == 0 {
			out[w.Round] = w.NsPerPacket
		}
	}
	return out
}

// summarise compares the rounds that both sides have.
func (a *Advice) summarise() {
	with, without := nanos(a.with), nanos(a.without)
	for round := range with {
		if _, ok := without[round]; ok {
			a.before = append(a.before, with[round])
			a.after = append(a.after, without[round])
			a.net = append(a.net, with[round]-without[round])
		}
	}
	if len(a.net) >= bench.MinRounds {
		a.With, a.Without = bench.FigureOf(a.before), bench.FigureOf(a.after)
		a.Gained = bench.FigureOf(a.net)
		return
	}
	for _, g := range []*flood.Rung{a.with, a.without} {
		if g.Missing != "" {
			a.Why = append(a.Why, g.Name+": "+g.Missing)
			continue
		}
		for i := range g.Windows {
			for _, why := range g.Windows[i].Invalid {
				if why = g.Name + ": " + why; !slices.Contains(a.Why, why) {
					a.Why = append(a.Why, why)
				}
			}
		}
	}
	if len(a.Why) == 0 {
		a.Why = []string{fmt.Sprintf("%d rounds: %d are the fewest that give an interval",
			len(a.net), bench.MinRounds)}
	}
}

// Text prints the report for people.
func (r *Report) Text(w io.Writer) error {
	t := r.Head.Text(fmt.Sprintf("; %d rounds of %d ms, medians with 95 %% intervals", r.Rounds,
		r.WindowMS), "; these are the figures until then")
	t.Printf("\n")
	t.Table(tabwriter.AlignRight, func(w io.Writer) {
		fmt.Fprintln(w, "ADVICE\tWITH\tWITHOUT\tGAINED A PACKET\t95 % INTERVAL\t")
		for _, a := range r.Advices {
			if a.Gained == nil {
				fmt.Fprintf(w, "%s\tno figure\t\t\t\t\n", a.Name)
				continue
			}
			fmt.Fprintf(w, "%s\t%.1f ns\t%.1f ns\t%.1f ns\t%.1f to %.1f\t\n", a.Name,
				a.With.Median, a.Without.Median, a.Gained.Median, a.Gained.Interval[0],
				a.Gained.Interval[1])
		}
	})
	t.Printf("\n")
	for _, a := range r.Advices {
		what := a.What
		if a.Name == "netfilter" {
			what = fmt.Sprintf("%s (%d of nftables, which each compare an address)", what, r.Rules)
		}
		t.Printf("%s: %s\n", a.Name, what)
		for _, why := range a.Why {
			t.Printf("  no figure: %s\n", why)
		}
	}
	t.Printf("\n")
	return t.End(w, &r.Head)
}

// Document returns the report for files.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("advice", "What doctor advises",
		"What a packet takes with what costs and without it, where that can be tried in a lab.")
	d.Set("window", fmt.Sprintf("%d ms", r.WindowMS))
	d.Set("rules of netfilter", fmt.Sprint(r.Rules))
	ns := report.Axis{Label: "for a packet", Unit: "ns"}
	sides := d.Chart(report.Chart{ID: "advice-sides", Title: "A packet with and without",
		Kind: report.Bar, Better: report.Less, Y: ns})
	gained := d.Chart(report.Chart{ID: "advice-gained", Title: "Gained a packet",
		Kind: report.Bar, Better: report.More, Y: ns})
	for _, a := range r.Advices {
		if a.Gained == nil {
			d.Refuse(a.Name, strings.Join(a.Why, "; "))
			continue
		}
		sides.Add("with", report.Measured(0, a.before).Of(a.Name))
		sides.Add("without", report.Measured(0, a.after).Of(a.Name))
		gained.Add("gained", report.Measured(0, a.net).Of(a.Name))
	}
	return d
}

// Raw returns the report with its own fields.
func (r *Report) Raw() any { return r }
