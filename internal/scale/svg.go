package scale

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"

	"levee/internal/workload"
)

// Plot is a picture of some series over logarithmic axes.
type Plot struct {
	Name   string // of the file, without .svg
	title  string
	x, y   string
	series []series
}

type series struct {
	name   string
	points []point
}

// point has the interval of y, equal to y where there is none.
type point struct{ x, y, lo, hi float64 }

// Size of a plot and its margins, in pixels.
const (
	plotWidth, plotHeight  = 860, 480
	left, right, top, foot = 70, 230, 40, 55
)

// colours are told apart also by those who see no red or green (Okabe and Ito, "Color Universal Design").
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933", "#882255"}

// add puts a point into the series of that name. What cannot be on a logarithmic axis is left out.
func (p *Plot) add(name string, x float64, f *Figure) {
	if f == nil || f.Median <= 0 || x <= 0 {
		return
	}
	lo := f.Interval[0]
	if lo <= 0 {
		lo = f.Median
	}
	i := slices.IndexFunc(p.series, func(s series) bool { return s.name == name })
	if i < 0 {
		i = len(p.series)
		p.series = append(p.series, series{name: name})
	}
	p.series[i].points = append(p.series[i].points, point{x, f.Median, lo, f.Interval[1]})
}

// axis maps a range of powers of ten to pixels.
type axis struct {
	from, to int // exponents
	start    float64
	length   float64 // negative for upwards
}

func (a axis) at(v float64) float64 {
	return a.start + a.length*(math.Log10(v)-float64(a.from))/float64(a.to-a.from)
}

// decades is the range of powers of ten around values.
func decades(values []float64) (from, to int) {
	from = int(math.Floor(math.Log10(slices.Min(values))))
	to = int(math.Ceil(math.Log10(slices.Max(values))))
	return from, max(to, from+1)
}

// SVG draws the plot; nil if there is nothing to draw.
func (p *Plot) SVG() []byte {
	var xs, ys []float64
	for _, s := range p.series {
		for _, q := range s.points {
			xs, ys = append(xs, q.x), append(ys, q.lo, q.hi)
		}
	}
	if len(xs) == 0 {
		return nil
	}
	x := axis{start: left, length: plotWidth - left - right}
	y := axis{start: plotHeight - foot, length: -(plotHeight - top - foot)}
	x.from, x.to = decades(xs)
	y.from, y.to = decades(ys)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="13">`+"\n", plotWidth, plotHeight)
	b.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	label(&b, left, 24, "start", p.title)
	label(&b, left+x.length/2, plotHeight-12, "middle", p.x)
	fmt.Fprintf(&b, `<g transform="translate(18,%.0f) rotate(-90)">`, y.start+y.length/2)
	label(&b, 0, 0, "middle", p.y)
	b.WriteString("</g>\n")
	p.grid(&b, x, y)
	for i, s := range p.series {
		s.draw(&b, x, y, colours[i%len(colours)], float64(top+20*i))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// label writes text; names of files and tools may hold anything.
func label(b *bytes.Buffer, x, y float64, anchor, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(b, []byte(text)) // a buffer takes everything
	b.WriteString("</text>\n")
}

func (p *Plot) grid(b *bytes.Buffer, x, y axis) {
	line := func(x1, y1, x2, y2 float64) {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#dddddd"/>`+"\n", x1, y1, x2, y2)
	}
	for e := x.from; e <= x.to; e++ {
		at := x.at(math.Pow10(e))
		line(at, y.start, at, y.start+y.length)
		label(b, at, y.start+18, "middle", power(e))
	}
	for e := y.from; e <= y.to; e++ {
		at := y.at(math.Pow10(e))
		line(x.start, at, x.start+x.length, at)
		label(b, x.start-6, at+4, "end", power(e))
	}
}

// power is 10^e as people write it.
func power(e int) string {
	if e < 0 {
		return fmt.Sprintf("%.*f", -e, math.Pow10(e))
	}
	zeros := strings.Repeat("0", e%3)
	return "1" + zeros + []string{"", " K", " M", " G", " T"}[min(e/3, 4)]
}

