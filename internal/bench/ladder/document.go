package ladder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"levee/internal/bench"
	"levee/internal/bench/flood"
	"levee/internal/report"
)

// Raw returns what the report is as JSON by itself; the document goes beside it.
func (r *Report) Raw() any { return r }

// Document draws the report up for the writers of package report.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("ladder", "Places to drop a packet",
		"How many packets a second one core takes and drops, by where they are dropped: the same "+
			"flood on the same path for all, as many packets of each kind.")
	d.Notes = slices.Concat(d.Notes, r.Path)
	d.Set("policy", r.Policy)
	d.Set("window", fmt.Sprintf("%d ms after %d ms of warm-up", r.WindowMS, r.WarmupMS))
	d.Set("quick", fmt.Sprint(r.Quick))
	for _, t := range r.Traffic {
		d.Set(strings.TrimSpace("flood "+t.Family+" "+t.Name), t.What)
	}
	if r.CoreDistance > 0 {
		d.Setup = append(d.Setup, report.Setting{Name: "ns of a cache line from core to core " +
			"and back", Value: fmt.Sprintf("%.0f", r.CoreDistance), Within: flood.FarFactor})
	}
	if r.CoreWork > 0 {
		d.Setup = append(d.Setup,
			report.Setting{Name: "ns of an operation on cores that nobody shares",
				Value: fmt.Sprintf("%.4f", r.CoreWork), Within: bench.SameStep},
			report.Setting{Name: "ns of an operation in the median window",
				Value: fmt.Sprintf("%.4f", r.CoreWorkMedian), Within: bench.SameStep})
	}
	g := newDrawing(d, len(r.Traffic) > max(len(r.Families), 1))
	for _, rung := range r.fastestFirst() {
		for _, family := range r.families() {
			g.draw(rung, family)
			g.certify(rung, family)
		}
	}
	return d
}

// fastestFirst returns the rungs from the fastest to the slowest of the first family, those without
// a figure last.
func (r *Report) fastestFirst() []*Rung {
	rate := func(g *Rung) float64 {
		if g.MedianPPS == nil {
			return -1
		}
		return *g.MedianPPS
	}
	return slices.SortedStableFunc(slices.Values(r.Rungs),
		func(a, b *Rung) int { return cmp.Compare(rate(b), rate(a)) })
}

// drawing are the charts and the table of a ladder.
type drawing struct {
	*report.Document
	pps, ns, ratio, floods *report.Chart
	proof                  *report.Table
}

// newDrawing makes them; floods are drawn one by one where a family has several.
func newDrawing(d *report.Document, floods bool) *drawing {
	g := &drawing{Document: d}
	g.pps = d.Chart(report.Chart{
		ID: "ladder-pps", Title: "Packets a second by the place where they are dropped",
		Kind: report.Bar, Better: report.More, Y: report.Axis{Label: "dropped", Unit: "packets/s"},
		What: "The mix: as many packets of each flood. At least (≥): the generator was the limit " +
			"in some windows, not the place.",
	})
	g.ns = d.Chart(report.Chart{
		ID: "ladder-ns", Title: "Time of the receiving core by the place", Kind: report.Bar,
		Better: report.Less, Ranked: true, Y: report.Axis{Label: "run time a packet", Unit: "ns"},
		What: "Receiving thread and application. Tells places apart that the generator cannot " +
			"saturate; a little too high for those.",
	})
	g.ratio = d.Chart(report.Chart{
		ID: "ladder-ratio", Title: "Speed as a share of the empty XDP program's", Kind: report.Bar,
		Better: report.More, Steady: steady,
		Y: report.Axis{Label: "of xdp drop, least third of rounds", Log: true},
		What: "Of the mean time a packet in the third of each place's rounds in which it was " +
			"least, and least was disturbed: xdp drop's over this one's. The interval is the one " +
			"that those of both means allow, 95 %.",
	})
	if floods {
		g.floods = d.Chart(report.Chart{ID: "ladder-floods",
			Title: "Packets a second, flood by flood", Kind: report.Bar, Better: report.More,
			Y: report.Axis{Label: "dropped", Unit: "packets/s"}})
	}
	g.proof = d.Table("ladder-certificate", "Saturation and balance",
		report.Column{Name: "place"}, report.Column{Name: "family"}, report.Column{Name: "windows"},
		report.Column{Name: "valid"}, report.Column{Name: "saturated"},
		report.Column{Name: "core busy", Unit: "%, median"},
		report.Column{Name: "refused by the ring", Unit: "%, median"},
		report.Column{Name: "off balance", Unit: "%, worst"},
		report.Column{Name: "steal", Unit: "%, worst"})
	g.proof.What = "Valid windows only, but for their number. Saturated: the core was busy and " +
		"the ring refused packets, so that the place was the limit. " +
		"Off balance: packets offered and not accounted for, by the ring or by the place's own " +
		"counter."
	return g
}

