package scale

import (
	"fmt"
	"slices"
	"strings"

	"levee/internal/bench/workload"
	"levee/internal/report"
)

// Raw is what the report is as JSON by itself; the document goes beside it.
func (r *SetsReport) Raw() any { return r }

// Raw is what the report is as JSON by itself; the document goes beside it.
func (r *RulesReport) Raw() any { return r }

// Document draws the report up for the writers of package report: look-ups, memory, packets a second
// and times to load, over the number of entries.
func (r *SetsReport) Document() *report.Document {
	d := &report.Document{
		Bench: "sets", Title: "Sets as they grow", Command: r.Command, Started: r.Started, Incomplete: r.Incomplete, Machine: r.Machine, Notes: slices.Clone(r.Caveats),
		What: "What an entry more costs: look-ups inside the kernel, above the same loop without one, and packets a second of one core through a lab.",
	}
	setup(d, r.Rounds, r.Seed, r.Quick, r.Conditions)
	for _, c := range r.Cases {
		c.draw(d)
	}
	prune(d)
	return d
}

// setup is what two runs must have in common.
func setup(d *report.Document, rounds int, seed uint64, quick bool, c *Conditions) {
	d.Set("rounds", fmt.Sprint(rounds))
	d.Set("seed", fmt.Sprint(seed))
	d.Set("quick", fmt.Sprint(quick))
	d.Setup = append(d.Setup, c.settings()...)
}

// chart finds a chart, or makes it: all cases of a kind go into the same ones.
func chart(d *report.Document, c report.Chart) *report.Chart {
	for _, old := range d.Charts {
		if old.ID == c.ID {
			return old
		}
	}
	return d.Chart(c)
}

// grown is a chart over a number of things, both axes logarithmic.
func grown(d *report.Document, id, title, over string, y report.Axis, better report.Better, what string) *report.Chart {
	y.Log = true
	return chart(d, report.Chart{ID: id, Title: title, What: what, Kind: report.Line, X: report.Axis{Label: over, Log: true}, Y: y, Better: better})
}

