package latency

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/lab/echo"
	"levee/internal/report"
)

// percents are those that are reported, as far as there are probes enough.
var percents = []float64{50, 75, 90, 95, 99, 99.9, 99.99}

// behind is the number of probes slower than a percentile that are needed to give it: of fewer
// the next run has others.
const behind = 10

// percentile of sorted round trips, in microseconds; probes that did not return took forever. The
// reason is empty if there is a figure.
func percentile(sorted []int64, lost int, percent float64) (us float64, why string) {
	n := len(sorted) + lost
	rank := int(math.Ceil(percent / 100 * float64(n)))
	switch {
	case n == 0:
		return 0, "no probes"
	case n-rank < behind && percent > 50:
		return 0, fmt.Sprintf("%d probes are too few", n)
	case rank > len(sorted):
		return 0, fmt.Sprintf("%d of %d probes did not return", lost, n)
	}
	return float64(sorted[max(rank, 1)-1]) / 1e3, ""
}

// valid returns the rounds that count.
func (c *Cell) valid() (rounds []Round) {
	for _, r := range c.Rounds {
		if len(r.Invalid) == 0 {
			rounds = append(rounds, r)
		}
	}
	return rounds
}

// sorted gives the round trips of rounds, ascending, and how many probes did not return.
func sorted(rounds ...Round) (took []int64, missing int) {
	for _, r := range rounds {
		for _, t := range r.Took {
			if t == echo.Lost {
				missing++
			} else {
				took = append(took, t)
			}
		}
	}
	slices.Sort(took)
	return took, missing
}

// point returns a percentile over all rounds, with the interval of its median over the rounds where
// each of them has it.
func (c *Cell) point(x, percent float64, label string) report.Point {
	rounds := c.valid()
	if len(rounds) < bench.MinRounds {
		return report.Gap(x, c.why()).Of(label)
	}
	took, missing := sorted(rounds...)
	us, why := percentile(took, missing, percent)
	if why != "" {
		return report.Gap(x, why).Of(label)
	}
	p := report.Value(x, us*1e3).Of(label)
	var each []float64
	for _, r := range rounds {
		took, missing := sorted(r)
		if us, why := percentile(took, missing, percent); why == "" {
			each = append(each, us*1e3)
		}
	}
	if len(each) == len(rounds) {
		_, low, high := report.Summary(each)
		p.Rounds = each
		return p.Between(low, high)
	}
	return p
}

// why there is no figure.
func (c *Cell) why() string {
	for _, r := range c.Rounds {
		if len(r.Invalid) > 0 {
			return r.Invalid[0]
		}
	}
	return fmt.Sprintf("%d rounds of %d", len(c.Rounds), bench.MinRounds)
}

// answered returns the share of probes that returned.
func (c *Cell) answered() (share float64, probes int) {
	took, missing := sorted(c.valid()...)
	probes = len(took) + missing
	return float64(len(took)) / float64(max(probes, 1)), probes
}

// refused returns the median share of the flood that found the receiver's ring full.
func (c *Cell) refused() float64 {
	var shares []float64
	for _, r := range c.valid() {
		shares = append(shares, r.Refused)
	}
	slices.Sort(shares)
	if len(shares) == 0 {
		return 0
	}
	return shares[len(shares)/2]
}

var caveats = []string{
	"an open loop: each probe counts from the time when it should have been sent, also if " +
		"something held its sender up; probes that did not return took forever",
}

// circumstances returns what figures of a lab mean.
func circumstances(l *flood.Lab) []string {
	if l.Wire != nil {
		return slices.Concat(caveats, []string{"probes, generator and what receives their " +
			"answers share one core of the peer, the receiver and the echo service one here; the " +
			"peer times the probes by its own clock"}, l.Circumstances())
	}
	return slices.Concat(caveats, []string{
		"probes, generator and what receives their answers share one core, the receiver and the " +
			"echo service the other; what the flood of 0 takes is the lab's own",
		"veth has no DMA, no interrupt and no wire: differences carry over to other machines, " +
			"absolute times do not",
	})
}

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	t := r.Head.Text("", "")
	t.Printf("round trips of %g probes a second beside a flood that is dropped, %d rounds of %v; "+
		"microseconds\n", r.Probes, r.Rounds, r.Window)
	if r.Rules > 1 {
		t.Printf("%d rules at each place but the application\n", r.Rules)
	}
	for i, load := range r.Loads {
		t.Printf("\nflood of %s packets/s\n", flood.Rate(load))
		t.Table(tabwriter.AlignRight, func(w io.Writer) {
			fmt.Fprint(w, "\t")
			for _, p := range percents {
				fmt.Fprintf(w, "p%g\t", p)
			}
			fmt.Fprintln(w, "answered\trefused\t")
			for _, g := range r.Rungs {
				fmt.Fprintf(w, "%s\t", g.Name)
				g.Cells[i].row(w)
			}
		})
	}
	t.Printf("\n")
	t.Refusals(r.refusals())
	return t.End(w, &r.Head)
}

