package rules

import (
	"fmt"
	"io"

	"levee/internal/bench"
	"levee/internal/bench/load"
	"levee/internal/bench/workload"
	"levee/internal/report"
)

// Document draws the report up for the writers of package report: ns a packet, packets a second and
// times to load over the number of rules.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("rules", "Policies as they grow",
		fmt.Sprintf("What a rule more costs: levee's compiled policy on %d different packets, "+
			"above an empty program, and packets a second of one core through a lab.", r.Frames))
	d.Set("quick", fmt.Sprint(r.Quick))
	r.Conditions.Set(d)
	for _, c := range r.Cases {
		c.draw(d)
	}
	load.Prune(d)
	return d
}

func (c *Case) draw(d *report.Document) {
	at := float64(c.Size)
	uniform := load.Grown(d, "rules-ns", "levee: a packet, above an empty program", "rules",
		report.Axis{Label: "above an empty program", Unit: "ns"}, report.Less,
		"Packets made from all rules alike.")
	zipf := load.Grown(d, "rules-ns-zipf", "levee: a packet, frequent rules", "rules",
		report.Axis{Label: "above an empty program", Unit: "ns"}, report.Less,
		"Packets made from rules by Zipf's law.")
	loading := load.Grown(d, "rules-prepare", "levee: from text to the kernel", "rules",
		report.Axis{Label: "resolve, compile and load", Unit: "ns"}, report.Less, "Single values.")
	memory := load.Grown(d, "rules-bytes", "levee: memory", "rules",
		report.Axis{Label: "program and maps", Unit: "bytes"}, report.Less, "")
	if p := c.Levee; p != nil {
		if p.Missing != "" {
			d.Refuse(fmt.Sprintf("levee, %d %s rules", c.Size, c.Shape), p.Missing)
			for _, each := range []*report.Chart{uniform, zipf, loading, memory} {
				each.Add(c.Shape, report.Gap(at, p.Missing))
			}
		} else {
			uniform.Add(c.Shape, rounds(p, workload.Uniform, at, p.Uniform))
			zipf.Add(c.Shape, rounds(p, workload.Zipf, at, p.Zipf))
			loading.Add(c.Shape, report.Value(at, float64(p.ResolveNs+p.CompileNs+p.LoadNs)))
			memory.Add(c.Shape, report.Value(at, float64(p.Bytes)))
		}
	}
	load.Draw(d, "rules", report.FileName(c.Shape), c.Shape+" rules", "rules", c.Size, c.Lab)
}

// rounds returns a point of the policy's own measurement, with its raw rounds where they are.
func rounds(p *Policy, skew workload.Skew, at float64, f *bench.Figure) report.Point {
	if raw, ok := p.Raw[string(skew)].([]float64); ok {
		return report.Measured(at, raw)
	}
	if f == nil {
		return report.Gap(at, "not measured")
	}
	return report.Value(at, f.Median).Between(f.Interval[0], f.Interval[1])
}

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	return r.Conditions.Write(w, &r.Head, func(t *bench.Text) {
		t.Table(0, func(w io.Writer) {
			fmt.Fprintf(w, "\nlevee, %d different packets\tns a packet\t95 %% interval\tchain, "+
				"ns a load\tZipf\tchain\tresolve\tcompile\tload\tmemory\n", r.Frames)
			for _, c := range r.Cases {
				if p := c.Levee; p != nil && p.Missing == "" {
					fmt.Fprintf(w, "%d %s\t%.1f\t%.1f-%.1f\t%s\t%.1f\t%s\t%s\t%s\t%s\t%s\n", c.Size,
						c.Shape, p.Uniform.Median, p.Uniform.Interval[0], p.Uniform.Interval[1],
						p.Conditions.Cell(),
						p.Zipf.Median, p.ZipfConditions.Cell(), bench.Nanos(float64(p.ResolveNs)),
						bench.Nanos(float64(p.CompileNs)), bench.Nanos(float64(p.LoadNs)),
						bench.Size(int64(p.Bytes)))
				}
			}
		})
		for _, c := range r.Cases {
			if c.Levee != nil && c.Levee.Missing != "" {
				t.Printf("%d %s: no figure: %s\n", c.Size, c.Shape, c.Levee.Missing)
			}
			if len(c.Lab) > 0 {
				t.Printf("\n%d %s rules\n", c.Size, c.Shape)
				load.Print(t, c.Lab)
			}
		}
	})
}
