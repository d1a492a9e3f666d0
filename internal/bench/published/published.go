// Package published holds what the field has published about the speed of packet filters, with the
// sources, and lays it beside what was measured here.
//
// In goes a measured document, out come ratios: of two figures of the same source, and of the two
// figures measured here that stand for them. Never is a figure of one machine compared with a
// figure of another; absolutes are shown only to say that they do not carry over. A source is in
// figures.json only if its figures were looked up, and it says where.
package published

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"levee/internal/report"
)

//go:embed figures.json
var figures []byte

// Source is one publication.
type Source struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	By       string `json:"by"`
	Year     int    `json:"year"`
	Where    string `json:"where"`
	Hardware string `json:"hardware"` // as it states it
	Checked  string `json:"checked"`  // what was looked up
	Bench    string `json:"bench"`    // the measurement that it is like
	Unit     string `json:"unit"`
	// Figures in the order from slow to fast; Says is what it found where there is no figure to
	// compare.
	Figures []Figure `json:"figures"`
	Says    string   `json:"says"`
}

// Figure is a value that a source states.
type Figure struct {
	What  string   `json:"what"`
	Value float64  `json:"value"`
	Names []string `json:"names"` // that levee's measurements have for it
}

// Sources are all that are known.
var Sources = sync.OnceValue(func() []Source {
	var out []Source
	if err := json.Unmarshal(figures, &out); err != nil {
		panic("published: figures.json: " + err.Error()) // a test reads it
	}
	return out
})

// Comparison holds the ratios that published sources and a document of levee both have.
type Comparison struct {
	Ratios  []Ratio
	Sources []Source // of that measurement, with figures or without
	Missing []string // figures that have no counterpart in the document

	// the measured ratios are of time in the least third of rounds, not of medians of packets a
	// second
	least bool
}

// ofLeast says what such ratios are.
const ofLeast = "The measured ratios are of the mean time a packet in the third of each place's " +
	"rounds in which it was least, and least was disturbed."

// Ratio is the speed of the first of two things by that of the second, twice.
type Ratio struct {
	Source        *Source
	Series        string // of the document
	What, Base    string
	Published     float64
	Measured      report.Point // with the interval that the two intervals allow
	PublishedRate [2]float64   // the absolutes of the source
}

// Against finds the ratios of a document's chart of ratios, where it has one, or of its packets a
// second. In each source the slowest figure that is measured too is the base.
func Against(d *report.Document) *Comparison {
	c := &Comparison{}
	id := d.Bench + "-pps"
	if slices.ContainsFunc(d.Charts, func(c *report.Chart) bool {
		return c.ID == d.Bench+
			"-ratio"
	}) {
		id, c.least = d.Bench+"-ratio", true
	}
	all := Sources()
	for i := range all {
		s := &all[i]
		if s.Bench != d.Bench {
			continue
		}
		c.Sources = append(c.Sources, *s)
		missing := map[string]bool{}
		for _, chart := range d.Charts {
			if chart.ID != id {
				continue
			}
			for _, series := range chart.Series {
				c.compare(s, series, missing)
			}
		}
		for _, f := range s.Figures {
			if missing[f.What] {
				c.Missing = append(c.Missing, s.ID+": "+f.What)
			}
		}
	}
	return c
}

// compare adds the ratios of one source and one series.
func (c *Comparison) compare(s *Source, series *report.Series, missing map[string]bool) {
	var base *report.Point
	var baseFigure Figure
	for _, f := range s.Figures {
		p := find(series, f.Names)
		switch {
		case p == nil:
			missing[f.What] = true
		case base == nil:
			base, baseFigure = p, f
		default:
			c.Ratios = append(c.Ratios, Ratio{
				Source: s, Series: series.Name, What: f.What, Base: baseFigure.What,
				Published: f.Value / baseFigure.Value,
				Measured:  over(p, base), PublishedRate: [2]float64{f.Value, baseFigure.Value},
			})
		}
	}
}

// find returns the point of the first of the names that has a figure.
func find(series *report.Series, names []string) *report.Point {
	for _, name := range names {
		for i := range series.Points {
			if p := &series.Points[i]; p.Label == name && p.Y != nil && *p.Y > 0 && !p.Invalid {
				return p
			}
		}
	}
	return nil
}

