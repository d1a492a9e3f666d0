package report

import (
	"image/color"
	"math"
	"slices"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// drawing is a plot.Plotter for one chart: everything inside the axes.
type drawing struct {
	*Chart
	logX, logY bool
	labels     []string // of bars, from the top
	yLow       float64  // where bars begin
}

// newDrawing sets the axes of p.
func newDrawing(c *Chart, p *plot.Plot) (*drawing, error) {
	g := &drawing{Chart: c, logX: c.X.Log && c.Kind != Bar, logY: c.Y.Log}
	var xs, ys []float64
	for _, s := range c.Series {
		for i := range s.Points {
			pt := &s.Points[i]
			xs = append(xs, pt.X)
			if pt.XTo != nil {
				xs = append(xs, *pt.XTo)
			}
			for _, v := range []*float64{pt.Y, pt.Low, pt.High} {
				if v != nil {
					ys = append(ys, *v)
				}
			}
		}
	}
	for _, m := range c.Marks {
		xs = append(xs, m.From, m.To)
	}
	value, other := &p.Y, &p.X
	if c.Kind == Bar {
		value, other = &p.X, &p.Y
	}
	room := 0.06
	if c.Kind == Bar {
		room = 0.2
	}
	value.Min, value.Max = valueRange(ys, g.logY, room, c.Kind == Bar)
	g.yLow = value.Min
	styleAxis(value, c.Y, g.logY)
	if c.Kind == Bar {
		g.labels = c.labels()
		if len(g.labels) > maxBars {
			g.labels = g.labels[:maxBars]
		}
		g.barAxis(other)
		return g, nil
	}
	pad := 0.03
	if c.Kind == Histogram {
		pad = 0
	}
	other.Min, other.Max = placeRange(xs, g.logX, pad)
	styleAxis(other, c.X, g.logX)
	return g, nil
}

// valueRange begins at zero, or on a logarithmic axis below the smallest.
func valueRange(values []float64, log bool, room float64, bars bool) (low, high float64) {
	low, high = span(values, log)
	if !log {
		low = min(0, low)
		if high <= low {
			high = low + 1
		}
		return low * 1.08, low + (high-low)*(1+room)
	}
	high *= math.Pow(max(high/low, 2), room)
	if bars {
		return math.Pow10(int(math.Floor(math.Log10(low) - 0.05))), high
	}
	return low / 1.3, high * 1.3
}

func placeRange(values []float64, log bool, pad float64) (low, high float64) {
	low, high = span(values, log)
	if log {
		if low == high {
			return low / 2, high * 2
		}
		f := math.Pow(high/low, pad)
		return low / f, high * f
	}
	if low == high {
		return low - 0.5, high + 0.5
	}
	return low - (high-low)*pad, high + (high-low)*pad
}

// span is the smallest and the largest of the values that an axis can hold.
func span(values []float64, log bool) (low, high float64) {
	usable := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return log && v <= 0 })
	if len(usable) == 0 {
		return 1, 10
	}
	return slices.Min(usable), slices.Max(usable)
}

func styleAxis(a *plot.Axis, named Axis, log bool) {
	a.Label.Text = printable(named.Label)
	if _, isTime := secondsOf[named.Unit]; !isTime && named.Unit != "" && named.Unit != "bytes" {
		a.Label.Text += " (" + printable(named.Unit) + ")"
	}
	a.Label.TextStyle.Font = textStyle(10, softColour).Font
	a.Label.TextStyle.Color = softColour
	a.Tick.Label.Font = textStyle(9, softColour).Font
	a.Tick.Label.Color = softColour
	a.LineStyle = draw.LineStyle{Color: gridColour, Width: 1}
	a.Tick.LineStyle = draw.LineStyle{Color: gridColour, Width: 1}
	a.Tick.Length, a.Padding = 3, 0
	a.Tick.Marker = ticks{log, named.Unit}
	if log {
		a.Scale = plot.LogScale{}
	}
}

// ticks are round values with their unit's prefix.
type ticks struct {
	log  bool
	unit string
}

func (t ticks) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	if !t.log {
		for _, v := range roundSteps(low, high) {
			out = append(out, plot.Tick{Value: v, Label: short(v, t.unit)})
		}
		return out
	}
	decades := math.Log10(high / low)
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); v >= low && v <= high && (m == 1 || decades < 2) {
				out = append(out, plot.Tick{Value: v, Label: short(v, t.unit)})
			}
		}
	}
	return out
}

