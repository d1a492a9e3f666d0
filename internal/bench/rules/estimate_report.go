package rules

import (
	"fmt"
	"io"
	"slices"

	"levee/internal/bench"
	"levee/internal/report"
)

// label names a case.
func (e *Estimate) label() string {
	if e.Seed != 0 {
		return fmt.Sprintf("%d %s, seed %d", e.Rules, e.Name, e.Seed)
	}
	return e.Name
}

// order says how the packets come.
func (e *Estimate) order() string {
	if e.Alike {
		return "alike"
	}
	return "in no order"
}

// group is the generated sets of a shape and size.
type group struct {
	name   string
	ns     []float64
	ratios []float64
}

// groups returns the generated sets, by shape and size.
func (r *EstimateReport) groups() (out []*group) {
	of := map[string]*group{}
	for _, e := range r.Cases {
		if e.Seed == 0 || e.Missing != "" {
			continue
		}
		name := fmt.Sprintf("%d %s", e.Rules, e.Name)
		g := of[name]
		if g == nil {
			g = &group{name: name}
			of[name], out = g, append(out, g)
		}
		g.ns, g.ratios = append(g.ns, e.Measured.Median), append(g.ratios, e.Ratio)
	}
	return out
}

// Document draws the report up for the writers of package report.
func (r *EstimateReport) Document() *report.Document {
	d := r.Head.Document("plan", "What plans estimate, and what is measured",
		"ns a packet by the planner's cost model, and measured on the same packets.")
	d.Set("quick", fmt.Sprint(r.Quick))
	r.Conditions.Set(d)
	t := d.Table("plan-estimates", "Estimated and measured", report.Column{Name: "set or policy"},
		report.Column{Name: "rules"}, report.Column{Name: "packets"},
		report.Column{Name: "estimated", Unit: "ns"}, report.Column{Name: "measured", Unit: "ns"},
		report.Column{Name: "estimated over measured"})
	for _, e := range r.Cases {
		if e.Missing != "" {
			d.Refuse(e.label(), e.Missing)
			continue
		}
		t.Row(report.Text(e.label()), report.Number(float64(e.Rules)), report.Text(e.order()),
			report.Number(e.Estimated), report.Number(e.Measured.Median), report.Number(e.Ratio))
	}
	return d
}

// Text prints the report for a person.
func (r *EstimateReport) Text(w io.Writer) error {
	return r.Conditions.Write(w, &r.Head, func(t *bench.Text) {
		t.Table(0, func(w io.Writer) {
			fmt.Fprintf(w, "\nset or policy\trules\tpackets\testimated, ns\tmeasured\t95 %% "+
				"interval\tratio\tprinted\tchain, ns a load\toperation\n")
			for _, e := range r.Cases {
				if e.Missing != "" {
					continue
				}
				fmt.Fprintf(w, "%s\t%d\t%s\t%.1f\t%.1f\t%.1f-%.1f\t%.2f\t%.1f\t%s\t%.3f\n",
					e.label(), e.Rules, e.order(), e.Estimated, e.Measured.Median,
					e.Measured.Interval[0], e.Measured.Interval[1], e.Ratio, e.Printed,
					e.Conditions.Cell(), e.Conditions.Step)
			}
		})
		if groups := r.groups(); len(groups) > 0 {
			t.Table(0, func(w io.Writer) {
				fmt.Fprintf(w, "\ngenerated\tsets\tmeasured, ns: median\tleast\tmost\tratios\n")
				for _, g := range groups {
					m, _, _ := report.Summary(g.ns)
					fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.2f-%.2f\n", g.name, len(g.ns), m,
						slices.Min(g.ns), slices.Max(g.ns), slices.Min(g.ratios),
						slices.Max(g.ratios))
				}
			})
		}
		for _, e := range r.Cases {
			if e.Missing != "" {
				t.Printf("%s: no figure: %s\n", e.label(), e.Missing)
			}
		}
	})
}

// Raw returns what the report is as JSON by itself; the document goes beside it.
func (r *EstimateReport) Raw() any { return r }
