package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestPicturesOfEveryKind(t *testing.T) {
	for name, d := range map[string]*Document{"sample": sample(),
		"hostile": hostile("</text><script>x</script> &\"' \x01 \u4e16")} {
		for _, c := range d.Charts {
			svg, err := d.SVG(c)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, c.ID, err)
			}
			words := wellFormed(t, svg)
			if strings.Contains(string(svg), "<script") {
				t.Errorf("%s, %s: a name became an element", name, c.ID)
			}
			if name == "sample" && !strings.Contains(words, c.Title) {
				t.Errorf("%s: no title in the picture", c.ID)
			}
			picture, err := d.PNG(c)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, c.ID, err)
			}
			if img, err := png.Decode(bytes.NewReader(picture)); err != nil ||
				img.Bounds().Dx() < 1000 {
				t.Errorf("%s, %s: %v, %v", name, c.ID, img.Bounds(), err)
			}
			if *shots != "" {
				for ext, b := range map[string][]byte{".svg": svg, ".png": picture} {
					if err := os.WriteFile(filepath.Join(*shots, "picture-"+name+"-"+c.ID+ext), b,
						0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// wellFormed reads a picture as XML and returns its words.
func wellFormed(t *testing.T, svg []byte) string {
	t.Helper()
	var words strings.Builder
	dec := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return words.String()
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, svg)
		}
		if text, ok := token.(xml.CharData); ok {
			words.Write(text)
		}
	}
}

func TestPicturesOfOddCharts(t *testing.T) {
	zero, negative, tiny := 0.0, -5.0, 5e-300
	for _, c := range []struct {
		what   string
		chart  Chart
		points []Point
	}{
		{"gaps only", Chart{Kind: Line}, []Point{Gap(1, "no"), Gap(2, "no")}},
		{"gaps only, log", Chart{Kind: Bar, Y: Axis{Log: true}}, []Point{Gap(0, "no").Of("a")}},
		{"one point", Chart{Kind: Line, X: Axis{Log: true}, Y: Axis{Log: true}},
			[]Point{Value(10, 3)}},
		{"zero and less on log axes", Chart{Kind: Line, X: Axis{Log: true}, Y: Axis{Log: true}},
			[]Point{Value(0, 1), Value(-1, 2), {X: 3, Y: &zero}, {X: 4, Y: &negative}}},
		{"nothing above zero", Chart{Kind: Bar},
			[]Point{Value(0, 0).Of("a"), Value(0, -3).Of("b")}},
		{"tiny and huge", Chart{Kind: Line, Y: Axis{Log: true}},
			[]Point{{X: 1, Y: &tiny}, Value(2, 1e300)}},
		{"huge, linear", Chart{Kind: Line}, []Point{Value(-1e308, -1e308), Value(1e308, 1e308)}},
		{"an interval below zero on a log axis", Chart{Kind: Bar, Y: Axis{Log: true, Unit: "ns"}},
			[]Point{Value(0, 2).Between(-1, 5).Of("a")}},
		{"columns from zero on a log axis",
			Chart{Kind: Histogram, X: Axis{Log: true}, Y: Axis{Log: true}},
			[]Point{Bin(0, 1, 5), Bin(1, 10, 0)}},
	} {
		d := &Document{Bench: "odd"}
		c.chart.ID = "odd"
		chart := d.Chart(c.chart)
		chart.Add("a", c.points...)
		for what, make := range map[string]func(*Chart) ([]byte, error){"SVG": d.SVG,
			"PNG": d.PNG} {
			if b, err := make(chart); err != nil || len(b) == 0 {
				t.Errorf("%s: %s: %v", c.what, what, err)
			}
		}
	}
	d := &Document{Bench: "empty"}
	if _, err := d.SVG(d.Chart(Chart{ID: "empty"})); err == nil {
		t.Error("a chart without points is drawn")
	}
}

// The length of a bar says nothing where the axis has no zero.
func TestALogarithmicAxisHasDotsInThePlaceOfBars(t *testing.T) {
	d := &Document{Title: "a"}
	for log, want := range map[bool]int{false: 0, true: 2} {
		c := Chart{ID: "a", Kind: Bar, Y: Axis{Log: log}, Series: []*Series{{Name: "s",
			Points: []Point{Value(0, 10).Of("a"), Value(0, 1000).Of("b")}}}}
		svg, err := d.SVG(&c)
		if err != nil {
			t.Fatal(err)
		}
		arcs := regexp.MustCompile(`<path d="[^"]*A[^"]*"`).FindAll(svg, -1)
		if len(arcs) != want {
			t.Errorf("log %v: %d dots, want %d", log, len(arcs), want)
		}
	}
}

// Colour alone does not tell levee apart for everybody.
func TestLeveeIsToldApartWithoutColour(t *testing.T) {
	d := &Document{Title: "a"}
	for _, name := range []string{"levee", "levee static", "leveed", "nft"} {
		ours := strings.HasPrefix(name, "levee") && name != "leveed"
		for _, kind := range []Kind{Bar, Line} {
			c := Chart{ID: "a", Kind: kind, Series: []*Series{
				{Name: name, Points: []Point{Value(0, 10).Of(name), Value(1, 5).Of("b")}},
				{Name: "other", Points: []Point{Value(0, 4).Of("b")}}}}
			svg, err := d.SVG(&c)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(wellFormed(t, svg), "\u25ba "+name); got != ours {
				t.Errorf("%s, %s: a sign: %v, want %v", name, kind, got, ours)
			}
		}
	}
}
