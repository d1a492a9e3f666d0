package rrul

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"levee/internal/report"
)

// Document returns the report to be drawn.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("rrul", "A service under load both ways",
		fmt.Sprintf("%d TCP flows from a service and as many to it, as fast as they go, with %g "+
			"datagrams and %g echo requests a second beside them: throughput, round trips without "+
			"load and under it, and what waits in the queues.", r.FlowsEachWay, r.Probes, r.Probes))
	d.Set("flows each way", fmt.Sprint(r.FlowsEachWay))
	d.Set("probes a second", fmt.Sprint(r.Probes))
	d.Set("before, during, after", fmt.Sprintf("%g s, %g s, %g s", r.Before, r.During, r.After))
	if slices.ContainsFunc(r.Cases, func(c *Case) bool { return c.Queue != NoQueue }) {
		d.Set("bandwidth of queues", fmt.Sprintf("%g bit/s", r.Bandwidth))
	}
	one := !slices.ContainsFunc(r.Cases, func(c *Case) bool { return c.Queue != r.Cases[0].Queue })
	for _, c := range r.Cases {
		c.oneQueue = one
	}
	if one && len(r.Cases) > 0 {
		d.Set("queue", r.Cases[0].Queue)
	}
	d.Refusals = r.refusals()
	r.throughputs(d)
	for _, kind := range kinds {
		r.roundTrips(d, kind)
	}
	r.curves(d)
	r.tables(d)
	return d
}

var bits = report.Axis{Label: "throughput", Unit: "bit/s"}

func (r *Report) throughputs(d *report.Document) {
	c := d.Chart(report.Chart{ID: "throughput", Title: "Throughput by direction", Kind: report.Bar,
		Y: bits, Better: report.More})
	flows := d.Chart(report.Chart{ID: "flows", Title: "Throughput of single flows",
		Kind: report.Box, Y: bits, What: "How even flows are: all of all rounds."})
	for _, way := range ways {
		for _, x := range r.Cases {
			c.Add(way, x.throughput(way))
			flows.Add(way, report.Boxed(x.label(), x.each(way)))
		}
	}
}

// roundTrips adds the charts of a kind of probe.
func (r *Report) roundTrips(d *report.Document, kind string) {
	of := ", " + strings.ToUpper(kind)
	axis := report.Axis{Label: "round trip", Unit: "ns", Log: true}
	for _, percent := range []float64{50, 99} {
		c := d.Chart(report.Chart{ID: fmt.Sprintf("%s-p%g", kind, percent),
			Title: fmt.Sprintf("Round trips, p%g%s", percent, of), Kind: report.Bar, Y: axis,
			Better: report.Less})
		for _, phase := range phases {
			for _, x := range r.Cases {
				c.Add(phase, x.roundTrip(kind, phase, percent))
			}
		}
	}
	boxes := d.Chart(report.Chart{ID: kind + "-box", Title: "Spread of round trips" + of,
		Kind: report.Box, Y: axis})
	shares := d.Chart(report.Chart{ID: kind + "-cdf", Title: "Distribution of round trips" + of,
		Kind: report.Distribution,
		What: "How many of all probes came back within a time; those that never did are in none.",
		X:    axis, Y: report.Axis{Label: "of the probes", Unit: "%"}})
	for _, phase := range phases {
		for _, x := range r.Cases {
			came, lost := x.all(kind, phase)
			boxes.Add(phase, report.Boxed(x.label(), came))
			shares.Add(x.label()+", "+phase, distribution(came, lost)...)
		}
	}
}

// steps are the points of a distribution: so that a page holds those of many runs, and a picture is
// of lines without dots.
const steps = 250

// distribution returns the share of all probes, in percent, that took at most as long; ns ascend.
func distribution(ns []float64, lost int) (points []report.Point) {
	n := min(steps, len(ns))
	for i := 1; i <= n; i++ {
		at := i*len(ns)/n - 1
		points = append(points, report.Value(ns[at], 100*float64(at+1)/float64(len(ns)+lost)))
	}
	return points
}

// curves adds what goes by time, medians over the rounds.
func (r *Report) curves(d *report.Document) {
	time := report.Axis{Label: "time", Unit: "s"}
	marks := []report.Mark{{From: r.Before, To: r.Before + r.During, Label: "load"}}
	rates := d.Chart(report.Chart{ID: "throughput-time", Title: "Throughput by time",
		Kind: report.Time, X: time, Y: bits, Marks: marks})
	for _, x := range r.Cases {
		for _, way := range ways {
			rates.Add(x.label()+", "+way, x.byLook(func(run *Once, i int) float64 {
				if i == 0 {
					return math.NaN()
				}
				a, b := &run.Looks[i-1], &run.Looks[i]
				return 8 * (total(b.of(way)) - total(a.of(way))) / (b.At - a.At)
			})...)
		}
	}
	for _, kind := range kinds {
		c := d.Chart(report.Chart{ID: kind + "-time",
			Title: "Round trips by time, " + strings.ToUpper(kind), Kind: report.Time, X: time,
			Y: report.Axis{Label: "round trip, median", Unit: "ns", Log: true}, Marks: marks})
		for _, x := range r.Cases {
			c.Add(x.label(), r.byTime(x, kind)...)
		}
	}
	waiting := d.Chart(report.Chart{ID: "queues-time", Title: "What waits in queues by time",
		Kind: report.Time, X: time, Y: report.Axis{Label: "waiting", Unit: "bytes"}, Marks: marks})
	for _, x := range r.Cases {
		for i, way := range ways {
			waiting.Add(x.label()+", "+way, x.byLook(func(run *Once, at int) float64 {
				return float64(run.Queues[i].Bytes[at])
			})...)
		}
	}
}