// roundSteps are about seven multiples of 1, 2 or 5.
func roundSteps(low, high float64) []float64 {
	size := math.Pow10(int(math.Floor(math.Log10((high - low) / 7))))
	for _, m := range []float64{1, 2, 5, 10} {
		if (high-low)/(size*m) <= 8 {
			size *= m
			break
		}
	}
	var out []float64
	for n := math.Ceil(low / size); n*size <= high && len(out) < 20; n++ {
		out = append(out, n*size)
	}
	return out
}

// labels are those of bars in the order in which they appear.
func (c *Chart) labels() []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range c.Series {
		for _, p := range s.Points {
			if !seen[p.Label] {
				seen[p.Label] = true
				out = append(out, p.Label)
			}
		}
	}
	return out
}

// barThick and barRow are the height of one bar and of a label's bars together.
func (c *Chart) barThick() vg.Length {
	if len(c.Series) > 1 {
		return 12
	}
	return 17
}

func (c *Chart) barRow() vg.Length { return vg.Length(len(c.Series))*c.barThick() + 12 }

func (g *drawing) barAxis(a *plot.Axis) {
	styleAxis(a, Axis{}, false)
	a.Min, a.Max = 0.5-float64(len(g.labels)), 0.5
	a.LineStyle.Width, a.Tick.Length = 0, 0
	style := textStyle(9, softColour)
	var names []plot.Tick
	for i, l := range g.labels {
		names = append(names, plot.Tick{Value: -float64(i), Label: fitText(style, l, pictureWidth/3) + "  "})
	}
	a.Tick.Marker = plot.ConstantTicks(names)
}

// Plot draws into the area between the axes.
func (g *drawing) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	g.grid(c, p)
	switch g.Kind {
	case Bar:
		g.bars(c, x, y)
	case Histogram:
		for i, s := range g.Series {
			g.columns(c, x, y, s, i)
		}
	default:
		g.marks(c, x)
		for i, s := range g.Series {
			g.line(c, x, y, s, i)
		}
	}
}

func (g *drawing) grid(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := draw.LineStyle{Color: gridColour, Width: 0.7}
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		c.StrokeLine2(style, x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
	}
	if g.Kind == Bar {
		return
	}
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		c.StrokeLine2(style, c.Min.X, y(t.Value), c.Max.X, y(t.Value))
	}
}

func (g *drawing) marks(c draw.Canvas, x func(float64) vg.Length) {
	for _, m := range g.Marks {
		if g.logX && m.From <= 0 || m.To < m.From {
			continue
		}
		from, to := x(m.From), max(x(m.To), x(m.From)+1)
		c.FillPolygon(color.NRGBA{R: 0x1b, G: 0x1f, B: 0x24, A: 16}, []vg.Point{{X: from, Y: c.Min.Y}, {X: to, Y: c.Min.Y}, {X: to, Y: c.Max.Y}, {X: from, Y: c.Max.Y}})
		style := textStyle(9, softColour)
		c.FillText(style, vg.Point{X: from + 4, Y: c.Max.Y - 11}, fitText(style, m.Label, c.Max.X-from-4))
	}
}

// fits tells whether a point has a place on the axes.
func (g *drawing) fits(p *Point) bool {
	return p.Y != nil && (!g.logY || *p.Y > 0) && (!g.logX || p.X > 0)
}