// row is the cells of a line behind the rung's name.
func (c *Cell) row(w io.Writer) {
	for _, percent := range percents {
		if p := c.point(0, percent, ""); p.Y != nil {
			fmt.Fprintf(w, "%.0f\t", *p.Y/1e3)
		} else {
			fmt.Fprint(w, "-\t")
		}
	}
	if len(c.valid()) == 0 {
		fmt.Fprintln(w, "-\t-\t")
		return
	}
	share, _ := c.answered()
	fmt.Fprintf(w, "%.2f %%\t%.1f %%\t\n", 100*share, 100*c.refused())
}

// refusals lists what has no figure at all.
func (r *Report) refusals() (out []report.Refusal) {
	for _, g := range r.Rungs {
		if g.Missing != "" {
			out = append(out, report.Refusal{What: g.Name, Why: g.Missing})
			continue
		}
		for _, c := range g.Cells {
			if len(c.valid()) < bench.MinRounds {
				out = append(out, report.Refusal{What: fmt.Sprintf("%s, flood of %s packets/s",
					g.Name, flood.Rate(c.Load)), Why: c.why()})
			}
		}
	}
	return out
}

// Complete tells whether each rung has a figure under each load.
func (r *Report) Complete() bool { return r.Incomplete == "" && len(r.refusals()) == 0 }

// Document returns the report to be drawn: percentiles by load, percentiles against the load, and
// histograms.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("latency", "Round trips beside a flood",
		fmt.Sprintf("Round trips of %g UDP probes a second to an echo service, while a flood of "+
			"a fixed rate is dropped in front of it at different places. "+
			"%d rounds of %v; percentiles are over all probes, intervals over the rounds.",
			r.Probes, r.Rounds, r.Window))
	d.Refusals = r.refusals()
	d.Set("window", r.Window.String())
	d.Set("probes a second", fmt.Sprint(r.Probes))
	d.Set("rules", fmt.Sprint(max(r.Rules, 1)))
	for _, percent := range []float64{50, 99, 99.9} {
		c := d.Chart(report.Chart{
			ID:    report.FileName(fmt.Sprintf("p%g", percent)),
			Title: fmt.Sprintf("p%g against the rate of the flood", percent), Better: report.Less,
			X: report.Axis{Label: "flood", Unit: "packets/s"},
			Y: report.Axis{Label: "round trip", Unit: "ns", Log: true},
		})
		for _, g := range r.Rungs {
			for _, cell := range g.Cells {
				c.Add(g.Name, cell.point(cell.Load, percent, ""))
			}
		}
	}
	for i, load := range r.Loads {
		r.byLoad(d, i, load)
	}
	return d
}

// byLoad adds the charts and the table of one load.
func (r *Report) byLoad(d *report.Document, i int, load float64) {
	id := "flood-" + report.FileName(flood.Rate(load))
	percentiles := d.Chart(report.Chart{
		ID: id, Title: fmt.Sprintf("Percentiles, flood of %s packets/s", flood.Rate(load)),
		Better: report.Less,
		What:   "Along the axis: one probe in how many took longer.",
		X:      report.Axis{Label: "one in", Log: true},
		Y:      report.Axis{Label: "round trip", Unit: "ns", Log: true},
	})
	histogram := d.Chart(report.Chart{
		ID: id + "-histogram", Title: fmt.Sprintf("Histogram, flood of %s packets/s",
			flood.Rate(load)), Kind: report.Histogram,
		X: report.Axis{Label: "round trip", Unit: "ns", Log: true},
		Y: report.Axis{Label: "probes", Log: true},
	})
	t := d.Table(id+"-table", fmt.Sprintf("Flood of %s packets/s", flood.Rate(load)),
		report.Column{Name: "place"}, report.Column{Name: "p50", Unit: "us"},
		report.Column{Name: "p99", Unit: "us"}, report.Column{Name: "p99.9", Unit: "us"},
		report.Column{Name: "p99.99", Unit: "us"}, report.Column{Name: "answered", Unit: "%"},
		report.Column{Name: "refused by the ring", Unit: "%"})
	for _, g := range r.Rungs {
		c := g.Cells[i]
		for _, percent := range percents {
			percentiles.Add(g.Name, c.point(100/(100-percent), percent,
				fmt.Sprintf("p%g", percent)))
		}
		c.columns(histogram, g.Name)
		share, probes := c.answered()
		row := []report.Cell{report.Text(g.Name)}
		for _, percent := range []float64{50, 99, 99.9, 99.99} {
			p := c.point(0, percent, "")
			if p.Y == nil {
				row = append(row, report.Text("-"))
			} else {
				row = append(row, report.Quantity(*p.Y/1e3, "%.1f", *p.Y/1e3))
			}
		}
		if probes == 0 {
			t.Row(append(row, report.Text("-"), report.Text("-"))...)
			continue
		}
		t.Row(append(row, report.Number(100*share), report.Number(100*c.refused()))...)
	}
}

// columns draws a cell's round trips as a histogram with four columns an octave.
func (c *Cell) columns(chart *report.Chart, series string) {
	const longest = int64(time.Minute)
	h := hdrhistogram.New(1000, longest, 1)
	took, _ := sorted(c.valid()...)
	for _, t := range took {
		_ = h.RecordValue(min(max(t, 1000), longest)) // within its bounds
	}
	for _, b := range h.Distribution() {
		if b.Count > 0 {
			chart.Add(series, report.Bin(float64(b.From), float64(b.To+1), float64(b.Count)))
		}
	}
}
