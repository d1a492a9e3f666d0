package generators

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"levee/internal/bench"
	"levee/internal/lab/gen"
	"levee/internal/quantity"
	"levee/internal/report"
)

// Report is the outcome of a comparison.
type Report struct {
	bench.Head
	WindowMS   int64    `json:"window_ms"`
	Generators []*Entry `json:"generators"`
}

// Entry is one generator.
type Entry struct {
	Name    string `json:"name"`
	What    string `json:"what"`
	Missing string `json:"missing,omitempty"` // why it could not be measured at all
	// Path is that of levee; Burst and Copies are set in a sweep over them.
	Path   gen.Path `json:"path,omitempty"`
	Burst  int      `json:"burst,omitempty"`
	Copies int      `json:"copies,omitempty"`
	Rates  []*Rate  `json:"rates"`
}

// Rate is a generator at one requested rate.
type Rate struct {
	Asked float64 `json:"asked_pps"` // 0 for as fast as it goes
	// PPS is packets a second that the generator offered to the device, the median of the windows;
	// Low and High bound it at 95 %. All are null when fewer than six windows are valid; Why says
	// why not.
	PPS      *float64 `json:"median_pps"`
	Low      *float64 `json:"low_pps"`
	High     *float64 `json:"high_pps"`
	Received *float64 `json:"received_pps"` // median
	// ErrorPercent is the distance of PPS to what was asked; null where nothing was.
	ErrorPercent *float64 `json:"error_percent"`
	// Gaps are percentiles of the time between arrivals at the receiver, over all windows; null
	// where the clock was not read: as fast as it goes, reading it would be what is measured.
	Gaps    *Gaps    `json:"gaps"`
	Why     []string `json:"why,omitempty"`
	Windows []Window `json:"windows"`

	hist gen.Gaps
}

// Gaps are percentiles in ns, each within an eighth of its value.
type Gaps struct {
	P50  int64 `json:"p50_ns"`
	P90  int64 `json:"p90_ns"`
	P99  int64 `json:"p99_ns"`
	P999 int64 `json:"p99_9_ns"`
	Max  int64 `json:"max_ns"` // the middle of the last bucket
}

// Window is one measurement.
type Window struct {
	Round       int     `json:"round"` // from 0
	Seconds     float64 `json:"seconds"`
	Offered     uint64  `json:"offered"`
	Refused     uint64  `json:"refused"` // of offered, by the receiver's ring
	Received    uint64  `json:"received"`
	PPS         float64 `json:"pps"` // offered
	ReceivedPPS float64 `json:"received_pps"`
	Invalid     string  `json:"invalid,omitempty"`

	gaps []uint64
}

var caveats = []string{
	bench.VethCaveat,
	"the device's own counts and one XDP program at the receiver measure all alike; no generator " +
		"is believed about itself",
	"offered is all that the device was handed, also what the receiver's ring had no room for; " +
		"as fast as they go, received says what a generator can have delivered to this receiver",
	"levee varies sources and ports, masscan destinations; trafgen and tcpreplay repeat what " +
		"they have prepared",
	"gaps are of arrivals: the receiver works in batches, so that packets behind one another " +
		"come closer than they were sent",
}

func (e *Entry) add(rate float64, w Window) {
	i := slices.IndexFunc(e.Rates, func(r *Rate) bool { return r.Asked == rate })
	if i < 0 {
		i = len(e.Rates)
		e.Rates = append(e.Rates, &Rate{Asked: rate})
	}
	e.Rates[i].Windows = append(e.Rates[i].Windows, w)
}

// summarise draws the figures from the windows.
func (r *Report) summarise() {
	for _, e := range r.Generators {
		slices.SortFunc(e.Rates, func(a, b *Rate) int { return int(a.Asked - b.Asked) })
		for _, rate := range e.Rates {
			rate.summarise()
		}
	}
}