func (g *drawing) line(c draw.Canvas, x, y func(float64) vg.Length, s *Series, i int) {
	points := slices.Clone(s.Points)
	slices.SortStableFunc(points, func(a, b Point) int {
		switch {
		case a.X < b.X:
			return -1
		case a.X > b.X:
			return 1
		}
		return 0
	})
	style := draw.LineStyle{Color: colourOf(i), Width: 1.6}
	if i >= len(palette) {
		style.Dashes = []vg.Length{5, 3}
	}
	var run []vg.Point
	flush := func() {
		if len(run) > 1 {
			c.StrokeLines(style, run)
		}
		run = nil
	}
	for j := range points {
		p := &points[j]
		if !g.fits(p) {
			flush()
			if !g.logX || p.X > 0 {
				c.DrawGlyph(draw.GlyphStyle{Color: colourOf(i), Radius: 3, Shape: draw.CrossGlyph{}}, vg.Point{X: x(p.X), Y: c.Min.Y + 6})
			}
			continue
		}
		at := vg.Point{X: x(p.X), Y: y(*p.Y)}
		run = append(run, at)
		if len(points) > 200 {
			continue
		}
		if p.Low != nil {
			g.whisker(c, style.Color, at.X, y(g.above(*p.Low)), y(*p.High), false)
		}
		c.DrawGlyph(draw.GlyphStyle{Color: colourOf(i), Radius: 2.4, Shape: draw.CircleGlyph{}}, at)
		if p.Outlier || p.Invalid {
			c.DrawGlyph(draw.GlyphStyle{Color: colourOf(i), Radius: 5, Shape: draw.RingGlyph{}}, at)
		}
		if p.AtLeast {
			c.DrawGlyph(draw.GlyphStyle{Color: colourOf(i), Radius: 3.5, Shape: draw.PyramidGlyph{}}, vg.Point{X: at.X, Y: at.Y + 8})
		}
	}
	flush()
}

// above keeps the end of an interval on a logarithmic axis.
func (g *drawing) above(v float64) float64 {
	if g.logY {
		return max(v, g.yLow)
	}
	return v
}

// whisker is an interval with its ends; flat ones lie along a bar.
func (g *drawing) whisker(c draw.Canvas, colour color.Color, at, from, to vg.Length, flat bool) {
	style := draw.LineStyle{Color: colour, Width: 1}
	line := func(x1, y1, x2, y2 vg.Length) {
		if flat {
			x1, y1, x2, y2 = y1, x1, y2, x2
		}
		c.StrokeLine2(style, x1, y1, x2, y2)
	}
	line(at, from, at, to)
	line(at-2.5, from, at+2.5, from)
	line(at-2.5, to, at+2.5, to)
}

func (g *drawing) columns(c draw.Canvas, x, y func(float64) vg.Length, s *Series, i int) {
	fill := colourOf(i)
	fill.A = 150
	for j := range s.Points {
		p := &s.Points[j]
		if p.Y == nil || g.logY && *p.Y <= 0 || g.logX && *p.XTo <= 0 {
			continue
		}
		from := c.Min.X
		if !g.logX || p.X > 0 {
			from = x(p.X)
		}
		foot, top := y(g.above(0)), y(*p.Y)
		c.FillPolygon(fill, []vg.Point{{X: from, Y: foot}, {X: x(*p.XTo), Y: foot}, {X: x(*p.XTo), Y: top}, {X: from, Y: top}})
	}
}

func (g *drawing) bars(c draw.Canvas, x, y func(float64) vg.Length) {
	thick := g.barThick()
	for i, s := range g.Series {
		for j := range s.Points {
			p := &s.Points[j]
			row := slices.Index(g.labels, p.Label)
			if row < 0 {
				continue
			}
			g.bar(c, x, p, y(-float64(row))-(vg.Length(i)-vg.Length(len(g.Series)-1)/2)*thick, thick, i)
		}
	}
}

func (g *drawing) bar(c draw.Canvas, x func(float64) vg.Length, p *Point, middle, thick vg.Length, i int) {
	foot := x(g.above(0))
	if !g.fits(p) {
		style := textStyle(9, softColour)
		c.FillText(style, vg.Point{X: foot + 4, Y: middle - 3}, fitText(style, "no figure: "+p.Why, c.Max.X-foot-4))
		return
	}
	end, half := x(*p.Y), thick/2-1
	fill := colourOf(i)
	fill.A = 217
	c.FillPolygon(fill, []vg.Point{{X: foot, Y: middle - half}, {X: end, Y: middle - half}, {X: end, Y: middle + half}, {X: foot, Y: middle + half}})
	if p.Low != nil {
		g.whisker(c, inkColour, middle, x(g.above(*p.Low)), x(*p.High), true)
		end = max(end, x(*p.High))
	}
	sign := map[string]string{"at least": "≥ ", "at most": "≤ ", "unknown": "~ "}[p.bound()]
	style := textStyle(9, inkColour)
	style.Font.Weight = xfont.WeightBold
	text := sign + short(round(*p.Y, 3), g.Y.Unit)
	c.FillText(style, vg.Point{X: min(end+5, c.Max.X-style.Width(text)), Y: middle - 3}, text)
}