// steady is by how much a ratio may differ in two runs.
const steady = 0.10

// draw adds the figures of one rung and family.
func (g *drawing) draw(r *Rung, family string) {
	series := family
	if series == "" {
		series = "packets"
	}
	f := r.of(family)
	if f == nil || f.MedianPPS == nil {
		why := r.Missing
		if why == "" && f != nil {
			why = strings.Join(f.Why, "; ")
		}
		if why == "" {
			why = "too few rounds"
		}
		g.Refuse(strings.TrimSpace(r.Name+" "+family), why)
		g.pps.Add(series, report.Gap(0, why).Of(r.Name))
		g.ns.Add(series, report.Gap(0, why).Of(r.Name))
		g.ratio.Add(series, report.Gap(0, why).Of(r.Name))
		return
	}
	rates, times := f.RoundValues()
	g.pps.Add(series, report.Measured(0, rates).Of(r.Name).Bound(f.AtLeast))
	g.ns.Add(series, report.Measured(0, times).Of(r.Name))
	g.ratio.Add(series, point(f.ToXDPDrop).Of(r.Name))
	if g.floods == nil {
		return
	}
	for _, flood := range slices.Sorted(maps.Keys(f.ByTraffic)) {
		var rounds []float64
		atLeast := false
		for _, w := range r.Windows {
			if w.Traffic == flood && w.Family == family && len(w.Invalid) == 0 {
				rounds, atLeast = append(rounds, w.PPS), atLeast || !w.Saturated
			}
		}
		g.floods.Add(strings.TrimSpace(family+" "+flood),
			report.Measured(0, rounds).Of(r.Name).Bound(atLeast))
	}
}

// point returns the ratio to be drawn.
func point(x *flood.Ratio) report.Point {
	if x == nil {
		return report.Gap(0, "one of the two has too few rounds")
	}
	p := report.Value(0, x.Least)
	if i := x.LeastInterval; i != nil {
		p = p.Between(i[0], i[1])
	}
	return p
}

// certify adds what shows that the figures of a rung mean something.
func (g *drawing) certify(r *Rung, family string) {
	var busy, refused []float64
	windows, saturated, worst, steal := 0, 0, 0.0, 0.0
	for _, w := range r.Windows {
		if w.Family != family {
			continue
		}
		windows++
		if len(w.Invalid) > 0 {
			continue
		}
		if w.Saturated {
			saturated++
		}
		busy, refused = append(busy, w.CoreBusy*100), append(refused, 100*w.RefusedShare())
		worst = max(worst, 100*w.OffBalance())
		steal = max(steal, 100*w.Steal)
	}
	row := []report.Cell{report.Text(r.Name), report.Text(family), report.Number(float64(windows)),
		report.Number(float64(len(busy)))}
	if len(busy) == 0 {
		for range 5 {
			row = append(row, report.Text("-"))
		}
		g.proof.Row(row...)
		return
	}
	median := func(v []float64) report.Cell {
		m, _, _ := report.Summary(v)
		return report.Quantity(m, "%.1f", m)
	}
	g.proof.Row(append(row, report.Number(float64(saturated)), median(busy), median(refused),
		report.Quantity(worst, "%.4f", worst), report.Quantity(steal, "%.2f", steal))...)
}
