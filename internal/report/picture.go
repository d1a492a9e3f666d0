package report

import (
	"bytes"
	"fmt"
	"image/color"
	"strings"
	"sync"
	"unicode"

	"codeberg.org/go-fonts/liberation/liberationsansbold"
	"codeberg.org/go-fonts/liberation/liberationsansregular"
	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/opentype"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Size of a picture in points, and of its PNG: three pixels for two points are sharp on a wide
// page.
const (
	pictureWidth  = 640 * vg.Length(1)
	pictureHeight = 340 * vg.Length(1)
	pngDPI        = 144
	maxBars       = 120 // rows of a picture of bars; a page shows all
)

// Colours are those of the page, on white (web/report/report.js).
var (
	palette = []color.NRGBA{
		hex(0x0072b2), hex(0xd55e00), hex(0x009e73), hex(0xb8528d), hex(0xa87400), hex(0x2f8fcf),
		hex(0x444a52), hex(0x7d7d1c), hex(0x882255),
	}
	inkColour, softColour, gridColour = hex(0x1b1f24), hex(0x57606a), hex(0xe8ebef)
)

func hex(v uint32) color.NRGBA {
	return color.NRGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 255}
}

func colourOf(i int) color.NRGBA { return palette[i%len(palette)] }

// Drawable tells whether a chart has a point to draw, or the reason for a gap.
func (c *Chart) Drawable() bool {
	for _, s := range c.Series {
		if len(s.Points) > 0 {
			return true
		}
	}
	return false
}

// SVG draws a chart of the document as it looks at first on the page.
func (d *Document) SVG(c *Chart) ([]byte, error) {
	height, err := d.pictureHeight(c)
	if err != nil {
		return nil, err
	}
	canvas := vgsvg.New(pictureWidth, height)
	if err := d.draw(c, draw.New(canvas)); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err = canvas.WriteTo(&out)
	return out.Bytes(), err
}

// PNG returns the same as pixels.
func (d *Document) PNG(c *Chart) ([]byte, error) {
	height, err := d.pictureHeight(c)
	if err != nil {
		return nil, err
	}
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(pictureWidth, height),
		vgimg.UseDPI(pngDPI))}
	if err := d.draw(c, draw.New(canvas)); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err = canvas.WriteTo(&out)
	return out.Bytes(), err
}

// pictureHeight also makes sure that there is something to draw.
func (d *Document) pictureHeight(c *Chart) (vg.Length, error) {
	d.settle()
	if _, err := c.check(); err != nil {
		return 0, fmt.Errorf("drawing chart %q: %w", c.ID, err)
	}
	if !c.Drawable() {
		return 0, fmt.Errorf("drawing chart %q: it has no points", c.ID)
	}
	legend := vg.Length(len(c.legendRows())) * legendLine
	if c.Kind.labelled() {
		return min(vg.Length(len(c.labels())), maxBars)*c.barRow() + legend + 100, nil
	}
	return pictureHeight + legend, nil
}

// draw puts heading, legend, chart and origin onto the canvas.
func (d *Document) draw(c *Chart, canvas draw.Canvas) (err error) {
	defer func() { // the canvas panics where a font is missing; a report must not die of a picture
		if r := recover(); r != nil {
			err = fmt.Errorf("drawing chart %q: %v", c.ID, r)
		}
	}()
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	in := draw.Crop(canvas, 14, -14, 10, -12)
	title := textStyle(14, inkColour)
	title.Font.Weight = xfont.WeightBold
	in.FillText(title, vg.Point{X: in.Min.X, Y: in.Max.Y - 12},
		fitText(title, c.Title, in.Max.X-in.Min.X))
	small := textStyle(8, softColour)
	in.FillText(small, vg.Point{X: in.Min.X, Y: in.Min.Y},
		fitText(small, d.origin(), in.Max.X-in.Min.X))
	top := in.Max.Y - 34
	for _, row := range c.legendRows() {
		at := in.Min.X
		for _, i := range row {
			top, name := top, signed(printable(c.Series[i].Name))
			in.FillPolygon(colourOf(i), square(at, top, 8))
			style := textStyle(10, inkColour)
			in.FillText(style, vg.Point{X: at + 12, Y: top}, fitText(style, name, in.Max.X-at-12))
			at += 12 + style.Width(name) + 18
		}
		top -= legendLine
	}
	newDrawing(c).draw(draw.Canvas{Canvas: in.Canvas,
		Rectangle: vg.Rectangle{Min: vg.Point{X: in.Min.X, Y: in.Min.Y + 14},
			Max: vg.Point{X: in.Max.X - 12, Y: top + 6}}})
	return nil
}

// origin returns the small print: a picture travels without its report.
func (d *Document) origin() string {
	parts := []string{"levee bench " + printable(d.Bench)}
	if m := d.Machine.String(); m != "" {
		parts = append(parts, printable(m))
	}
	if !d.Started.IsZero() {
		parts = append(parts, d.Started.UTC().Format("2006-01-02"))
	}
	if d.Incomplete != "" {
		parts = append(parts, "INCOMPLETE: "+printable(d.Incomplete))
	}
	return strings.Join(parts, " · ")
}

const legendLine = vg.Length(17)

// legendRows returns the series, as many in a row as fit; none for a single series.
func (c *Chart) legendRows() [][]int {
	if len(c.Series) < 2 {
		return nil
	}
	var rows [][]int
	style, at := textStyle(10, inkColour), pictureWidth
	for i, s := range c.Series {
		w := 30 + style.Width(signed(printable(s.Name)))
		if at+w > pictureWidth-28 || len(rows) == 0 {
			rows, at = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], i)
		at += w
	}
	return rows
}

func square(x, y, side vg.Length) []vg.Point {
	return []vg.Point{{X: x, Y: y}, {X: x + side, Y: y}, {X: x + side, Y: y + side},
		{X: x, Y: y + side}}
}

// fonts are read when they are first needed: that takes milliseconds, which no other command should
// pay. For the same reason gonum's own plots are not used, whose package reads them at every start.
var fonts = sync.OnceValue(func() text.Handler {
	var faces font.Collection
	for _, f := range []struct {
		weight xfont.Weight
		ttf    []byte
	}{{xfont.WeightNormal, liberationsansregular.TTF}, {xfont.WeightBold, liberationsansbold.TTF}} {
		face, err := opentype.Parse(f.ttf)
		if err != nil {
			panic("report: an embedded font: " + err.Error()) // a test draws with both
		}
		faces = append(faces, font.Face{Font: font.Font{Typeface: "Liberation", Variant: "Sans",
			Weight: f.weight}, Face: face})
	}
	return text.Plain{Fonts: font.NewCache(faces)}
})

func textStyle(size vg.Length, c color.Color) draw.TextStyle {
	return draw.TextStyle{
		Color: c, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		Handler: fonts(),
	}
}

// fitText cuts text that is wider than its room.
func fitText(style draw.TextStyle, words string, room vg.Length) string {
	words = printable(words)
	if style.Width(words) <= room {
		return words
	}
	runes := []rune(words)
	for len(runes) > 1 && style.Width(string(runes)+"…") > room {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

// printable keeps names on one line, and out of them what XML cannot hold.
func printable(s string) string {
	const longest = 200
	runes := []rune(strings.ToValidUTF8(s, "\uFFFD"))
	if len(runes) > longest {
		runes = append(runes[:longest], '…')
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, string(runes))
}
