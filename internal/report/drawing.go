package report

import (
	"cmp"
	"image/color"
	"math"
	"slices"

	"levee/internal/quantity"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// axis is a range of values, and where it lies on the canvas.
type axis struct {
	low, high float64
	log       bool
	title     string
	ticks     []tick
	from, to  vg.Length
}

type tick struct {
	at    float64
	label string
}

// at returns the place of a value, which is above zero on a logarithmic axis.
func (a *axis) at(v float64) vg.Length {
	share := (v - a.low) / (a.high - a.low)
	if a.log {
		share = math.Log(v/a.low) / math.Log(a.high/a.low)
	}
	return a.from + vg.Length(share)*(a.to-a.from)
}

// drawing is one chart with its axes.
type drawing struct {
	*Chart
	x, y       axis // across and upwards: of bars, values go across
	logX, logY bool
	labels     []string // of bars, from the top
	yLow       float64  // where bars begin
}

func newDrawing(c *Chart) *drawing {
	g := &drawing{Chart: c, logX: c.X.Log && !c.Kind.labelled(), logY: c.Y.Log}
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
			if pt.Spread != nil {
				ys = append(ys, pt.Spread.P5, pt.Spread.P95)
			}
		}
	}
	for _, m := range c.Marks {
		xs = append(xs, m.From, m.To)
	}
	value, other := &g.y, &g.x
	room := 0.06
	if c.Kind.labelled() {
		value, other, room = &g.x, &g.y, 0.2
	}
	value.low, value.high = valueRange(ys, g.logY, room, c.Kind.labelled())
	value.name(c.Y, g.logY)
	g.yLow = value.low
	if c.Kind.labelled() {
		g.labels = c.labels()
		g.labels = g.labels[:min(len(g.labels), maxBars)]
		g.barAxis(other)
		return g
	}
	pad := 0.03
	if c.Kind == Histogram {
		pad = 0
	}
	other.low, other.high = placeRange(xs, g.logX, pad)
	other.name(c.X, g.logX)
	return g
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

// span returns the smallest and the largest of the values that an axis can hold.
func span(values []float64, log bool) (low, high float64) {
	usable := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return log && v <= 0 })
	if len(usable) == 0 {
		return 1, 10
	}
	return slices.Min(usable), slices.Max(usable)
}

// name gives an axis its title and its ticks: round values with their unit's prefix.
func (a *axis) name(named Axis, log bool) {
	a.log, a.title = log, printable(named.Label)
	if named.Unit != "" && !quantity.Scales(named.Unit) {
		a.title += " (" + printable(named.Unit) + ")"
	}
	if !log {
		for _, v := range roundSteps(a.low, a.high) {
			a.ticks = append(a.ticks, tick{v, quantity.Short(v, named.Unit)})
		}
		return
	}
	decades := math.Log10(a.high / a.low)
	every := math.Ceil(decades / 10) // of many powers of ten only some
	for e := math.Floor(math.Log10(a.low)); e <= math.Ceil(math.Log10(a.high)); e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v >= a.low && v <= a.high && (m == 1 && math.Mod(e, every) == 0 || decades < 2) {
				a.ticks = append(a.ticks, tick{v, quantity.Short(v, named.Unit)})
			}
		}
	}
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

// labels returns the labels of bars in the order in which they appear.
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

func (g *drawing) barAxis(a *axis) {
	a.low, a.high = 0.5-float64(len(g.labels)), 0.5
	style := textStyle(9, softColour)
	for i, l := range g.labels {
		a.ticks = append(a.ticks, tick{-float64(i), fitText(style, signed(l), pictureWidth/3)})
	}
}

