package bench

import (
	"fmt"
	"io"
	"text/tabwriter"

	"levee/internal/report"
)

// figure is the median over the rounds of a number of each valid window.
func (p *MixPoint) figure(x float64, of func(*Window) float64) report.Point {
	valid := p.valid()
	if len(valid) < minRounds {
		return report.Gap(x, p.why())
	}
	var values []float64
	limited := false
	for i := range valid {
		values = append(values, of(&valid[i]))
		limited = limited || !valid[i].Saturated
	}
	return report.Measured(x, values).Bound(limited)
}

// why there is no figure.
func (p *MixPoint) why() string {
	for i := range p.Windows {
		if len(p.Windows[i].Invalid) > 0 {
			return p.Windows[i].Invalid[0]
		}
	}
	return fmt.Sprintf("%d rounds of %d", len(p.valid()), minRounds)
}

func processed(w *Window) float64 { return float64(w.Packets) / w.Seconds }
func reached(w *Window) float64   { return float64(w.Reached) / w.Seconds }

// offered is what was offered within the window: the ring refuses the same share all the time.
func offered(w *Window) float64 {
	return processed(w) / max(1-ratio(w.Refused, w.Offered), 1e-9)
}

func (r *MixReport) caveats() []string {
	out := []string{
		"what is not dropped goes to an application that takes it by recvmmsg and discards it; it runs on the receiving core, before the receiver",
		"at least: the generator was the limit, in one window or more",
		"veth has no DMA and no descriptors: ratios carry over to other machines, absolute figures do not",
	}
	if r.Quick {
		out = append(out, "--quick: short windows, for a look; quote a run without it")
	}
	return out
}

func (r *MixReport) refusals() (out []report.Refusal) {
	for _, g := range r.Rungs {
		if g.Missing != "" {
			out = append(out, report.Refusal{What: g.Name, Why: g.Missing})
			continue
		}
		for _, p := range g.Shares {
			if len(p.valid()) < minRounds {
				out = append(out, report.Refusal{What: fmt.Sprintf("%s, %g %% dropped", g.Name, p.At), Why: p.why()})
			}
		}
		for _, p := range g.Rates {
			if len(p.valid()) < minRounds {
				out = append(out, report.Refusal{What: fmt.Sprintf("%s, %s packets/s offered", g.Name, rate(p.At)), Why: p.why()})
			}
		}
	}
	return out
}

// Complete tells whether each rung has all its figures.
func (r *MixReport) Complete() bool { return !r.Incomplete && len(r.refusals()) == 0 }

// millions is a figure for a person.
func millions(p report.Point) string {
	if p.Y == nil {
		return "-"
	}
	bound := ""
	if p.AtLeast {
		bound = ">="
	}
	if p.Low == nil {
		return fmt.Sprintf("%s%.2f", bound, *p.Y/1e6)
	}
	return fmt.Sprintf("%s%.2f (%.2f-%.2f)", bound, *p.Y/1e6, *p.Low/1e6, *p.High/1e6)
}

// Text prints the report for a person.
func (r *MixReport) Text(w io.Writer) error {
	fmt.Fprintf(w, "%s, %s MHz, %d cores; Linux %s\n", r.Machine.CPU, r.Machine.MHz, r.Machine.Cores, r.Machine.Kernel)
	if r.Incomplete {
		fmt.Fprintln(w, "INCOMPLETE: interrupted")
	}
	fmt.Fprintf(w, "million packets a second, %d rounds of %v, 95 %% interval\n", r.Rounds, r.Window)
	print := func(head string, points func(*MixRung) []*MixPoint, label func(float64) string, of func(*Window) float64) error {
		fmt.Fprintf(w, "\n%s\n", head)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for i, g := range r.Rungs {
			if i == 0 {
				fmt.Fprint(t, "\t")
				for _, p := range points(g) {
					fmt.Fprintf(t, "%s\t", label(p.At))
				}
				fmt.Fprintln(t)
			}
			fmt.Fprintf(t, "%s\t", g.Name)
			for _, p := range points(g) {
				fmt.Fprintf(t, "%s\t", millions(p.figure(0, of)))
			}
			fmt.Fprintln(t)
		}
		return t.Flush()
	}
	shares := func(g *MixRung) []*MixPoint { return g.Shares }
	percent := func(v float64) string { return fmt.Sprintf("%g %%", v) }
	for _, err := range []error{
		print("taken from the ring, by the share that is dropped", shares, percent, processed),
		print("of these, reached the application", shares, percent, reached),
		print("taken of what was offered, all of it dropped", func(g *MixRung) []*MixPoint { return g.Rates }, rate, processed),
	} {
		if err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, f := range r.refusals() {
		fmt.Fprintf(w, "%s: %s\n", f.What, f.Why)
	}
	for _, c := range r.caveats() {
		fmt.Fprintln(w, c)
	}
	_, err := fmt.Fprintf(w, "repeat: %s\n", r.Command)
	return err
}

// Document is the report to be drawn.
func (r *MixReport) Document() *report.Document {
	d := &report.Document{
		Bench: "mix", Title: "Packets a second by the share that is dropped", Command: r.Command, Started: r.Started, Machine: r.Machine,
		What: fmt.Sprintf("A flood of which a share is dropped by one rule at different places, and the rest reaches an application; "+
			"and a flood of a fixed rate, all of it dropped. %d rounds of %v.", r.Rounds, r.Window),
		Notes: r.caveats(), Refusals: r.refusals(),
	}
	if r.Incomplete {
		d.Incomplete = "interrupted"
	}
	d.Set("rounds", fmt.Sprint(r.Rounds))
	d.Set("window", r.Window.String())
	d.Set("seed", fmt.Sprint(r.Seed))
	dropped := report.Axis{Label: "dropped", Unit: "%"}
	pps := report.Axis{Label: "packets", Unit: "packets/s"}
	taken := d.Chart(report.Chart{ID: "mix", Title: "Packets taken, by the share that is dropped", X: dropped, Y: pps, Better: report.More})
	app := d.Chart(report.Chart{ID: "application", Title: "Packets that reach the application", X: dropped, Y: pps, Better: report.More})
	load := d.Chart(report.Chart{
		ID: "offered", Title: "Packets taken, by how many are offered", Better: report.More,
		X: report.Axis{Label: "offered", Unit: "packets/s"}, Y: pps, What: "All of the flood is dropped. A place that keeps up lies on the diagonal.",
	})
	table := d.Table("figures", "Packets a second", report.Column{Name: "place"}, report.Column{Name: "traffic"},
		report.Column{Name: "taken", Unit: "Mpps"}, report.Column{Name: "reached the application", Unit: "Mpps"}, report.Column{Name: "offered", Unit: "Mpps"})
	for _, g := range r.Rungs {
		for _, p := range g.Shares {
			taken.Add(g.Name, p.figure(p.At, processed))
			app.Add(g.Name, p.figure(p.At, reached))
			p.row(table, g.Name, fmt.Sprintf("%g %% dropped", p.At))
		}
		for _, p := range g.Rates {
			load.Add(g.Name, p.figure(p.At, processed))
			p.row(table, g.Name, rate(p.At)+" packets/s offered")
		}
	}
	return d
}

func (p *MixPoint) row(t *report.Table, rung, traffic string) {
	cells := []report.Cell{report.Text(rung), report.Text(traffic)}
	for _, of := range []func(*Window) float64{processed, reached, offered} {
		f := p.figure(0, of)
		if f.Y == nil {
			cells = append(cells, report.Text("-"))
			continue
		}
		cells = append(cells, report.Quantity(*f.Y, "%s", millions(f)))
	}
	t.Row(cells...)
}
