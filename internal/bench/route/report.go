package route

import (
	"fmt"
	"io"

	"levee/internal/bench"
	"levee/internal/bench/lookup"
	"levee/internal/bench/workload"
	"levee/internal/report"
)

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	return r.Conditions.Write(w, &r.Head, func(t *bench.Text) {
		for _, c := range r.Cases {
			t.Printf("\n%d %s routes, %s\n", len(c.Prefixes), c.Family(), c.Entries)
			c.print(t)
		}
	})
}

func (c *Case) print(t *bench.Text) {
	t.Table(0, func(w io.Writer) {
		fmt.Fprintln(w, "  ns a look-up: stream/chain\thit\tmiss\tmix\tmix, Zipf\tdepth, "+
			"mean/max\tinsertion\ta route\tone change\tmemory\ta route")
		for _, s := range c.Structures {
			if s.Missing != "" {
				continue
			}
			depth := "unknown"
			if s.Depth != nil {
				depth = fmt.Sprintf("%.1f/%d", s.Depth.Mean, s.Depth.Max)
			}
			memory := "-\t-"
			if s.Bytes > 0 {
				memory = fmt.Sprintf("%s\t%.1f bytes", bytesOf(s.Bytes), s.PerEntry)
			}
			fmt.Fprintf(w, "  %s%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Cells(), depth,
				bench.Nanos(s.BuildNs+s.LoadNs),
				bench.Nanos(insertion(s, len(c.Prefixes))), bench.Nanos(s.UpdateNs), memory)
		}
	})
	for _, s := range c.Structures {
		if s.Missing != "" {
			t.Printf("  %s: no figure: %s\n", s.Name, s.Missing)
		} else if s.Depth != nil {
			t.Printf("  %s: depth: %s\n", s.Name, s.Depth.Of)
		} else if s.DepthUnknown != "" {
			t.Printf("  %s: depth: %s\n", s.Name, s.DepthUnknown)
		}
	}
}

// Document returns the report for files: look-ups, insertion and memory over the number of routes,
// and a table.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("route", "Routing tables",
		"Look-ups, insertion, memory and depth of the kernel's routing table, its LPM trie and "+
			"levee's sets.")
	r.Conditions.Set(d)
	charts := map[string]*report.Chart{}
	chart := func(id, title, label, unit string) *report.Chart {
		if charts[id] == nil {
			charts[id] = d.Chart(report.Chart{
				ID: id, Title: title, X: report.Axis{Label: "routes", Log: true},
				Y: report.Axis{Label: label, Unit: unit, Log: true}, Better: report.Less,
			})
		}
		return charts[id]
	}
	for _, c := range r.Cases {
		what, id, x := c.Family()+" "+c.Entries, report.FileName(c.Family()+"-"+c.Entries),
			float64(len(c.Prefixes))
		for _, s := range c.Structures {
			if s.Missing != "" {
				d.Refuse(fmt.Sprintf("%s, %d routes, %s", s.Name, len(c.Prefixes), what), s.Missing)
				continue
			}
			for _, k := range lookup.Traffics {
				if l := s.Lookup(k.Kind, k.Skew); l != nil {
					name := trafficName(k.Kind, k.Skew)
					chart("route-stream-"+id+"-"+report.FileName(name), what+": "+name,
						"a look-up, stream", "ns").Add(s.Name, report.Measured(x, l.StreamRounds))
					chart("route-chain-"+id+"-"+report.FileName(name), what+": "+name+", chained",
						"a look-up, chain", "ns").Add(s.Name, report.Measured(x, l.ChainRounds))
				}
			}
			chart("route-insertion-"+id, what+": insertion", "a route", "ns").Add(s.Name,
				report.Value(x, insertion(s, len(c.Prefixes))))
			memory := report.Gap(x, "too little to be told from what else the kernel does")
			if s.Bytes > 0 {
				memory = report.Value(x, s.PerEntry)
			}
			chart("route-memory-"+id, what+": memory", "a route", "bytes").Add(s.Name, memory)
		}
	}
	r.table(d)
	return d
}

func trafficName(k workload.Kind, s workload.Skew) string {
	if s == workload.Zipf {
		return string(k) + ", Zipf"
	}
	return string(k)
}

// table has what no chart shows.
func (r *Report) table(d *report.Document) {
	t := d.Table("route-shape", "Insertion, memory and depth", report.Column{Name: "table"},
		report.Column{Name: "routes"}, report.Column{Name: "structure"},
		report.Column{Name: "insertion", Unit: "ns"}, report.Column{Name: "one change", Unit: "ns"},
		report.Column{Name: "memory", Unit: "bytes"},
		report.Column{Name: "depth, mean"}, report.Column{Name: "depth, max"},
		report.Column{Name: "what a step is"})
	for _, c := range r.Cases {
		for _, s := range c.Structures {
			if s.Missing != "" {
				continue
			}
			row := []report.Cell{report.Text(c.Family() + " " + c.Entries),
				report.Number(float64(len(c.Prefixes))), report.Text(s.Name),
				report.Number(s.BuildNs + s.LoadNs), report.Number(s.UpdateNs)}
			if s.Bytes > 0 {
				row = append(row, report.Number(float64(s.Bytes)))
			} else {
				row = append(row, report.Text("-"))
			}
			if s.Depth != nil {
				row = append(row, report.Number(s.Depth.Mean), report.Number(float64(s.Depth.Max)),
					report.Text(s.Depth.Of))
			} else {
				row = append(row, report.Text("unknown"), report.Text("unknown"),
					report.Text(s.DepthUnknown))
			}
			t.Row(row...)
		}
	}
}

// bytesOf returns a size with three digits; unlike size it is of something that is counted exactly.
func bytesOf(n uint64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%d KB", n>>10)
	}
	return fmt.Sprintf("%.3g MB", float64(n)/(1<<20))
}