// draw puts axes and figures into an area of the canvas.
func (g *drawing) draw(c draw.Canvas) {
	style, wide := textStyle(9, softColour), vg.Length(0)
	for _, t := range g.y.ticks {
		wide = max(wide, style.Width(t.label))
	}
	left := wide + 8
	if g.y.title != "" {
		left += 16
	}
	area := draw.Crop(c, left, 0, 32, 0)
	g.x.from, g.x.to, g.y.from, g.y.to = area.Min.X, area.Max.X, area.Min.Y, area.Max.Y
	g.axes(c, area, style)
	switch g.Kind {
	case Bar, Box:
		g.bars(area, g.x.at, g.y.at)
	case Histogram:
		for i, s := range g.Series {
			g.columns(area, g.x.at, g.y.at, s, i)
		}
	default:
		g.marks(area, g.x.at)
		for i, s := range g.Series {
			g.line(area, g.x.at, g.y.at, s, i)
		}
	}
}

// axes draws ticks, their lines across the area, and titles.
func (g *drawing) axes(c, area draw.Canvas, style draw.TextStyle) {
	grid := draw.LineStyle{Color: gridColour, Width: 0.7}
	centre, right := style, style
	centre.XAlign, right.XAlign, right.YAlign = text.XCenter, text.XRight, text.YCenter
	for _, t := range g.x.ticks {
		at := g.x.at(t.at)
		area.StrokeLine2(grid, at, area.Min.Y, at, area.Max.Y)
		c.FillText(centre, vg.Point{X: at, Y: area.Min.Y - 13}, t.label)
	}
	for _, t := range g.y.ticks {
		at := g.y.at(t.at)
		if !g.Kind.labelled() {
			area.StrokeLine2(grid, area.Min.X, at, area.Max.X, at)
		}
		c.FillText(right, vg.Point{X: area.Min.X - 6, Y: at}, t.label)
	}
	area.StrokeLine2(draw.LineStyle{Color: softColour, Width: 0.7}, area.Min.X, area.Min.Y,
		area.Max.X, area.Min.Y)
	title := textStyle(10, softColour)
	title.XAlign = text.XCenter
	c.FillText(title, vg.Point{X: (area.Min.X + area.Max.X) / 2, Y: c.Min.Y + 2},
		fitText(title, g.x.title, area.Max.X-area.Min.X))
	title.Rotation = math.Pi / 2
	c.FillText(title, vg.Point{X: c.Min.X + 9, Y: (area.Min.Y + area.Max.Y) / 2},
		fitText(title, g.y.title, area.Max.Y-area.Min.Y))
}

func (g *drawing) marks(c draw.Canvas, x func(float64) vg.Length) {
	for _, m := range g.Marks {
		if g.logX && m.From <= 0 || m.To < m.From {
			continue
		}
		from, to := x(m.From), max(x(m.To), x(m.From)+1)
		c.FillPolygon(color.NRGBA{R: 0x1b, G: 0x1f, B: 0x24, A: 16},
			[]vg.Point{{X: from, Y: c.Min.Y}, {X: to, Y: c.Min.Y}, {X: to, Y: c.Max.Y},
				{X: from, Y: c.Max.Y}})
		style := textStyle(9, softColour)
		c.FillText(style, vg.Point{X: from + 4, Y: c.Max.Y - 11},
			fitText(style, m.Label, c.Max.X-from-4))
	}
}

// fits tells whether a point has a place on the axes.
func (g *drawing) fits(p *Point) bool {
	return p.Y != nil && (!g.logY || *p.Y > 0) && (!g.logX || p.X > 0)
}

func (g *drawing) line(c draw.Canvas, x, y func(float64) vg.Length, s *Series, i int) {
	points := slices.Clone(s.Points)
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	style := draw.LineStyle{Color: colourOf(i), Width: 1.6}
	spot := draw.GlyphStyle{Color: colourOf(i), Radius: 2.4, Shape: draw.CircleGlyph{}}
	if isLevee(s.Name) {
		style.Width, spot.Radius, spot.Shape = 2.8, 3.2, draw.BoxGlyph{}
	}
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
				c.DrawGlyph(draw.GlyphStyle{Color: colourOf(i), Radius: 3,
					Shape: draw.CrossGlyph{}}, vg.Point{X: x(p.X), Y: c.Min.Y + 6})
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
		c.DrawGlyph(spot, at)
		if p.Outlier || p.Invalid {
			c.DrawGlyph(draw.GlyphStyle{Color: colourOf(i), Radius: 5, Shape: draw.RingGlyph{}}, at)
		}
		if p.AtLeast {
			c.DrawGlyph(draw.GlyphStyle{Color: colourOf(i), Radius: 3.5,
				Shape: draw.PyramidGlyph{}}, vg.Point{X: at.X, Y: at.Y + 8})
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
		c.FillPolygon(fill, []vg.Point{{X: from, Y: foot}, {X: x(*p.XTo), Y: foot},
			{X: x(*p.XTo), Y: top}, {X: from, Y: top}})
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
			g.bar(c, x, p, y(-float64(row))-(vg.Length(i)-vg.Length(len(g.Series)-1)/2)*thick,
				thick, i, isLevee(s.Name) || isLevee(p.Label))
		}
	}
}