// over returns the ratio of two points, from the least to the most that their intervals allow.
func over(p, base *report.Point) report.Point {
	out := report.Value(0, *p.Y / *base.Y)
	if p.Low != nil && base.Low != nil && *base.Low > 0 {
		out = out.Between(*p.Low / *base.High, *p.High / *base.Low)
	}
	out.AtLeast, out.AtMost = p.AtLeast || base.AtMost, p.AtMost || base.AtLeast
	return out
}

// Draw adds the comparison to a document: a chart of ratios, a table with the absolutes of the
// sources, and the note that these do not carry over.
func (c *Comparison) Draw(d *report.Document) {
	if len(c.Ratios) > 0 {
		chart := d.Chart(report.Chart{
			ID: d.Bench + "-published", Title: "Ratios: published and measured", Kind: report.Bar,
			Y: report.Axis{Label: "times the slowest of the same source", Log: true},
			What: "Each bar is a ratio within one source, or within this measurement. Absolute " +
				"figures of other machines do not carry over and are not drawn.",
		})
		table := d.Table(d.Bench+"-published-table", "Published figures and these",
			report.Column{Name: "source"}, report.Column{Name: "what"}, report.Column{Name: "over"},
			report.Column{Name: "series"}, report.Column{Name: "published ratio"},
			report.Column{Name: "measured ratio"},
			report.Column{Name: "published", Unit: "packets/s, does not carry over"})
		if c.least {
			chart.What += " " + ofLeast
		}
		for _, r := range c.Ratios {
			label := fmt.Sprintf("%s (%s)", r.What, r.Source.ID)
			if base := fmt.Sprintf(" %s is over %s.", r.Source.ID,
				r.Base); !strings.Contains(chart.What, base) {
				chart.What += base
			}
			if !slices.ContainsFunc(chart.Series, func(s *report.Series) bool {
				return s.Name == "published" &&
					slices.ContainsFunc(s.Points,
						func(p report.Point) bool { return p.Label == label })
			}) {
				chart.Add("published", report.Value(0, r.Published).Of(label))
			}
			chart.Add("measured here, "+r.Series, r.Measured.Of(label))
			table.Row(report.Text(r.Source.ID), report.Text(r.What), report.Text(r.Base),
				report.Text(r.Series), report.Number(r.Published),
				report.Quantity(*r.Measured.Y, "%s", r.measured()),
				report.Number(r.PublishedRate[0]))
		}
	}
	for _, s := range c.Sources {
		d.Notes = append(d.Notes, s.cite())
	}
	if len(c.Missing) > 0 {
		d.Refuse("published, without a figure here", strings.Join(c.Missing, "; "))
	}
}

func (r *Ratio) measured() string {
	sign := ""
	switch {
	case r.Measured.AtLeast && r.Measured.AtMost:
		sign = "~"
	case r.Measured.AtLeast:
		sign = ">="
	case r.Measured.AtMost:
		sign = "<="
	}
	if r.Measured.Low == nil {
		return fmt.Sprintf("%s%.3g", sign, *r.Measured.Y)
	}
	return fmt.Sprintf("%s%.3g (%.3g-%.3g)", sign, *r.Measured.Y, *r.Measured.Low, *r.Measured.High)
}

// cite returns a source in one line.
func (s *Source) cite() string {
	out := fmt.Sprintf("%s: %s, %q, %d, %s; %s (looked up: %s)", s.ID, s.By, s.Title, s.Year,
		s.Where, s.Hardware, s.Checked)
	if s.Says != "" {
		out += ". " + s.Says
	}
	return out
}

// Text prints the comparison for a person.
func (c *Comparison) Text() string {
	var b strings.Builder
	b.WriteString("published ratios beside these; a ratio is of two figures of one source\n")
	for _, r := range c.Ratios {
		fmt.Fprintf(&b, "  %s, %s: %s over %s: published %.3g, measured %s\n", r.Source.ID,
			r.Series, r.What, r.Base, r.Published, r.measured())
	}
	if c.least && len(c.Ratios) > 0 {
		b.WriteString("  " + ofLeast + "\n")
	}
	if len(c.Ratios) == 0 {
		b.WriteString("  no source has two figures that were measured here\n")
	}
	for _, m := range c.Missing {
		fmt.Fprintf(&b, "  %s: no figure here that stands for it\n", m)
	}
	for _, s := range c.Sources {
		fmt.Fprintf(&b, "  %s\n", s.cite())
	}
	b.WriteString("absolute figures of other machines, cards and kernels do not carry over: none " +
		"is compared\n")
	return b.String()
}