func (c *SetCase) draw(d *report.Document) {
	kind, what, at := report.FileName(c.Family+"-"+c.Entries), c.Family+" "+c.Entries, float64(c.Size)
	for _, s := range c.Structures {
		memory := grown(d, "sets-bytes-"+kind, what+": memory", "entries", report.Axis{Label: "memory an entry", Unit: "bytes"}, report.Less, "What the kernel charges for the structure.")
		build := grown(d, "sets-build-"+kind, what+": time to build and load a structure", "entries", report.Axis{Label: "time", Unit: "ns"}, report.Less, "Single values.")
		if s.Missing != "" {
			d.Refuse(fmt.Sprintf("%s, %d %s", s.Name, c.Size, what), s.Missing)
			memory.Add(s.Name, report.Gap(at, s.Missing))
			build.Add(s.Name, report.Gap(at, s.Missing))
			for _, k := range traffics {
				lookupCharts(d, kind, what, k.kind, k.skew, func(c *report.Chart, _ bool) { c.Add(s.Name, report.Gap(at, s.Missing)) })
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
	drawTools(d, "sets", kind, what, "entries", c.Size, c.Lab)
}

// lookupCharts calls add with the chart of streams and that of chains.
func lookupCharts(d *report.Document, kind, what string, k workload.Kind, skew workload.Skew, add func(c *report.Chart, chain bool)) {
	name := string(k)
	if skew != workload.Uniform {
		name += "-" + string(skew)
	}
	for _, way := range []struct {
		id, title, what string
		chain           bool
	}{
		{"lookup", "a look-up", "Independent look-ups, which the CPU overlaps.", false},
		{"chain", "a look-up that waits for the one before", "Each address depends on the answer before: nearer to one look-up a packet.", true},
	} {
		add(grown(d, fmt.Sprintf("sets-%s-%s-%s", way.id, kind, name), fmt.Sprintf("%s: %s, %s", what, way.title, strings.ReplaceAll(name, "-", ", ")), "entries",
			report.Axis{Label: "above the loop", Unit: "ns"}, report.Less, way.what), way.chain)
	}
}

// drawTools adds what the lab measured.
func drawTools(d *report.Document, bench, kind, what, over string, size int, tools []*Tool) {
	at := float64(size)
	for _, t := range tools {
		pps := grown(d, bench+"-pps-"+kind, what+": packets a second of one core", over, report.Axis{Label: "dropped", Unit: "packets/s"}, report.More,
			"All packets are dropped. At least: the generator was the limit in some windows.")
		load := grown(d, bench+"-load-"+kind, what+": time to load", over, report.Axis{Label: "time", Unit: "ns"}, report.Less, "")
		if t.MedianPPS == nil {
			why := t.Missing
			if why == "" {
				why = strings.Join(t.Why, "; ")
			}
			if why == "" {
				why = "too few rounds without a disturbance"
			}
			d.Refuse(fmt.Sprintf("%s, %d %s", t.Name, size, what), why)
			pps.Add(t.Name, report.Gap(at, why))
		} else {
			p := report.Value(at, *t.MedianPPS).Bound(t.AtLeast)
			if t.Interval != nil { // there is none while rounds are too few
				p = p.Between(t.Interval[0], t.Interval[1])
			}
			p.Rounds = validRates(t)
			pps.Add(t.Name, p)
		}
		if t.LoadNs != nil {
			load.Add(t.Name, report.Value(at, t.LoadNs.Median).Between(t.LoadNs.Interval[0], t.LoadNs.Interval[1]))
		}
		proof := proofTable(d, bench)
		proof.Row(certificate(t, size, what)...)
	}
}

// validRates are packets a second of the windows that count.
func validRates(t *Tool) []float64 {
	var out []float64
	for _, w := range t.Windows {
		if len(w.Invalid) == 0 {
			out = append(out, w.PPS)
		}
	}
	return out
}

// proofTable finds the table of certificates, or makes it.
func proofTable(d *report.Document, bench string) *report.Table {
	id := bench + "-certificate"
	for _, t := range d.Tables {
		if t.ID == id {
			return t
		}
	}
	t := d.Table(id, "Saturation and balance",
		report.Column{Name: "tool"}, report.Column{Name: "of"}, report.Column{Name: "size"}, report.Column{Name: "windows"}, report.Column{Name: "valid"},
		report.Column{Name: "saturated"}, report.Column{Name: "core busy", Unit: "%, least"}, report.Column{Name: "off balance", Unit: "%, worst"})
	t.What = "Saturated: the core was busy and the ring refused packets, so that the tool was the limit and not the generator. Off balance: packets offered that neither the ring nor the tool's own counter accounts for."
	return t
}

func certificate(t *Tool, size int, what string) []report.Cell {
	valid, saturated, busy, off := 0, 0, 100.0, 0.0
	for _, w := range t.Windows {
		if len(w.Invalid) > 0 {
			continue
		}
		valid++
		if w.Saturated {
			saturated++
		}
		busy = min(busy, 100*w.CoreBusy)
		if w.Offered > 0 {
			off = max(off, 100*distance(w.Offered, w.Refused+w.Received)/float64(w.Offered))
		}
		if w.Received > 0 {
			off = max(off, 100*distance(w.Received, w.Dropped+w.PassedOn+w.Overflow)/float64(w.Received))
		}
	}
	row := []report.Cell{report.Text(t.Name), report.Text(what), report.Number(float64(size)), report.Number(float64(len(t.Windows))), report.Number(float64(valid))}
	if valid == 0 {
		return append(row, report.Text("-"), report.Text("-"), report.Text("-"))
	}
	return append(row, report.Number(float64(saturated)), report.Quantity(busy, "%.1f", busy), report.Quantity(off, "%.4f", off))
}

func distance(a, b uint64) float64 {
	if a > b {
		return float64(a - b)
	}
	return float64(b - a)
}

// prune takes charts away that nothing went into.
func prune(d *report.Document) {
	d.Charts = slices.DeleteFunc(d.Charts, func(c *report.Chart) bool { return !c.Drawable() })
}

// Document draws the report up for the writers of package report: ns a packet, packets a second and times to
// load over the number of rules.
func (r *RulesReport) Document() *report.Document {
	d := &report.Document{
		Bench: "rules", Title: "Policies as they grow", Command: r.Command, Started: r.Started, Incomplete: r.Incomplete, Machine: r.Machine, Notes: slices.Clone(r.Caveats),
		What: fmt.Sprintf("What a rule more costs: levee's compiled policy on %d different packets, above an empty program, and packets a second of one core through a lab.", r.Frames),
	}
	setup(d, r.Rounds, r.Seed, r.Quick, r.Conditions)
	for _, c := range r.Cases {
		c.draw(d)
	}
	prune(d)
	return d
}

func (c *RuleCase) draw(d *report.Document) {
	at := float64(c.Size)
	uniform := grown(d, "rules-ns", "levee: a packet, above an empty program", "rules", report.Axis{Label: "above an empty program", Unit: "ns"}, report.Less, "Packets made from all rules alike.")
	zipf := grown(d, "rules-ns-zipf", "levee: a packet, frequent rules", "rules", report.Axis{Label: "above an empty program", Unit: "ns"}, report.Less, "Packets made from rules by Zipf's law.")
	load := grown(d, "rules-prepare", "levee: from text to the kernel", "rules", report.Axis{Label: "resolve, compile and load", Unit: "ns"}, report.Less, "Single values.")
	memory := grown(d, "rules-bytes", "levee: memory", "rules", report.Axis{Label: "program and maps", Unit: "bytes"}, report.Less, "")
	if p := c.Levee; p != nil {
		if p.Missing != "" {
			d.Refuse(fmt.Sprintf("levee, %d %s rules", c.Size, c.Shape), p.Missing)
			for _, each := range []*report.Chart{uniform, zipf, load, memory} {
				each.Add(c.Shape, report.Gap(at, p.Missing))
			}
		} else {
			uniform.Add(c.Shape, rounds(p, workload.Uniform, at, p.Uniform))
			zipf.Add(c.Shape, rounds(p, workload.Zipf, at, p.Zipf))
			load.Add(c.Shape, report.Value(at, float64(p.ResolveNs+p.CompileNs+p.LoadNs)))
			memory.Add(c.Shape, report.Value(at, float64(p.Bytes)))
		}
	}
	drawTools(d, "rules", report.FileName(c.Shape), c.Shape+" rules", "rules", c.Size, c.Lab)
}

// rounds is a point of the policy's own measurement, with its raw rounds where they are.
func rounds(p *Policy, skew workload.Skew, at float64, f *Figure) report.Point {
	if raw, ok := p.Raw[string(skew)].([]float64); ok {
		return report.Measured(at, raw)
	}
	if f == nil {
		return report.Gap(at, "not measured")
	}
	return report.Value(at, f.Median).Between(f.Interval[0], f.Interval[1])
}
