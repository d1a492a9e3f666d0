package scale

import (
	"fmt"
	"io"
	"text/tabwriter"

	"levee/internal/bench/workload"
	"levee/internal/report"
)

// Text prints the report for a person.
func (r *RouteReport) Text(w io.Writer) error {
	heading(w, &r.Machine, r.Rounds, r.Incomplete, r.Conditions)
	for _, c := range r.Cases {
		fmt.Fprintf(w, "\n%d %s routes, %s\n", c.Size, c.Family, c.Entries)
		if err := c.textRoutes(w); err != nil {
			return err
		}
	}
	return ending(w, r.Caveats, r.Command)
}

func (c *SetCase) textRoutes(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  ns a look-up: stream/chain\thit\tmiss\tmix\tmix, Zipf\tdepth, mean/max\tinsertion\ta route\tone change\tmemory\ta route")
	for _, s := range c.Structures {
		if s.Missing != "" {
			continue
		}
		fmt.Fprintf(t, "  %s", s.Name)
		for _, k := range traffics {
			fmt.Fprintf(t, "\t%s", s.Lookup(k.kind, k.skew).cell())
		}
		depth := "unknown"
		if s.Depth != nil {
			depth = fmt.Sprintf("%.1f/%d", s.Depth.Mean, s.Depth.Max)
		}
		fmt.Fprintf(t, "\t%s\t%s\t%s\t%s", depth, nanos(s.BuildNs+s.LoadNs), nanos(s.insertion(c.Size)), nanos(s.UpdateNs))
		if s.Bytes > 0 {
			fmt.Fprintf(t, "\t%s\t%.1f bytes\n", bytesOf(s.Bytes), s.PerEntry)
		} else {
			fmt.Fprintln(t, "\t-\t-")
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range c.Structures {
		if s.Missing != "" {
			fmt.Fprintf(w, "  %s: no figure: %s\n", s.Name, s.Missing)
		} else if s.Depth != nil {
			fmt.Fprintf(w, "  %s: depth: %s\n", s.Name, s.Depth.Of)
		} else if s.DepthUnknown != "" {
			fmt.Fprintf(w, "  %s: depth: %s\n", s.Name, s.DepthUnknown)
		}
	}
	return nil
}

// Document is the report for files: look-ups, insertion and memory over the number of routes, and a table.
func (r *RouteReport) Document() *report.Document {
	d := &report.Document{
		Schema: report.Schema, Bench: "route", Title: "Routing tables",
		What:    "Look-ups, insertion, memory and depth of the kernel's routing table, its LPM trie and levee's sets.",
		Command: r.Command, Started: r.Started, Incomplete: r.Incomplete, Machine: r.Machine, Notes: r.Caveats,
	}
	d.Set("rounds", fmt.Sprint(r.Rounds))
	d.Set("seed", fmt.Sprint(r.Seed))
	d.Setup = append(d.Setup, r.Conditions.settings()...)
	charts := map[string]*report.Chart{}
	chart := func(id, title, label, unit string) *report.Chart {
		if charts[id] == nil {
			charts[id] = d.Chart(report.Chart{
				ID: id, Title: title, X: report.Axis{Label: "routes", Log: true}, Y: report.Axis{Label: label, Unit: unit, Log: true}, Better: report.Less,
			})
		}
		return charts[id]
	}
	for _, c := range r.Cases {
		what, id, x := c.Family+" "+c.Entries, report.FileName(c.Family+"-"+c.Entries), float64(c.Size)
		for _, s := range c.Structures {
			if s.Missing != "" {
				d.Refuse(fmt.Sprintf("%s, %d routes, %s", s.Name, c.Size, what), s.Missing)
				continue
			}
			for _, k := range traffics {
				if l := s.Lookup(k.kind, k.skew); l != nil {
					name := trafficName(k.kind, k.skew)
					chart("route-stream-"+id+"-"+report.FileName(name), what+": "+name, "a look-up, stream", "ns").Add(s.Name, report.Measured(x, l.StreamRounds))
					chart("route-chain-"+id+"-"+report.FileName(name), what+": "+name+", chained", "a look-up, chain", "ns").Add(s.Name, report.Measured(x, l.ChainRounds))
				}
			}
			chart("route-insertion-"+id, what+": insertion", "a route", "ns").Add(s.Name, report.Value(x, s.insertion(c.Size)))
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
func (r *RouteReport) table(d *report.Document) {
	t := d.Table("route-shape", "Insertion, memory and depth", report.Column{Name: "table"}, report.Column{Name: "routes"}, report.Column{Name: "structure"},
		report.Column{Name: "insertion", Unit: "ns"}, report.Column{Name: "one change", Unit: "ns"}, report.Column{Name: "memory", Unit: "bytes"},
		report.Column{Name: "depth, mean"}, report.Column{Name: "depth, max"}, report.Column{Name: "what a step is"})
	for _, c := range r.Cases {
		for _, s := range c.Structures {
			if s.Missing != "" {
				continue
			}
			row := []report.Cell{report.Text(c.Family + " " + c.Entries), report.Number(float64(c.Size)), report.Text(s.Name),
				report.Number(s.BuildNs + s.LoadNs), report.Number(s.UpdateNs)}
			if s.Bytes > 0 {
				row = append(row, report.Number(float64(s.Bytes)))
			} else {
				row = append(row, report.Text("-"))
			}
			if s.Depth != nil {
				row = append(row, report.Number(s.Depth.Mean), report.Number(float64(s.Depth.Max)), report.Text(s.Depth.Of))
			} else {
				row = append(row, report.Text("unknown"), report.Text("unknown"), report.Text(s.DepthUnknown))
			}
			t.Row(row...)
		}
	}
}

// bytesOf is a size with three digits; unlike size it is of something that is counted exactly.
func bytesOf(n uint64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%d KB", n>>10)
	}
	return fmt.Sprintf("%.3g MB", float64(n)/(1<<20))
}
