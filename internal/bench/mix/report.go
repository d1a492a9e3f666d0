package mix

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/report"
)

// figure returns the median over the rounds of a number of each valid window.
func (p *Point) figure(x float64, of func(*flood.Window) float64) report.Point {
	valid := p.valid()
	if len(valid) < bench.MinRounds {
		return report.Gap(x, p.why())
	}
	var values []float64
	limited := false
	for _, w := range valid {
		values, limited = append(values, of(w)), limited || !w.Saturated
	}
	return report.Measured(x, values).Bound(limited)
}

func processed(w *flood.Window) float64 { return float64(w.Packets) / w.Seconds }
func reached(w *flood.Window) float64   { return float64(w.Reached) / w.Seconds }

// offered returns what was offered within the window: the ring refuses the same share all the time.
func offered(w *flood.Window) float64 {
	return processed(w) / max(1-w.RefusedShare(), 1e-9)
}

var caveats = []string{
	"what is not dropped goes to an application that takes it by recvmmsg and discards it; it " +
		"runs on the receiving core, before the receiver",
	"at least: the generator was the limit, in one window or more",
}

func (r *Report) refusals() (out []report.Refusal) {
	for _, g := range r.Rungs {
		if g.Missing != "" {
			out = append(out, report.Refusal{What: g.Name, Why: g.Missing})
			continue
		}
		for _, p := range slices.Concat(g.Shares, g.Rates) {
			if len(p.valid()) >= bench.MinRounds {
				continue
			}
			what := fmt.Sprintf("%s, %g %% dropped", g.Name, p.At)
			if slices.Contains(g.Rates, p) {
				what = fmt.Sprintf("%s, %s packets/s offered", g.Name, flood.Rate(p.At))
			}
			out = append(out, report.Refusal{What: what, Why: p.why()})
		}
	}
	return out
}

// Complete tells whether each rung has all its figures.
func (r *Report) Complete() bool { return r.Incomplete == "" && len(r.refusals()) == 0 }

// millions returns a figure for a person.
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
func (r *Report) Text(w io.Writer) error {
	t := r.Head.Text("", "")
	t.Printf("million packets a second, %d rounds of %v, 95 %% interval\n", r.Rounds, r.Window)
	print := func(head string, points func(*Rung) []*Point, label func(float64) string,
		of func(*flood.Window) float64) {
		t.Printf("\n%s\n", head)
		t.Table(tabwriter.AlignRight, func(w io.Writer) {
			for i, g := range r.Rungs {
				if i == 0 {
					fmt.Fprint(w, "\t")
					for _, p := range points(g) {
						fmt.Fprintf(w, "%s\t", label(p.At))
					}
					fmt.Fprintln(w)
				}
				fmt.Fprintf(w, "%s\t", g.Name)
				for _, p := range points(g) {
					fmt.Fprintf(w, "%s\t", millions(p.figure(0, of)))
				}
				fmt.Fprintln(w)
			}
		})
	}
	shares := func(g *Rung) []*Point { return g.Shares }
	percent := func(v float64) string { return fmt.Sprintf("%g %%", v) }
	print("taken from the ring, by the share that is dropped", shares, percent, processed)
	print("of these, reached the application", shares, percent, reached)
	print("taken of what was offered, all of it dropped", func(g *Rung) []*Point { return g.Rates },
		flood.Rate, processed)
	t.Printf("\n")
	t.Refusals(r.refusals())
	return t.End(w, &r.Head)
}

// Document returns the report to be drawn.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("mix", "Packets a second by the share that is dropped",
		fmt.Sprintf("A flood of which a share is dropped by one rule at different places, and "+
			"the rest reaches an application; "+
			"and a flood of a fixed rate, all of it dropped. %d rounds of %v.", r.Rounds, r.Window))
	d.Refusals = r.refusals()
	d.Set("window", r.Window.String())
	dropped := report.Axis{Label: "dropped", Unit: "%"}
	pps := report.Axis{Label: "packets", Unit: "packets/s"}
	taken := d.Chart(report.Chart{ID: "mix", Title: "Packets taken, by the share that is dropped",
		X: dropped, Y: pps, Better: report.More})
	app := d.Chart(report.Chart{ID: "application", Title: "Packets that reach the application",
		X: dropped, Y: pps, Better: report.More})
	load := d.Chart(report.Chart{
		ID: "offered", Title: "Packets taken, by how many are offered", Better: report.More,
		X: report.Axis{Label: "offered", Unit: "packets/s"}, Y: pps,
		What: "All of the flood is dropped. A place that keeps up lies on the diagonal.",
	})
	table := d.Table("figures", "Packets a second", report.Column{Name: "place"},
		report.Column{Name: "traffic"},
		report.Column{Name: "taken", Unit: "Mpps"},
		report.Column{Name: "reached the application", Unit: "Mpps"},
		report.Column{Name: "offered", Unit: "Mpps"})
	for _, g := range r.Rungs {
		for _, p := range g.Shares {
			taken.Add(g.Name, p.figure(p.At, processed))
			app.Add(g.Name, p.figure(p.At, reached))
			p.row(table, g.Name, fmt.Sprintf("%g %% dropped", p.At))
		}
		for _, p := range g.Rates {
			load.Add(g.Name, p.figure(p.At, processed))
			p.row(table, g.Name, flood.Rate(p.At)+" packets/s offered")
		}
	}
	return d
}

func (p *Point) row(t *report.Table, rung, traffic string) {
	cells := []report.Cell{report.Text(rung), report.Text(traffic)}
	for _, of := range []func(*flood.Window) float64{processed, reached, offered} {
		f := p.figure(0, of)
		if f.Y == nil {
			cells = append(cells, report.Text("-"))
			continue
		}
		cells = append(cells, report.Quantity(*f.Y, "%s", millions(f)))
	}
	t.Row(cells...)
}