func (g *drawing) bar(c draw.Canvas, x func(float64) vg.Length, p *Point, middle, thick vg.Length,
	i int, own bool) {
	foot := x(g.above(0))
	if !g.fits(p) {
		style := textStyle(9, softColour)
		c.FillText(style, vg.Point{X: foot + 4, Y: middle - 3},
			fitText(style, "no figure: "+p.Why, c.Max.X-foot-4))
		return
	}
	end, half := x(*p.Y), thick/2-1
	if p.Spread != nil {
		end = g.box(c, x, p, middle, half, i, own)
	} else if g.logY { // there is no zero for the foot of a bar: its length would mean nothing
		c.StrokeLine2(draw.LineStyle{Color: gridColour, Width: 1}, c.Min.X, middle, c.Max.X, middle)
		spot := draw.GlyphStyle{Color: colourOf(i), Radius: min(half, 4), Shape: draw.CircleGlyph{}}
		if own {
			spot.Shape = draw.BoxGlyph{}
		}
		c.DrawGlyph(spot, vg.Point{X: end, Y: middle})
		end += 4
	} else {
		fill := colourOf(i)
		fill.A = 217
		corners := []vg.Point{{X: foot, Y: middle - half}, {X: end, Y: middle - half},
			{X: end, Y: middle + half}, {X: foot, Y: middle + half}}
		c.FillPolygon(fill, corners)
		if own {
			c.StrokeLines(draw.LineStyle{Color: inkColour, Width: 1.6},
				append(corners, corners[0]))
		}
	}
	if p.Low != nil {
		g.whisker(c, inkColour, middle, x(g.above(*p.Low)), x(*p.High), true)
		end = max(end, x(*p.High))
	}
	sign := map[string]string{"at least": "≥ ", "at most": "≤ ", "unknown": "~ "}[p.bound()]
	style := textStyle(9, inkColour)
	style.Font.Weight = xfont.WeightBold
	value := sign + quantity.Short(quantity.Round(*p.Y, 3), g.Y.Unit)
	c.FillText(style, vg.Point{X: min(end+5, c.Max.X-style.Width(value)), Y: middle - 3}, value)
}

// box draws the spread of a point and its median, and returns where it ends.
func (g *drawing) box(c draw.Canvas, x func(float64) vg.Length, p *Point, middle, half vg.Length,
	i int, own bool) vg.Length {
	s := p.Spread
	from, to := x(g.above(s.P25)), x(g.above(s.P75))
	to = max(to, from+1) // of equal values something shows, too
	g.whisker(c, colourOf(i), middle, x(g.above(s.P5)), from, true)
	g.whisker(c, colourOf(i), middle, to, x(g.above(s.P95)), true)
	fill := colourOf(i)
	fill.A = 130
	corners := []vg.Point{{X: from, Y: middle - half}, {X: to, Y: middle - half},
		{X: to, Y: middle + half}, {X: from, Y: middle + half}}
	c.FillPolygon(fill, corners)
	edge := draw.LineStyle{Color: colourOf(i), Width: 1}
	if own {
		edge = draw.LineStyle{Color: inkColour, Width: 1.6}
	}
	c.StrokeLines(edge, append(corners, corners[0]))
	c.StrokeLine2(draw.LineStyle{Color: inkColour, Width: 2.4}, x(*p.Y), middle-half, x(*p.Y),
		middle+half)
	return max(to, x(g.above(s.P95)))
}