func total(bytes []uint64) (sum float64) {
	for _, b := range bytes {
		sum += float64(b)
	}
	return sum
}

// byLook returns the median over the runs of what each has at its i-th look, at the time of the
// first run's.
func (c *Case) byLook(of func(run *Once, i int) float64) (points []report.Point) {
	runs := c.valid()
	if len(runs) == 0 {
		return nil
	}
	for i := range runs[0].Looks {
		var values []float64
		for _, run := range runs {
			if i < len(run.Looks) {
				if v := of(run, i); !math.IsNaN(v) {
					values = append(values, v)
				}
			}
		}
		if len(values) > 0 {
			y, _, _ := report.Summary(values)
			points = append(points, report.Value(runs[0].Looks[i].At, y))
		}
	}
	return points
}

// bucket is the time over which round trips are gathered in a curve, seconds.
const bucket = 0.2

// byTime returns the median round trip of the probes that were due in each bucket of all runs.
func (r *Report) byTime(c *Case, kind string) (points []report.Point) {
	n := int(math.Ceil((r.Before + r.During + r.After) / bucket))
	values := make([][]float64, n)
	for _, run := range c.valid() {
		for _, p := range run.Probes {
			for i, due := range p.Due {
				b := int(due / bucket)
				if p.Kind != kind || b >= n || i >= len(p.Took) {
					continue
				}
				v := 1e9 * p.Took[i]
				if v == 0 {
					v = math.Inf(1)
				}
				values[b] = append(values[b], v)
			}
		}
	}
	for b, list := range values {
		at := (float64(b) + 0.5) * bucket
		switch v := percentile(list, 50); {
		case math.IsNaN(v):
			points = append(points, report.Gap(at, "no probe was due"))
		case math.IsInf(v, 1):
			points = append(points, report.Gap(at, "half of the probes did not come back"))
		default:
			points = append(points, report.Value(at, v))
		}
	}
	return points
}

func (r *Report) tables(d *report.Document) {
	flows := d.Table("directions", "Directions and flows", report.Column{Name: "case"},
		report.Column{Name: "direction"}, report.Column{Name: "throughput", Unit: "Mbit/s"},
		report.Column{Name: "least flow", Unit: "Mbit/s"},
		report.Column{Name: "most", Unit: "Mbit/s"}, report.Column{Name: "segments sent again"})
	probes := d.Table("probes", "Round trips", report.Column{Name: "case"},
		report.Column{Name: "probe"}, report.Column{Name: "phase"},
		report.Column{Name: "p50", Unit: "us"}, report.Column{Name: "p95", Unit: "us"},
		report.Column{Name: "p99", Unit: "us"}, report.Column{Name: "most", Unit: "us"},
		report.Column{Name: "lost"}, report.Column{Name: "probes"})
	queues := d.Table("queues", "Queues that the kernel tells of", report.Column{Name: "case"},
		report.Column{Name: "direction"}, report.Column{Name: "queue"},
		report.Column{Name: "rate", Unit: "Mbit/s"},
		report.Column{Name: "waiting, median", Unit: "bytes"},
		report.Column{Name: "most", Unit: "bytes"}, report.Column{Name: "sent", Unit: "packets"},
		report.Column{Name: "dropped", Unit: "packets"})
	for _, c := range r.Cases {
		if len(c.valid()) == 0 {
			continue
		}
		name := report.Text(c.label())
		for _, way := range ways {
			each, resent := c.each(way), 0.0
			for _, run := range c.valid() {
				resent += float64(run.Resent[way])
			}
			flows.Row(name, report.Text(way), report.Number(*c.throughput(way).Y/1e6),
				report.Number(percentile(each, 0)/1e6), report.Number(percentile(each, 100)/1e6),
				report.Number(resent))
			q := c.queue(way)
			queues.Row(name, report.Text(way), report.Text(q.name), report.Number(q.rate/1e6),
				report.Number(q.median), report.Number(q.most), report.Number(float64(q.sent)),
				report.Number(float64(q.dropped)))
		}
		for _, kind := range kinds {
			for _, phase := range phases {
				came, lost := c.all(kind, phase)
				row := []report.Cell{name, report.Text(kind), report.Text(phase)}
				for _, percent := range []float64{50, 95, 99, 100} {
					row = append(row, report.Number(percentile(came, percent)/1e3))
				}
				probes.Row(append(row, report.Number(float64(lost)),
					report.Number(float64(len(came)+lost)))...)
			}
		}
	}
}