func (r *Rate) summarise() {
	offered, received := r.valid()
	for _, w := range r.Windows {
		if w.Invalid != "" && !slices.Contains(r.Why, w.Invalid) {
			r.Why = append(r.Why, w.Invalid)
		}
	}
	if len(offered) < bench.MinRounds {
		if len(r.Why) == 0 {
			r.Why = []string{fmt.Sprintf("%d windows: six are the fewest that give an interval",
				len(offered))}
		}
		return
	}
	m, lo, hi := report.Summary(offered)
	got, _, _ := report.Summary(received)
	r.PPS, r.Low, r.High, r.Received = &m, &lo, &hi, &got
	if r.Asked == 0 {
		return
	}
	off := (m/r.Asked - 1) * 100
	r.ErrorPercent = &off
	var all []uint64
	for _, w := range r.Windows {
		if w.Invalid != "" {
			continue
		}
		if all == nil {
			all = make([]uint64, len(w.gaps))
		}
		for i, n := range w.gaps {
			all[i] += n
		}
	}
	r.hist = gen.KernelGaps(all, math.MaxInt64)
	at := func(q float64) int64 { return r.hist.Quantile(q).Nanoseconds() }
	r.Gaps = &Gaps{at(.5), at(.9), at(.99), at(.999), at(1)}
}

// valid returns the rates of the windows that count.
func (r *Rate) valid() (offered, received []float64) {
	for _, w := range r.Windows {
		if w.Invalid == "" {
			offered, received = append(offered, w.PPS), append(received, w.ReceivedPPS)
		}
	}
	return offered, received
}

// Text prints the report for people.
func (r *Report) Text(w io.Writer) error {
	t := new(bench.Text)
	t.Table(tabwriter.AlignRight, r.rows)
	t.Printf("\n")
	for _, e := range r.Generators {
		t.Printf("%s: %s\n", e.Name, e.What)
		for _, x := range e.Rates {
			for _, why := range x.Why {
				t.Printf("  at %.0f/s (0: as fast as it goes): %s\n", x.Asked, why)
			}
		}
	}
	t.Printf("\n%d rounds of %d ms each, interleaved; seed %d\n", r.Rounds, r.WindowMS, r.Seed)
	for _, c := range r.Caveats {
		t.Printf("note: %s\n", c)
	}
	t.Printf("%s\n", &r.Machine)
	_, err := io.WriteString(w, t.String())
	return err
}

// rows is the table of all generators and rates.
func (r *Report) rows(w io.Writer) {
	fmt.Fprintln(w, "GENERATOR\tASKED/S\tOFFERED/S\t95 % INTERVAL\tOFF\tRECEIVED/S\tGAP 50 %\t99 "+
		"%\t99.9 %\t")
	for _, e := range r.Generators {
		if e.Missing != "" {
			fmt.Fprintf(w, "%s\t%s\t\t\t\t\t\t\t\t\n", e.Name, e.Missing)
		}
		for _, x := range e.Rates {
			asked := "most"
			if x.Asked > 0 {
				asked = fmt.Sprintf("%.0f", x.Asked)
			}
			if x.PPS == nil {
				fmt.Fprintf(w, "%s\t%s\tno figure\t\t\t\t\t\t\t\n", e.Name, asked)
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f to %.0f\t%s\t%.0f\t%s\t\n", e.Name, asked, *x.PPS,
				*x.Low, *x.High, x.off(), *x.Received, x.gapCells())
		}
	}
}

func (r *Rate) off() string {
	if r.ErrorPercent == nil {
		return "-"
	}
	return fmt.Sprintf("%+.3f %%", *r.ErrorPercent)
}

func (r *Rate) gapCells() string {
	if r.Gaps == nil {
		return "-\t-\t-"
	}
	d := func(ns int64) time.Duration { return time.Duration(ns).Round(10) }
	return fmt.Sprintf("%s\t%s\t%s", d(r.Gaps.P50), d(r.Gaps.P99), d(r.Gaps.P999))
}

