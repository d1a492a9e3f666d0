package report

import (
	"bytes"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	devtools "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"levee/internal/await"
	"levee/web/webtest"
)

var shots = flag.String("shots", "", "a directory for screenshots of the page, to look at")

type browser struct{ *webtest.Browser }

// open writes the document as a page and opens it; width is that of the window in CSS pixels.
func open(t *testing.T, d *Document, width int64, scheme string) *browser {
	t.Helper()
	page := filepath.Join(t.TempDir(), "report.html")
	var text strings.Builder
	if err := d.HTML(&text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	b := start(t, page, width, scheme)
	if err := chromedp.Do(b, chromedp.Navigate("file://"+page),
		chromedp.WaitReady(chromedp.CSS(`html[data-ready="true"]`))); err != nil {
		t.Fatalf("opening the page: %v; %q", err, b.Wrong())
	}
	return b
}

// start starts a browser that is to open one file, and to ask for nothing else.
func start(t *testing.T, page string, width int64, scheme string) *browser {
	t.Helper()
	own := func(url string) bool {
		url, _, _ = strings.Cut(url, "#")
		return url == "file://"+page || strings.HasPrefix(url, "data:") ||
			strings.HasPrefix(url, "blob:")
	}
	return &browser{webtest.Start(t, webtest.Window{Width: width, Height: 900, Scheme: scheme,
		Own: own})}
}

// close fails the test for everything that the page should not have done.
func (b *browser) close(t *testing.T) {
	t.Helper()
	for _, w := range b.Wrong() {
		t.Error(w)
	}
}

func eval[T any](t *testing.T, b *browser, js string) T {
	t.Helper()
	return webtest.Eval[T](t, b.Browser, js)
}

func (b *browser) shot(t *testing.T, name string) {
	t.Helper()
	if *shots == "" {
		return
	}
	png, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*shots, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, id := range eval[[]string](t, b,
		`[...document.querySelectorAll('section.chart')].map(s => s.id)`) {
		png, err := chromedp.Run(b, chromedp.Screenshot(chromedp.CSS("#"+id)))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*shots, name+"-"+id+".png"), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// ink counts the pixels of a chart that are not transparent: what is drawn differs when it does. It
// reads a copy, for a canvas that is read often says so on the console.
const ink = `(() => { const c = document.querySelector('%s canvas'), copy = new OffscreenCanvas(c.width, c.height).getContext('2d', {willReadFrequently: true});
copy.drawImage(c, 0, 0); const d = copy.getImageData(0, 0, c.width, c.height).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })()`

func inkOf(t *testing.T, b *browser, id string) int {
	return eval[int](t, b, strings.Replace(ink, "%s", `section[data-chart="`+id+`"]`, 1))
}

func TestThePageWorksOfflineInChromium(t *testing.T) {
	b := open(t, sample(), 1100, "light")
	b.shot(t, "light")
	d := sample()
	if n := eval[int](
		t, b, `document.querySelectorAll('section.chart .uplot canvas').length`); n != len(
		d.Charts) {
		t.Errorf("%d charts are drawn, want %d", n, len(d.Charts))
	}
	for _, c := range d.Charts {
		if n := inkOf(t, b, c.ID); n < 2000 {
			t.Errorf("%s: %d pixels drawn: it is empty", c.ID, n)
		}
	}
	t.Run("a series is switched off and on", func(t *testing.T) { toggles(t, b) })
	t.Run("hovering shows the value with its interval", func(t *testing.T) { hovers(t, b) })
	t.Run("the keyboard reads the values", func(t *testing.T) { reads(t, b) })
	t.Run("values relative to a series", func(t *testing.T) { compares(t, b) })
	t.Run("axes become linear and logarithmic", func(t *testing.T) { logs(t, b) })
	t.Run("a table is sorted", func(t *testing.T) { sorts(t, b) })
	b.close(t)
}

func toggles(t *testing.T, b *browser) {
	const button = `section[data-chart="sets-lookup"] .legend button[data-series="2"]`
	before := inkOf(t, b, "sets-lookup")
	b.Run(t, chromedp.Click(chromedp.CSS(button)))
	off := inkOf(t, b, "sets-lookup")
	if pressed := eval[string](t, b, `document.querySelector('`+button+
		`').getAttribute('aria-pressed')`); pressed != "false" || off >= before {
		t.Errorf("pressed %s, %d pixels after %d: want less", pressed, off, before)
	}
	b.Run(t, chromedp.Click(chromedp.CSS(button)))
	if on := inkOf(t, b, "sets-lookup"); on != before {
		t.Errorf("%d pixels once it is back, want %d", on, before)
	}
}

// hoverAt moves a real mouse to a place in a chart, given as shares of its plotting area.
func hoverAt(t *testing.T, b *browser, id string, x, y float64) string {
	t.Helper()
	over := `section[data-chart="` + id + `"] .u-over`
	b.Run(t, chromedp.ScrollIntoView(chromedp.CSS(over)))
	box := eval[map[string]float64](t, b,
		`(() => { const r = document.querySelector('`+over+
			`').getBoundingClientRect(); return {x: r.x, y: r.y, w: r.width, h: r.height}; })()`)
	b.Run(t, chromedp.MouseEvent("mouseMoved", box["x"]+x*box["w"], box["y"]+y*box["h"]))
	return eval[string](t, b, `(() => { const e = document.querySelector('section[data-chart="`+id+
		`"] .tip'); return e.hidden ? '' : e.innerText; })()`)
}

func hovers(t *testing.T, b *browser) {
	for _, c := range []struct {
		id   string
		y    float64
		want []string
	}{
		{"ladder-pps", 0.04, []string{"IPv4", "xdp native", "at least", "M packets/s",
			"95 % interval", "7 rounds"}},
		{"ladder-pps", 0.42, []string{"nft netdev ingress", "1 of them an outlier, kept"}},
		{"ladder-pps", 0.835, []string{"IPv6", "no figure", "packets do not balance"}},
	} {
		if got := hoverAt(t, b, c.id, 0.1, c.y); !containsAll(got, c.want) {
			t.Errorf("%s at %v shows %q, want %q", c.id, c.y, got, c.want)
		}
	}
	b.shot(t, "hover")
}

func reads(t *testing.T, b *browser) {
	const plot = `section[data-chart="sets-lookup"] .plot`
	b.Run(t, chromedp.Focus(chromedp.CSS(plot)),
		chromedp.SendKeys(chromedp.CSS(plot), kb.ArrowRight+kb.ArrowRight))
	const reader = `document.querySelector('section[data-chart="sets-lookup"] .reader').textContent`
	if got := eval[string](t, b, reader); !containsAll(got,
		[]string{"levee static", "entries 100", " ns", "95 % interval"}) {
		t.Errorf("the second key reads %q", got)
	}
	b.Run(t, chromedp.SendKeys(chromedp.CSS(plot), kb.End+kb.ArrowLeft+kb.ArrowLeft))
	if got := eval[string](t, b, reader); !containsAll(got,
		[]string{"kernel hash map", "no figure", "wrong answers: 12 of 131072"}) {
		t.Errorf("the gap reads %q", got)
	}
}

// choose takes a value in a list of a chart as a person does.
func choose(t *testing.T, b *browser, id, value string) {
	t.Helper()
	eval[bool](t, b, `(() => { const s = document.querySelector('section[data-chart="`+id+
		`"] select'); s.value = '`+value+
		`'; s.dispatchEvent(new Event('change')); return true; })()`)
}

func compares(t *testing.T, b *browser) {
	choose(t, b, "ladder-pps", "2") // levee
	if got := hoverAt(t, b, "ladder-pps", 0.1, 0.16); !containsAll(got, []string{"levee", "1×"}) {
		t.Errorf("levee relative to itself is %q", got)
	}
	if got := hoverAt(t, b, "ladder-pps", 0.1, 0.04); !containsAll(got,
		[]string{"xdp native", "at least 1.", "×"}) {
		t.Errorf("the fastest relative to levee is %q", got)
	}
	b.shot(t, "relative")
	choose(t, b, "ladder-pps", "")
	if got := hoverAt(t, b, "ladder-pps", 0.1, 0.04); !containsAll(got, []string{"packets/s"}) {
		t.Errorf("back to absolute values: %q", got)
	}
}

func logs(t *testing.T, b *browser) {
	for _, c := range []struct{ id, key string }{{"sets-lookup", "logY"}, {"sets-lookup", "logX"},
		{"ladder-pps", "logY"}, {"latency", "logX"}, {"service", "logY"}} {
		box := `section[data-chart="` + c.id + `"] input[data-switch="` + c.key + `"]`
		picture := `document.querySelector('section[data-chart="` + c.id + `"] canvas').toDataURL()`
		before := eval[string](t, b, picture)
		b.Run(t, chromedp.Click(chromedp.CSS(box)))
		if eval[string](t, b, picture) == before {
			t.Errorf("%s: %s changes nothing", c.id, c.key)
		}
	}
	b.shot(t, "switched")
}

func sorts(t *testing.T, b *browser) {
	const first = `document.querySelector('#certificate tbody tr td').textContent`
	b.Run(t, chromedp.Click(`#certificate thead th:nth-child(2) button`))
	if got := eval[string](t, b, first); got != "tc ingress" {
		t.Errorf("by windows %q comes first, want tc ingress", got)
	}
	b.Run(t, chromedp.Click(`#certificate thead th:nth-child(2) button`))
	if got := eval[string](t, b, first); got != "xdp native" {
		t.Errorf("by windows, most first, %q comes first, want xdp native", got)
	}
}

func TestThePageFitsEveryWindow(t *testing.T) {
	d := sample()
	for _, s := range d.Charts[0].Series {
		s.Points[0].Label = "the place behind the driver that sees a packet first"
	}
	for _, c := range []struct {
		width        int64
		scheme, back string
	}{{390, "dark", "rgb(20, 23, 28)"}, {820, "light", "rgb(255, 255, 255)"},
		{1400, "light", "rgb(255, 255, 255)"}} {
		b := open(t, d, c.width, c.scheme)
		b.shot(t, fmt.Sprintf("window-%d", c.width))
		if wide := eval[int64](t, b, `document.documentElement.scrollWidth`); wide > c.width {
			t.Errorf("the page is %d pixels wide in a window of %d", wide, c.width)
		}
		if back := eval[string](t, b,
			`getComputedStyle(document.documentElement).backgroundColor`); back != c.back {
			t.Errorf("%s is preferred, and the page is %s", c.scheme, back)
		}
		if out := eval[[]string](t, b, outside); len(out) > 0 {
			t.Errorf("%d pixels: beyond the window: %q", c.width, out)
		}
		got := eval[string](t, b, `document.querySelector('#headline').innerText`)
		if !containsAll(got, []string{"IPv4: ", "is first", "95 % interval"}) {
			t.Errorf("%d pixels: the headline is %q", c.width, got)
		}
		b.close(t)
	}
}

// outside names what is to be seen beyond the right edge, but for what scrolls in its own box.
const outside = `[...document.querySelectorAll('main *, header *')].filter(e => !e.closest('.scroll') && !e.closest('.reader') &&
e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName + '.' + e.className)`

// action presses a button of a chart by the keyboard.
func action(t *testing.T, b *browser, id, name string) {
	t.Helper()
	button := `section[data-chart="` + id + `"] button[data-action="` + name + `"]`
	b.Run(t, chromedp.Focus(chromedp.CSS(button)),
		chromedp.SendKeys(chromedp.CSS(button), kb.Enter))
}

// saved presses a button and returns the file that the browser saves.
func saved(t *testing.T, b *browser, dir, id, format string) []byte {
	t.Helper()
	action(t, b, id, format)
	file := filepath.Join(dir, id+"."+format)
	// It has its name once it is whole, but for some versions, which write it under that name.
	end := map[string]string{"svg": "</svg>\n", "png": "IEND\xaeB`\x82", "csv": "\n"}[format]
	var out []byte
	await.OK(t, func() (err error) {
		if out, err = os.ReadFile(file); err == nil && !bytes.HasSuffix(out, []byte(end)) {
			err = fmt.Errorf("%s is not whole", file)
		}
		return errors.Join(err, b.Err())
	})
	return out
}

func TestAChartIsTakenOutOfThePage(t *testing.T) {
	d := sample()
	d.Charts[0].Series[0].Points[1].Label = `=levee, "quoted"`
	b := open(t, d, 1000, "light")
	dir := t.TempDir()
	if _, err := chromedp.Call(b, devtools.SetDownloadBehavior, devtools.SetDownloadBehaviorParams{
		Behavior: devtools.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir}); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	if err := d.CSV(&all); err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Charts {
		want, err := d.SVG(c)
		if err != nil {
			t.Fatal(err)
		}
		if got := saved(t, b, dir, c.ID, "svg"); !bytes.Equal(got, want) {
			t.Errorf("%s: the page saves another SVG than --svg writes", c.ID)
		}
		img, err := png.Decode(bytes.NewReader(saved(t, b, dir, c.ID, "png")))
		if err != nil || img.Bounds().Dx() < 1000 {
			t.Errorf("%s: PNG: %v, %v", c.ID, img, err)
		} else if r, _, _, _ := img.At(20, 50).RGBA(); colours(img) < 10 || r == 0 {
			t.Errorf("%s: the PNG is empty", c.ID)
		}
		sameCSV(t, c.ID, saved(t, b, dir, c.ID, "csv"), all.Bytes())
	}
	const shownFull = `(document.fullscreenElement || {}).id || ''`
	action(t, b, "latency", "full-screen")
	b.Run(t, chromedp.WaitReady(chromedp.CSS(`#latency:fullscreen`)))
	if got := eval[string](t, b, shownFull); got != "latency" {
		t.Errorf("%q is on the full screen", got)
	}
	b.close(t)
}

func colours(img image.Image) int {
	seen := map[color.Color]bool{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			seen[img.At(x, y)] = true
		}
	}
	return len(seen)
}

// sameCSV compares the CSV of one chart with that of all; numbers may be written in other ways.
func sameCSV(t *testing.T, id string, got, all []byte) {
	t.Helper()
	read := func(b []byte) [][]string {
		rows, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		for _, row := range rows {
			for i, cell := range row {
				if v, err := strconv.ParseFloat(cell, 64); err == nil {
					row[i] = fmt.Sprint(v)
				}
			}
		}
		return rows
	}
	rows := read(all)
	want := slices.DeleteFunc(rows, func(r []string) bool { return r[0] != "chart" && r[0] != id })
	if have := read(got); !slices.EqualFunc(have, want, slices.Equal) {
		t.Errorf("%s: %d rows, want %d; the first: %q, want %q", id, len(have), len(want), have[1],
			want[1])
	}
}

func TestALinkOpensTheSameView(t *testing.T) {
	b := open(t, sample(), 1000, "light")
	b.Run(t, chromedp.Click(chromedp.CSS(
		`section[data-chart="latency"] .legend button[data-series="1"]`)),
		chromedp.Click(chromedp.CSS(
			`section[data-chart="sets-lookup"] input[data-switch="logY"]`)))
	choose(t, b, "sets-lookup", "3")
	action(t, b, "latency", "link")
	const want = "#view=latency&sets-lookup_base=kernel+LPM+trie&sets-lookup_logY=0&latency_off=1"
	if got := eval[string](t, b, `location.hash`); got != want {
		t.Fatalf("the link ends in %q, want %q", got, want)
	}
	ink := map[string]int{"latency": inkOf(t, b, "latency"), "sets-lookup": inkOf(t, b,
		"sets-lookup")}
	b.Run(t, chromedp.Reload(), chromedp.WaitReady(chromedp.CSS(`html[data-ready="true"]`)))
	for id, n := range ink {
		if got := inkOf(t, b, id); got != n {
			t.Errorf("%s: %d pixels in the view that was opened, want %d", id, got, n)
		}
	}
	state := eval[[]any](t, b, `[
document.querySelector('section[data-chart="latency"] button[data-series="1"]').ariaPressed,
document.querySelector('section[data-chart="sets-lookup"] select').value,
document.querySelector('section[data-chart="sets-lookup"] input[data-switch="logY"]').checked,
Math.abs(document.querySelector('#latency').getBoundingClientRect().top) < innerHeight]`)
	if got := fmt.Sprint(state); got != "[false 3 false true]" {
		t.Errorf("the controls say %s", got)
	}
	for _, odd := range []string{"#view=nothing&latency_off=0", "#latency", "#view=latency" +
		"&latency_off=99.x.-1&latency_base=%3Cb%3E&latency_logX=7&__proto___off=1"} {
		eval[bool](t, b, `(() => { location.hash = '`+odd+`'; return true; })()`)
	}
	// the odd parts of the last are left out, and the series is on again
	b.Run(t, chromedp.WaitReady(chromedp.CSS(
		`section[data-chart="latency"] button[data-series="1"][aria-pressed="true"]`)))
	b.close(t)
}

func TestHostileNamesStayText(t *testing.T) {
	text := "</script><script>window.pwned=1</script><img src=x " +
		"onerror=\"window.pwned=1\">'\"`${alert(1)}{{.}}<!--\u2028"
	b := open(t, hostile(text), 1000, "light")
	b.shot(t, "hostile")
	if eval[bool](t, b, `!!window.pwned`) {
		t.Fatal("a name in a document ran as a script")
	}
	if n := eval[int](t, b, `document.querySelectorAll('img, script').length`); n != 3 {
		t.Errorf("%d scripts and images, want the page's own 3", n)
	}
	if got := hoverAt(t, b, "c-line", 0.03, 0.1); !strings.Contains(got, "<img src=x onerror=") {
		t.Errorf("hovering shows %q, want the name as it is", got)
	}
	if got := eval[string](t, b, `document.querySelector('h1').textContent`); !strings.HasPrefix(
		got, "</script><script>window.pwned=1") {
		t.Errorf("the title is %q, want the name as it is", got)
	}
	b.close(t)
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
