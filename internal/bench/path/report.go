package path

import (
	"fmt"
	"io"

	"levee/internal/bench"
	"levee/internal/report"
)

// Report is the outcome.
type Report struct {
	bench.Head
	Rate    float64 // requests a second
	Targets []*Target
}

var caveats = []string{
	"round trips of echo requests: from the call that sends to the time at which the kernel saw " +
		"the answer; a host may answer them later than it forwards",
	"a byte goes there and back: its time is that of all links of both ways together, and the " +
		"bandwidth is that of a single link in their place",
	"requests go at times of a Poisson process (RFC 2330), all sizes and hosts in one random order",
	"a shaper that lets a burst pass lets single packets pass: what it bounds does not show",
}

// Lacking returns the targets without a figure.
func (r *Report) Lacking() (names []string) {
	for _, t := range r.Targets {
		if t.Fit == nil {
			names = append(names, t.Name())
		}
	}
	return names
}

// Text prints the report for a person.
func (r *Report) Text(w io.Writer) error {
	t := r.Head.Text(fmt.Sprintf("; %d requests of each size, %g a second", r.Rounds, r.Rate),
		"; these are the answers until then")
	t.Table(0, func(w io.Writer) {
		fmt.Fprintln(w, "\nhost\tany packet\teach byte, there and back\tas one link\toff the "+
			"line at most\tanswers")
		for _, x := range r.Targets {
			sent, received := x.counts()
			if x.Fit == nil {
				fmt.Fprintf(w, "%s\t-\t-\t-\t-\t%d of %d\n", x.Name(), received, sent)
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d of %d\n", x.Name(), bench.Nanos(x.Fit.Base),
				x.Fit.perByte(), x.Fit.link(), bench.Nanos(x.Fit.Left), received, sent)
		}
	})
	for _, x := range r.Targets {
		if x.Fit == nil {
			t.Printf("%s: no figure: %s\n", x.Name(), x.Why)
		}
	}
	t.Table(0, func(w io.Writer) {
		fmt.Fprintln(w, "\nhost\tbytes\tleast\tmedian\tanswers")
		for _, x := range r.Targets {
			for _, s := range x.Sizes {
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d of %d%s\n", x.Name(), s.Bytes,
					bench.Nanos(s.Least), bench.Nanos(s.Median), s.Received, s.Sent, s.why())
			}
		}
	})
	t.Printf("\n")
	return t.End(w, &r.Head)
}

func (t *Target) counts() (sent, received int) {
	for _, s := range t.Sizes {
		sent, received = sent+s.Sent, received+s.Received
	}
	return sent, received
}

func (s *Size) why() string {
	if s.Why == "" {
		return ""
	}
	return ": " + s.Why
}

// perByte returns the time of a byte with its interval, none of which is below 0.
func (f *Fit) perByte() string {
	return fmt.Sprintf("%.3g ns (%.3g to %.3g)", max(0, f.Byte), max(0, f.Low), max(0, f.High))
}

// link returns the bandwidth of the one link in whose place all are; a line that may be level says
// only how much that is at least.
func (f *Fit) link() string {
	if f.Low <= 0 {
		return "at least " + bits(f.High)
	}
	return bits(f.Byte)
}

// bits returns a bandwidth: a byte takes so many ns there and back.
func bits(ns float64) string {
	v := 2 * 8e9 / ns
	for _, u := range []struct {
		unit string
		per  float64
	}{{"Tbit/s", 1e12}, {"Gbit/s", 1e9}, {"Mbit/s", 1e6}} {
		if v >= u.per {
			return fmt.Sprintf("%.3g %s", v/u.per, u.unit)
		}
	}
	return fmt.Sprintf("%.3g kbit/s", v/1e3)
}

// Document returns the report for files: charts of the least and the median round trips, and a
// table of the lines.
func (r *Report) Document() *report.Document {
	d := r.Head.Document("path", "Round trips against the size of packets",
		"The least round trip of echo requests by their size, and a line through it: what any "+
			"packet takes, and what each byte adds.")
	d.Set("rate", fmt.Sprint(r.Rate))
	for _, c := range []struct {
		id, title string
		of        func(*Size) float64
	}{
		{"path-least", "The least round trip", func(s *Size) float64 { return s.Least }},
		{"path-median", "The median round trip", func(s *Size) float64 { return s.Median }},
	} {
		chart := d.Chart(report.Chart{ID: c.id, Title: c.title,
			X: report.Axis{Label: "bytes of the IP packet"},
			Y: report.Axis{Label: "round trip", Unit: "ns"}, Better: report.Less})
		for _, t := range r.Targets {
			for _, s := range t.Sizes {
				if s.Received == 0 {
					chart.Add(t.Name(), report.Gap(float64(s.Bytes), s.Why))
					continue
				}
				chart.Add(t.Name(), report.Value(float64(s.Bytes), c.of(s)))
			}
			if t.Fit != nil && c.id == "path-least" {
				for _, s := range []*Size{t.Sizes[0], t.Sizes[len(t.Sizes)-1]} {
					x := float64(s.Bytes)
					chart.Add(t.Name()+", line", report.Value(x, t.Fit.Base+t.Fit.Byte*x))
				}
			}
		}
	}
	table := d.Table("path-lines", "Lines through the least round trips",
		report.Column{Name: "host"}, report.Column{Name: "any packet", Unit: "ns"},
		report.Column{Name: "each byte, there and back", Unit: "ns"},
		report.Column{Name: "as one link"}, report.Column{Name: "off the line at most", Unit: "ns"})
	for _, t := range r.Targets {
		if t.Fit == nil {
			d.Refuse(t.Name(), t.Why)
			continue
		}
		table.Row(report.Text(t.Name()), report.Number(t.Fit.Base),
			report.Quantity(t.Fit.Byte, "%s", t.Fit.perByte()), report.Text(t.Fit.link()),
			report.Number(t.Fit.Left))
	}
	return d
}
