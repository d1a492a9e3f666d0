package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"sync"

	"levee/internal/host"
	"levee/internal/quantity"
	"levee/web"
)

// maxListed is the number of points of a chart that the page lists as a table as well.
const maxListed = 400

// maxPictured is the number of points of a chart that the page carries as a picture too.
const maxPictured = 20000

var pageTemplate = sync.OnceValues(func() (*template.Template, error) {
	return template.New("report").Parse(web.ReportPage)
})

// pageChart is a chart as the template wants it.
type pageChart struct {
	ID, Title, What, XHead, YHead string
	// Picture is the chart as SVG, for whoever wants to keep it; empty where it has no points.
	Picture string
	Points  []pagePoint
}

// pageTable is a table, and which of its columns are numbers.
type pageTable struct {
	*Table
	Heads []pageHead
}

type pageHead struct {
	Column
	Number bool
}

type pagePoint struct{ Series, X, Y, Interval, Remarks string }

// HTML writes one page that needs nothing else: charts, their figures as tables, what has no figure
// and why, and the machine. It works from a file, with no network, and a policy in the page (CSP)
// lets the browser run and load nothing but what is in it.
func (d *Document) HTML(w io.Writer) error {
	d.settle()
	if err := d.check(); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	tmpl, err := pageTemplate()
	if err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	// escapes <, > and &, so that no name ends the script that holds it
	data, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	v := struct {
		Doc                            *Document
		Headline                       []string
		Policy, Started, Date, Machine string
		Contents, Charts               []pageChart
		Tables                         []pageTable
		Facts                          []Setting
		UPlotStyle, Style              template.CSS
		UPlot, Script                  template.JS
		Data                           template.JS
		License                        string
	}{
		Doc: d, Headline: d.Headline(), Policy: contentPolicy(),
		Started: d.Started.UTC().Format("2006-01-02T15:04:05Z"),
		Date:    d.Started.UTC().Format("2 January 2006, 15:04 UTC"),
		Machine: d.Machine.String(), Facts: facts(d.Setup, &d.Machine),
		UPlotStyle: template.CSS(web.UPlotStyle), Style: template.CSS(web.ReportStyle),
		UPlot: template.JS(web.UPlot), Script: template.JS(web.ReportScript),
		Data: template.JS(data), License: web.UPlotLicense,
	}
	for _, c := range d.Charts {
		chart := c.page()
		if c.Drawable() && c.points() <= maxPictured {
			if svg, err := d.SVG(c); err == nil { // a page must not die of a picture
				chart.Picture = string(svg)
			}
		}
		v.Charts = append(v.Charts, chart)
	}
	for _, t := range d.Tables {
		v.Tables = append(v.Tables, t.page())
	}
	if len(v.Charts) > 3 {
		v.Contents = v.Charts
	}
	var out bytes.Buffer // nothing is written of a page that fails in its midst
	if err := tmpl.Execute(&out, v); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	_, err = out.WriteTo(w)
	return err
}

// contentPolicy allows the page's own scripts and styles by their hashes, and nothing else
// (https://www.w3.org/TR/CSP3/).
func contentPolicy() string {
	hash := func(texts ...string) string {
		var out []string
		for _, t := range texts {
			sum := sha256.Sum256([]byte(t))
			out = append(out, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
		}
		return strings.Join(out, " ")
	}
	return "default-src 'none'; script-src " + hash(web.UPlot,
		web.ReportScript) + "; style-src " + hash(web.UPlotStyle, web.ReportStyle) +
		"; img-src data:; base-uri 'none'; form-action 'none'"
}

// page lists the figures of a chart in words.
func (c *Chart) page() pageChart {
	out := pageChart{ID: c.ID, Title: c.Title, What: c.What, XHead: c.X.Label, YHead: c.Y.Label}
	if out.XHead == "" {
		out.XHead = "Of"
	}
	if out.YHead == "" {
		out.YHead = "Value"
	}
	if c.points() > maxListed {
		return out
	}
	for _, s := range c.Series {
		for i := range s.Points {
			p := &s.Points[i]
			row := pagePoint{Series: s.Name, X: p.place(c), Y: "no figure", Remarks: p.remarks()}
			if p.Y != nil {
				row.Y = strings.TrimSpace(p.bound() + " " + quantity.Print(*p.Y, c.Y.Unit))
			}
			if p.Low != nil {
				row.Interval = quantity.Print(*p.Low, c.Y.Unit) + " to " +
					quantity.Print(*p.High, c.Y.Unit)
			}
			if s := p.Spread; s != nil {
				row.Remarks = strings.TrimPrefix(row.Remarks+"; "+s.text(c.Y.Unit), "; ")
			}
			out.Points = append(out.Points, row)
		}
	}
	return out
}

// text returns a spread in words.
func (s *Spread) text(unit string) string {
	return fmt.Sprintf("half from %s to %s, nine of ten from %s to %s",
		quantity.Print(s.P25, unit), quantity.Print(s.P75, unit), quantity.Print(s.P5, unit),
		quantity.Print(s.P95, unit))
}

// points returns how many points a chart has.
func (c *Chart) points() int {
	total := 0
	for _, s := range c.Series {
		total += len(s.Points)
	}
	return total
}

func (t *Table) page() pageTable {
	out := pageTable{Table: t}
	for i, c := range t.Columns {
		numbers := slices.ContainsFunc(t.Rows, func(row []Cell) bool { return row[i].Value != nil })
		out.Heads = append(out.Heads, pageHead{c, numbers})
	}
	return out
}

// place names where a point is.
func (p *Point) place(c *Chart) string {
	if c.Kind.labelled() {
		return p.Label
	}
	x := quantity.Print(p.X, c.X.Unit)
	if p.XTo != nil {
		x += " to " + quantity.Print(*p.XTo, c.X.Unit)
	}
	if p.Label != "" {
		x += ", " + p.Label
	}
	return x
}

func (p *Point) remarks() string {
	var out []string
	if n := len(p.Rounds); n > 1 {
		out = append(out, fmt.Sprintf("%d rounds", n))
		if far := count(Outliers(p.Rounds)); far > 0 {
			out = append(out, fmt.Sprintf("%d outside (kept)", far))
		}
	}
	if p.Outlier {
		out = append(out, "outlier (kept)")
	}
	if p.Why != "" {
		out = append(out, p.Why)
	}
	return strings.Join(out, "; ")
}

func count(list []bool) int {
	n := 0
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
}

// facts returns what figures depend on, without what is not known.
func facts(setup []Setting, m *host.Info) []Setting {
	out := slices.Clone(setup)
	for _, f := range m.Facts() {
		out = append(out, Setting{Name: f.Name, Value: f.Value})
	}
	return slices.DeleteFunc(out, func(s Setting) bool { return s.Value == "" })
}