func (s series) draw(b *bytes.Buffer, x, y axis, colour string, legend float64) {
	slices.SortFunc(s.points, func(a, b point) int { return int(math.Copysign(1, a.x-b.x)) })
	var path []string
	for _, q := range s.points {
		px, py := x.at(q.x), y.at(q.y)
		path = append(path, fmt.Sprintf("%.1f,%.1f", px, py))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", px, py, colour)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", px, y.at(q.lo), px, y.at(q.hi), colour)
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), colour)
	at := float64(plotWidth - right + 16)
	fmt.Fprintf(b, `<rect x="%.0f" y="%.0f" width="12" height="12" fill="%s"/>`+"\n", at, legend, colour)
	label(b, at+18, legend+11, "start", s.name)
}

// Plots are look-ups, memory and packets a second over the number of entries.
func (r *SetsReport) Plots() []*Plot {
	var out []*Plot
	plot := func(name, title, y string) *Plot {
		i := slices.IndexFunc(out, func(p *Plot) bool { return p.Name == name })
		if i < 0 {
			i = len(out)
			out = append(out, &Plot{Name: name, title: title, x: "entries", y: y})
		}
		return out[i]
	}
	for _, c := range r.Cases {
		kind := fileName(c.Family + "-" + c.Entries)
		what := c.Family + " " + c.Entries
		for _, s := range c.Structures {
			if s.Missing != "" {
				continue
			}
			for _, l := range s.Lookups {
				if l.Skew == workload.Uniform {
					plot(fmt.Sprintf("sets-lookup-%s-%s", kind, l.Kind), fmt.Sprintf("%s: a look-up, %s", what, l.Kind), "ns above the loop").add(s.Name, float64(c.Size), l.Stream)
				}
			}
			plot("sets-bytes-"+kind, what+": memory", "bytes an entry").add(s.Name, float64(c.Size), just(s.PerEntry))
		}
		for _, t := range c.Lab {
			plot("sets-pps-"+kind, what+": packets a second of one core", "packets a second").add(t.Name, float64(c.Size), t.figure())
			plot("sets-load-"+kind, what+": time to load", "ms").add(t.Name, float64(c.Size), t.LoadNs.in(1e6))
		}
	}
	return out
}

// Plots are ns a packet, packets a second and time to load over the number of rules.
func (r *RulesReport) Plots() []*Plot {
	ns := &Plot{Name: "rules-ns", title: "levee: a packet, above an empty program", x: "rules", y: "ns"}
	out := []*Plot{ns}
	var shapes []string
	for _, c := range r.Cases {
		if c.Levee != nil {
			ns.add(c.Shape, float64(c.Size), c.Levee.Uniform)
		}
		i := slices.Index(shapes, c.Shape)
		if i < 0 {
			i = len(shapes)
			shapes = append(shapes, c.Shape)
			out = append(out,
				&Plot{Name: "rules-pps-" + fileName(c.Shape), title: c.Shape + " rules: packets a second of one core", x: "rules", y: "packets a second"},
				&Plot{Name: "rules-load-" + fileName(c.Shape), title: c.Shape + " rules: time to load", x: "rules", y: "ms"})
		}
		for _, t := range c.Lab {
			out[1+2*i].add(t.Name, float64(c.Size), t.figure())
			out[2+2*i].add(t.Name, float64(c.Size), t.LoadNs.in(1e6))
		}
	}
	return out
}

func just(v float64) *Figure { return &Figure{v, [2]float64{v, v}} }

// figure is packets a second, nil where there is no figure.
func (t *Tool) figure() *Figure {
	if t.MedianPPS == nil {
		return nil
	}
	return &Figure{*t.MedianPPS, *t.Interval}
}

// in is the figure in another unit.
func (f *Figure) in(unit float64) *Figure {
	if f == nil {
		return nil
	}
	return &Figure{f.Median / unit, [2]float64{f.Interval[0] / unit, f.Interval[1] / unit}}
}

// fileName keeps letters, digits, dots and hyphens.
func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s)
}