// Document returns the report for files.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("gen", "Packet generators",
		"Packets a second that generators offer to a veth device, as fast as they go and at "+
			"requested rates, and how even the gaps are.")
	d.Set("window", fmt.Sprintf("%d ms", r.WindowMS))
	most := d.Chart(report.Chart{ID: "gen-most", Title: "As fast as it goes", Kind: report.Bar,
		Better: report.More,
		What: "Offered to the device, and what of it the receiver took: the rest found its ring " +
			"full, which costs a generator less than a packet that is taken.",
		Y: report.Axis{Label: "packets", Unit: "packets/s"}})
	rate := d.Chart(report.Chart{ID: "gen-rates", Title: "Achieved against requested",
		Kind: report.Line,
		X:    report.Axis{Label: "requested", Unit: "packets/s", Log: true},
		Y:    report.Axis{Label: "offered", Unit: "packets/s", Log: true}})
	off := d.Chart(report.Chart{ID: "gen-error", Title: "How far off the requested rate",
		Kind: report.Line, Better: report.Less,
		X: report.Axis{Label: "requested", Unit: "packets/s", Log: true},
		Y: report.Axis{Label: "error, absolute", Unit: "%", Log: true}})
	t := d.Table("gen-gaps", "Gaps between arrivals", report.Column{Name: "generator"},
		report.Column{Name: "requested", Unit: "packets/s"},
		report.Column{Name: "50 %", Unit: "ns"}, report.Column{Name: "90 %", Unit: "ns"},
		report.Column{Name: "99 %", Unit: "ns"},
		report.Column{Name: "99.9 %", Unit: "ns"}, report.Column{Name: "longest", Unit: "ns"})
	for _, e := range r.Generators {
		if e.Missing != "" {
			d.Refuse(e.Name, e.Missing)
		}
		for _, x := range e.Rates {
			offered, received := x.valid()
			switch {
			case x.PPS == nil:
				d.Refuse(fmt.Sprintf("%s at %.0f packets/s (0: as fast as it goes)", e.Name,
					x.Asked), strings.Join(x.Why, "; "))
			case x.Asked == 0:
				most.Add("offered", report.Measured(0, offered).Of(e.Name))
				most.Add("received", report.Measured(0, received).Of(e.Name))
			default:
				rate.Add(e.Name, report.Measured(x.Asked, offered))
				wrong := make([]float64, len(offered))
				for i, v := range offered {
					wrong[i] = math.Abs(v/x.Asked-1) * 100
				}
				off.Add(e.Name, report.Measured(x.Asked, wrong))
				g := x.Gaps
				t.Row(report.Text(e.Name), report.Number(x.Asked), report.Number(float64(g.P50)),
					report.Number(float64(g.P90)),
					report.Number(float64(g.P99)), report.Number(float64(g.P999)),
					report.Number(float64(g.Max)))
				x.histogram(d, e.Name)
			}
		}
	}
	r.sweeps(d)
	return d
}

// sweeps adds the charts of bursts and of copies.
func (r *Report) sweeps(d *report.Document) {
	pps := report.Axis{Label: "offered", Unit: "packets/s"}
	bursts := report.Axis{Label: "packets of a burst", Log: true}
	chart := func(id, title string, x, y report.Axis) *report.Chart {
		return d.Chart(report.Chart{ID: id, Title: title, X: x, Y: y})
	}
	var offered, gaps, copies *report.Chart
	for _, e := range r.Generators {
		for _, x := range e.Rates {
			got, _ := x.valid()
			asked := "as fast as it goes"
			if x.Asked > 0 {
				asked = quantity.Print(x.Asked, "packets/s")
			}
			switch {
			case x.PPS == nil:
			case e.Burst > 0:
				if offered == nil {
					offered = chart("gen-burst", "Packets a second by burst", bursts, pps)
					gaps = chart("gen-burst-gaps", "Gaps between arrivals by burst", bursts,
						report.Axis{Label: "gap", Unit: "ns", Log: true})
				}
				at := float64(e.Burst)
				offered.Add(asked, report.Measured(at, got))
				for _, g := range []struct {
					name string
					ns   int64
				}{{"50 %", x.Gaps.P50}, {"99 %", x.Gaps.P99}, {"99.9 %", x.Gaps.P999}} {
					gaps.Add(asked+", "+g.name, report.Value(at, float64(g.ns)))
				}
			case e.Copies > 0:
				if copies == nil {
					copies = chart("gen-copies", "Packets a second by copies of a frame",
						report.Axis{Label: "times that a frame goes", Log: true}, pps)
				}
				copies.Add(fmt.Sprintf("levee %s, %s", e.Path, asked),
					report.Measured(float64(e.Copies), got))
			}
		}
	}
}

// histogram adds the chart of the gaps at one rate.
func (r *Rate) histogram(d *report.Document, name string) {
	c := d.Chart(report.Chart{
		ID:    report.FileName(fmt.Sprintf("gen-gaps-%s-%.0f", name, r.Asked)),
		Kind:  report.Histogram,
		Title: fmt.Sprintf("%s: gaps at %s", name, quantity.Print(r.Asked, "packets/s")),
		X:     report.Axis{Label: "gap", Unit: "ns", Log: true}, Y: report.Axis{Label: "packets"},
	})
	for i, n := range r.hist.Log2 {
		if n > 0 {
			c.Add(name, report.Bin(float64(uint64(1)<<i), float64(uint64(2)<<i), float64(n)))
		}
	}
}

// Raw returns the report with all windows.
func (r *Report) Raw() any { return r }
