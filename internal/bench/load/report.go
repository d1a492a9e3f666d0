package load

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"levee/internal/bench"
	"levee/internal/report"
)

// chart finds a chart, or makes it: all cases of a kind go into the same ones.
func chart(d *report.Document, c report.Chart) *report.Chart {
	for _, old := range d.Charts {
		if old.ID == c.ID {
			return old
		}
	}
	return d.Chart(c)
}

// Grown returns a chart over a number of things, both axes logarithmic.
func Grown(d *report.Document, id, title, over string, y report.Axis, better report.Better,
	what string) *report.Chart {
	y.Log = true
	return chart(d, report.Chart{ID: id, Title: title, What: what, Kind: report.Line,
		X: report.Axis{Label: over, Log: true}, Y: y, Better: better})
}

// Draw adds what the lab measured: packets a second and times to load over a size.
func Draw(d *report.Document, bench, kind, what, over string, size int, results []*Result) {
	at := float64(size)
	for _, t := range results {
		pps := Grown(d, bench+"-pps-"+kind, what+": packets a second of one core", over,
			report.Axis{Label: "dropped", Unit: "packets/s"}, report.More,
			"All packets are dropped. At least: the generator was the limit in some windows.")
		load := Grown(d, bench+"-load-"+kind, what+": time to load", over,
			report.Axis{Label: "time", Unit: "ns"}, report.Less, "")
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
			load.Add(t.Name, report.Value(at, t.LoadNs.Median).Between(t.LoadNs.Interval[0],
				t.LoadNs.Interval[1]))
		}
		proof := proofTable(d, bench)
		proof.Row(certificate(t, size, what)...)
	}
}

// validRates are packets a second of the windows that count.
func validRates(t *Result) []float64 {
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
		report.Column{Name: "tool"}, report.Column{Name: "of"}, report.Column{Name: "size"},
		report.Column{Name: "windows"}, report.Column{Name: "valid"},
		report.Column{Name: "saturated"}, report.Column{Name: "core busy", Unit: "%, least"},
		report.Column{Name: "off balance", Unit: "%, worst"})
	t.What = "Saturated: the core was busy and the ring refused packets, so that the tool was " +
		"the limit and not the generator. Off balance: packets offered that neither the ring nor " +
		"the tool's own counter accounts for."
	return t
}

func certificate(t *Result, size int, what string) []report.Cell {
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
		off = max(off, 100*w.OffBalance())
	}
	row := []report.Cell{report.Text(t.Name), report.Text(what), report.Number(float64(size)),
		report.Number(float64(len(t.Windows))), report.Number(float64(valid))}
	if valid == 0 {
		return append(row, report.Text("-"), report.Text("-"), report.Text("-"))
	}
	return append(row, report.Number(float64(saturated)), report.Quantity(busy, "%.1f", busy),
		report.Quantity(off, "%.4f", off))
}

// Prune removes charts without points.
func Prune(d *report.Document) {
	d.Charts = slices.DeleteFunc(d.Charts, func(c *report.Chart) bool { return !c.Drawable() })
}

// Print prints what the lab measured for a person.
func Print(t *bench.Text, results []*Result) {
	if len(results) == 0 {
		return
	}
	t.Table(0, func(w io.Writer) {
		fmt.Fprintln(w, "  in the lab\tMpps\t95 % interval\tns/packet\tload\tone "+
			"change\tadds/s\tmemory")
		for _, x := range results {
			if x.MedianPPS != nil {
				x.row(w)
			}
		}
	})
	for _, x := range results {
		if x.Missing != "" {
			t.Printf("  %s: not measured: %s\n", x.Name, x.Missing)
		}
		for _, why := range x.Why {
			t.Printf("  %s: no figure: %s\n", x.Name, why)
		}
	}
}

// row is a line of the table.
func (x *Result) row(w io.Writer) {
	atLeast := ""
	if x.AtLeast {
		atLeast = ">="
	}
	adds := "-"
	if x.AddsPerSec != nil {
		adds = fmt.Sprintf("%.0f", x.AddsPerSec.Median)
	}
	interval := "-" // of too few rounds
	if x.Interval != nil {
		interval = fmt.Sprintf("%.3g-%.3g", x.Interval[0]/1e6, x.Interval[1]/1e6)
	}
	fmt.Fprintf(w, "  %s\t%s%.3g\t%s\t%.0f\t%s\t%s\t%s\t%s\n", x.Name, atLeast, *x.MedianPPS/1e6,
		interval,
		*x.NsPerPacket, median(x.LoadNs), median(x.UpdateNs), adds, bench.Size(x.Bytes))
}

// median returns the median of times, for a person.
func median(f *bench.Figure) string {
	if f == nil {
		return "-"
	}
	return bench.Nanos(f.Median)
}
