package sets

import (
	"fmt"
	"io"
	"strings"

	"levee/internal/bench"
	"levee/internal/bench/load"
	"levee/internal/bench/lookup"
	"levee/internal/bench/workload"
	"levee/internal/report"
)

// Document draws the report up for the writers of package report: look-ups, memory, packets a
// second and times to load, over the number of entries.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("sets", "Sets as they grow",
		"What an entry more costs: look-ups inside the kernel, above the same loop without one, "+
			"and packets a second of one core through a lab.")
	d.Set("quick", fmt.Sprint(r.Quick))
	r.Conditions.Set(d)
	for _, c := range r.Cases {
		c.draw(d)
	}
	load.Prune(d)
	return d
}

func (c *Case) draw(d *report.Document) {
	kind, what, at := report.FileName(c.Family+"-"+c.Entries), c.Family+" "+c.Entries,
		float64(c.Size)
	for _, s := range c.Structures {
		memory := load.Grown(d, "sets-bytes-"+kind, what+": memory", "entries",
			report.Axis{Label: "memory an entry", Unit: "bytes"}, report.Less,
			"What the kernel charges for the structure.")
		build := load.Grown(d, "sets-build-"+kind, what+": time to build and load a structure",
			"entries", report.Axis{Label: "time", Unit: "ns"}, report.Less, "Single values.")
		if s.Missing != "" {
			d.Refuse(fmt.Sprintf("%s, %d %s", s.Name, c.Size, what), s.Missing)
			memory.Add(s.Name, report.Gap(at, s.Missing))
			build.Add(s.Name, report.Gap(at, s.Missing))
			for _, k := range lookup.Traffics {
				lookupCharts(d, kind, what, k.Kind, k.Skew,
					func(c *report.Chart, _ bool) { c.Add(s.Name, report.Gap(at, s.Missing)) })
			}
			continue
		}
		memory.Add(s.Name, report.Value(at, s.PerEntry))
		build.Add(s.Name, report.Value(at, s.BuildNs+s.LoadNs))
		for _, l := range s.Lookups {
			lookupCharts(d, kind, what, l.Kind, l.Skew, func(c *report.Chart, chain bool) {
				rounds := l.StreamRounds
				if chain {
					rounds = l.ChainRounds
				}
				c.Add(s.Name, report.Measured(at, rounds))
			})
		}
	}
	load.Draw(d, "sets", kind, what, "entries", c.Size, c.Lab)
}

// lookupCharts calls add with the chart of streams and that of chains.
func lookupCharts(d *report.Document, kind, what string, k workload.Kind, skew workload.Skew,
	add func(c *report.Chart, chain bool)) {
	name := string(k)
	if skew != workload.Uniform {
		name += "-" + string(skew)
	}
	for _, way := range []struct {
		id, title, what string
		chain           bool
	}{
		{"lookup", "a look-up", "Independent look-ups, which the CPU overlaps.", false},
		{"chain", "a look-up that waits for the one before",
			"Each address depends on the answer before: nearer to one look-up a packet.", true},
	} {
		add(load.Grown(d, fmt.Sprintf("sets-%s-%s-%s", way.id, kind, name),
			fmt.Sprintf("%s: %s, %s", what, way.title, strings.ReplaceAll(name, "-", ", ")),
			"entries",
			report.Axis{Label: "above the loop", Unit: "ns"}, report.Less, way.what), way.chain)
	}
}

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	return r.Conditions.Write(w, &r.Head, func(t *bench.Text) {
		for _, c := range r.Cases {
			t.Printf("\n%d %s %s\n", c.Size, c.Family, c.Entries)
			if len(c.Structures) > 0 {
				c.print(t)
			}
			load.Print(t, c.Lab)
		}
	})
}

// print prints the look-ups.
func (c *Case) print(t *bench.Text) {
	t.Table(0, func(w io.Writer) {
		fmt.Fprintln(w, "  ns a look-up: stream/chain\thit\tmiss\tmix\tmix, "+
			"Zipf\tbytes/entry\tbuild\tload\tone change")
		for _, s := range c.Structures {
			if s.Missing != "" {
				continue
			}
			fmt.Fprintf(w, "  %s%s\t%.1f\t%s\t%s\t%s\n", s.Name, s.Cells(), s.PerEntry,
				bench.Nanos(s.BuildNs), bench.Nanos(s.LoadNs), bench.Nanos(s.UpdateNs))
		}
	})
	for _, s := range c.Structures {
		if s.Missing != "" {
			t.Printf("  %s: no figure: %s\n", s.Name, s.Missing)
			continue
		}
		levee := lookup.Structures[0].Name
		for _, kind := range []workload.Kind{workload.Hits, workload.Mix} {
			if l := s.Lookup(kind, workload.Uniform); l != nil && l.TimesLevee != 0 &&
				s.Name != levee {
				t.Printf("  %s takes %.1f (%.1f-%.1f) times as long as %s for a %s of a stream\n",
					s.Name, l.TimesLevee, l.TimesLeveeInterval[0], l.TimesLeveeInterval[1], levee,
					kind)
			}
		}
	}
}
