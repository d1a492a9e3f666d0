package dashboard

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"levee/internal/agent/kind"
	"levee/internal/await"
	"levee/web/webtest"
)

var (
	shots  = flag.String("shots", "", "a directory for screenshots of the page, to look at")
	serve  = flag.Duration("serve", 0, "show the page with made-up traffic for so long")
	strict = flag.Bool("strict", false, "hold times that a busy machine would miss")
)

// window is the browser window with the page.
func (d *demo) window(width, height int64, scheme string) webtest.Window {
	return webtest.Window{Width: width, Height: height, Scheme: scheme,
		Own: func(url string) bool {
			return strings.HasPrefix(url, d.url) || strings.HasPrefix(url, "data:") ||
				strings.HasPrefix(url, "blob:")
		}}
}

const (
	ready = `html[data-ready="true"]`
	login = `html[data-ready="login"]`
)

// open opens the page and logs in by the keyboard.
func (d *demo) open(t testing.TB, w webtest.Window, query string) *webtest.Browser {
	t.Helper()
	b := webtest.Start(t, w)
	b.Run(t, chromedp.Navigate(d.url+query), chromedp.WaitReady(chromedp.CSS(login)),
		chromedp.SendKeys(chromedp.CSS("#token"), d.token+kb.Enter),
		chromedp.WaitReady(chromedp.CSS(ready)))
	return b
}

// shot writes a picture of the page into the directory that -shots names: the whole page, or what a
// window shows.
func shot(t testing.TB, b *webtest.Browser, name string, whole bool) {
	t.Helper()
	if *shots == "" {
		return
	}
	if whole {
		png, err := chromedp.Run(b, chromedp.FullScreenshot(100))
		if err == nil {
			err = os.WriteFile(filepath.Join(*shots, name+".png"), png, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	quality := int64(82)
	for _, p := range []page.CaptureScreenshotParams{
		{Format: page.CaptureScreenshotFormatPng},
		{Format: page.CaptureScreenshotFormatWebp, Quality: &quality},
	} {
		got, err := chromedp.Call(b, page.CaptureScreenshot, p)
		if err == nil {
			err = os.WriteFile(filepath.Join(*shots, name+"."+string(p.Format)), got.Data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func fine(t testing.TB, b *webtest.Browser) {
	t.Helper()
	for _, w := range b.Wrong() {
		t.Error(w)
	}
}

func TestServe(t *testing.T) {
	if *serve == 0 {
		t.Skip("looking at the page is asked for with -serve 10m -v")
	}
	d := newDemo(t, false)
	t.Logf("%s with the token %s", d.url, d.token)
	await.Pass(*serve, "somebody looks at the page")
}

func TestLook(t *testing.T) {
	if *shots == "" {
		t.Skip("pictures of the page are asked for with -shots DIR")
	}
	d := newDemo(t, false)
	for _, c := range []struct {
		name, scheme, query string
		width, height       int64
		whole               bool
	}{
		{"all-light", "light", "?span=900", 1920, 1080, true},
		{"all-dark", "dark", "?by=rule&span=86400", 1440, 900, true},
		{"log", "dark", "?by=rule&log=1&span=86400", 1440, 900, false},
		{"tablet", "light", "?by=protocol&share=1&span=31536000", 900, 1100, true},
		{"all-phone", "dark", "?span=3600", 390, 844, true},
		{"wall", "light", "?by=rule&span=604800", 1920, 1080, false},
		{"dark", "dark", "?span=3600", 1440, 900, false},
		{"phone", "light", "?span=900#traffic", 390, 844, false},
		{"tablet-dark", "dark", "?by=rule&span=3600", 900, 1100, true},
	} {
		b := d.open(t, d.window(c.width, c.height, c.scheme), c.query)
		await.Pass(1500*time.Millisecond, "a picture shows the page at rest")
		shot(t, b, c.name, c.whole)
		webtest.Eval[bool](t, b, `document.querySelector('[data-key^="made "]').open = true`)
		waits(t, b, `/From Germany/.test(document.querySelector('[data-key^="made "]').textContent)`)
		axeIn(t, b)(c.name, "")
		fine(t, b)
	}
}

func TestThePage(t *testing.T) {
	d := newDemo(t, true)
	t.Run("a phone with hostile names", func(t *testing.T) { fits(t, d) })
	b := d.open(t, d.window(1440, 900, "light"), "")
	fine(t, b)
	t.Run("axe finds nothing in the page as it comes", func(t *testing.T) { axeIn(t, b)("", "") })
	t.Run("it is there within a second with a year of data", func(t *testing.T) { loads(t, d, b) })
	t.Run("100,000 points move at 30 frames a second", func(t *testing.T) { moves(t, d, b) })
	t.Run("a point that is read stays while time goes on", func(t *testing.T) { stays(t, d, b) })
	b.Run(t, chromedp.Navigate(d.url+"?span=3600"), chromedp.WaitReady(chromedp.CSS(ready)))
	t.Run("the keyboard suffices", func(t *testing.T) { types(t, d, b) })
	t.Run("a logarithmic scale, and what a flood is made of", func(t *testing.T) {
		tells(t, b)
	})
	t.Run("axe finds nothing", func(t *testing.T) { axes(t, b) })
	t.Run("that no event comes is told", func(t *testing.T) { refuses(t, d) })
	t.Run("where nobody looks is told", func(t *testing.T) { blind(t, d, b) })
	fine(t, b)
	t.Run("an agent that is gone is told", func(t *testing.T) {
		d.stop()
		waits(t, b, `document.querySelector('#link').dataset.state === 'lost'`)
		b.Wrong()
	})
}

// tells opens what an incident is made of, and takes the logarithmic scale.
func tells(t *testing.T, b *webtest.Browser) {
	webtest.Eval[bool](t, b, `document.querySelector('[data-key^="made "]').open = true;
document.querySelector('#scale [data-value="log"]').click(), true`)
	waits(t, b, `/shares are of the packets.*From Germany 41 %, Brazil 30 %/.test(document
.querySelector('[data-key^="made "]').textContent)`)
	webtest.Eval[bool](t, b, `document.querySelector('#services').open = true`)
	waits(t, b, `/Services with a policy of their own \(2\).*nginx.service.*at its cgroup.*12.4.*`+
		`container:web.*not in force: the container has ended/s.test(document
.querySelector('#services').textContent)`)
	waits(t, b, `location.search.includes('log=1') && document.querySelector('#traffic-note')
.textContent.includes('a line by itself')`)
	// Each kind of flood has the colour of its row.
	row := kind.UDP.Row()
	waits(t, b, fmt.Sprintf(`[...document.querySelectorAll('.incident .top .swatch')].some((s) =>
s.style.getPropertyValue('--c').startsWith('var(--kind-udp,')) && getComputedStyle(
document.documentElement).getPropertyValue('--kind-udp') === (
document.documentElement.dataset.theme === 'dark' ? %q : %q)`, row.Night, row.Colour))
	shot(t, b, "tells", false)
	// Of several series the last may have no point on that scale.
	if !webtest.Eval[bool](t, b, `import('./chart.js').then(({ Stack }) => {
  const at = document.body.appendChild(document.createElement('div'));
  const c = new Stack(at, { range() {}, read() {} });
  c.show({ from: 0, step: 1, points: 2, series: [{ key: 'a', values: [5, 6] },
    { key: 'b', values: [0, 0] }] }, { unit: 'packets/s', log: true, hidden: new Set(),
    colour: () => '#000', name: (s) => s.key, view: [0, 2] });
  at.remove();
  return c.none.hidden;
})`) {
		t.Error("the chart says that nothing was counted, where one of two series was")
	}
	if got := webtest.Eval[[]string](t, b, `import('./format.js').then(({ count }) =>
[0, 0.4, 1, 36.5, 1234].map((v) => count(v, 'packets')))`); !slices.Equal(got, []string{
		"0 packets", "1 packet", "1 packet", "37 packets", "1.23 k packets"}) {
		t.Errorf("sums of packets: %q", got)
	}
}

// waits waits until an expression holds.
func waits(t testing.TB, b *webtest.Browser, js string) {
	t.Helper()
	await.OK(t, func() error {
		if !webtest.Eval[bool](t, b, js) {
			return fmt.Errorf("never: %s; %q", js, b.Wrong())
		}
		return nil
	})
}

func loads(t *testing.T, d *demo, b *webtest.Browser) {
	const limit = 1000.0
	var took []float64
	for range 3 {
		b.Run(t, chromedp.Navigate(d.url+"?by=rule&span=31536000"),
			chromedp.WaitReady(chromedp.CSS(ready)))
		took = append(took, webtest.Eval[float64](t, b,
			`performance.getEntriesByName('levee-ready')[0].startTime`))
		n := webtest.Eval[int](t, b, `document.querySelectorAll('#legend button').length`)
		if n < 9 {
			t.Errorf("%d series are in the legend", n)
		}
		if !*strict && took[len(took)-1] < 10*limit {
			break
		}
	}
	slices.Sort(took)
	t.Logf("the page with a year of data was there after %.0f ms", took)
	if *strict && took[1] > limit || took[0] > 10*limit {
		t.Errorf("it took %.0f ms", took)
	}
}

// moving drags the chart with a new place for each frame, for three seconds or so many frames.
const moving = `(async (frames) => {
const plot = document.getElementById('plot'), box = plot.querySelector('.u-over').getBoundingClientRect();
const event = (type, x) => plot.dispatchEvent(new PointerEvent(type, {pointerId: 7, pointerType: 'touch', bubbles: true, button: 0, clientX: x, clientY: box.top + 50}));
const frame = () => new Promise((done) => requestAnimationFrame(done));
event('pointerdown', box.left + box.width / 2);
const begun = performance.now(), gaps = [];
let last = begun, n = 0;
while (performance.now() - begun < 3000 && n < frames) {
  event('pointermove', box.left + box.width * (0.5 + 0.2 * Math.sin(n++ / 15)));
  await frame();
  const now = performance.now();
  gaps.push(now - last);
  last = now;
}
event('pointercancel', box.left + box.width / 2);
gaps.sort((a, b) => a - b);
return [n / ((last - begun) / 1000), gaps[Math.floor(gaps.length * 0.95)]];
})`

func moves(t *testing.T, d *demo, b *webtest.Browser) {
	to := d.now.Add(-100 * 24 * time.Hour).Unix()
	address := fmt.Sprintf("%s?by=rule&span=7776000&to=%d&points=13000", d.url, to)
	b.Run(t, chromedp.Navigate(address),
		chromedp.WaitReady(chromedp.CSS(ready)))
	seen := webtest.Eval[int](t, b, `import('./traffic.js').then((m) => { const a = m.current(),
[from, to] = m.view(); return Math.round((to - from) / a.step) * a.series.length; })`)
	frames := 10
	if *strict {
		frames = 1000
	}
	got := webtest.Eval[[]float64](t, b, fmt.Sprintf("%s(%d)", moving, frames))
	t.Logf("%d points that are seen moved at %.1f frames a second, 95 of 100 within %.0f ms", seen,
		got[0], got[1])
	if seen < 100_000 {
		t.Errorf("%d points are seen", seen)
	}
	if *strict && got[0] < 30 || got[0] < 1 {
		t.Errorf("%.1f frames a second", got[0])
	}
}

func stays(t *testing.T, d *demo, b *webtest.Browser) {
	const when = `document.querySelector('#plot .tip .when').textContent`
	const begins = `import('./traffic.js').then((m) => m.current().from)`
	b.Run(t, chromedp.Navigate(d.url+"?span=900"), chromedp.WaitReady(chromedp.CSS(ready)))
	press(t, b, "#plot", kb.PageUp, kb.PageUp)
	read, began := webtest.Eval[string](t, b, when), webtest.Eval[float64](t, b, begins)
	waits(t, b, fmt.Sprintf(`import('./traffic.js').then((m) => m.current().from > %.0f)`, began+2))
	if now := webtest.Eval[string](t, b, when); now != read {
		t.Errorf("it read %q, and now %q", read, now)
	}
}

func key(keys string) chromedp.Action[chromedp.Void] { return chromedp.KeyEvent(keys) }

// press gives keys to an element. The page finds and focuses it in one step: one that the driver
// names by its number may be replaced before it is focused.
func press(t testing.TB, b *webtest.Browser, selector string, keys ...string) {
	t.Helper()
	waits(t, b, fmt.Sprintf(`((e) => { e?.focus(); return e && document.activeElement === e })(
document.querySelector(%q)) === true`, selector))
	for _, k := range keys {
		b.Run(t, key(k))
	}
}

const focused = `(() => { const e = document.activeElement; return e === document.body ? '' :
(e.id || e.dataset.key || e.dataset.value || e.className || e.tagName) })()`

// types uses the keyboard in place of a mouse.
func types(t *testing.T, d *demo, b *webtest.Browser) {
	seen := map[string]bool{}
	for range 150 { // the end is the browser itself
		b.Run(t, key(kb.Tab))
		at := webtest.Eval[string](t, b, focused)
		if seen["plot"] && at == "" {
			break
		}
		seen[at] = true
	}
	for _, want := range []string{"theme", "keys", "logout", "verdict", "rule", "bytes", "31536000",
		"closer", "live", "plot", " drop", "undo 12", "apply 11", "events-filter",
		"events-pause", "compare-x", "set", "set-find", "set-add", "remove 203.0.113.3",
		"entries blocklist", "accept blocklist"} {
		if !seen[want] {
			t.Errorf("the tabulator never comes to %q", want)
		}
	}
	says := func(js, want string) {
		t.Helper()
		waits(t, b, fmt.Sprintf(`(%s).includes(%q)`, js, want))
	}
	b.Run(t, key("5"))
	says(`document.querySelector('#range [aria-pressed="true"]').textContent`, "1 day")
	b.Run(t, key("["))
	waits(t, b, `document.querySelector('#move [data-value="live"]').ariaPressed === 'false'`)
	b.Run(t, key("l"), key("+"))
	says(`document.querySelector('#range-text').textContent`, "to now")
	b.Run(t, key("t"), key(kb.ArrowLeft), key(kb.ArrowLeft))
	says(`document.querySelector('#plot-reader').textContent`, "passed ")
	says(`document.querySelector('#plot .tip').innerText`, "dropped")
	b.Run(t, key(kb.Escape), key("d"), key("d"))
	says(`document.documentElement.dataset.theme`, "dark")
	b.Run(t, key("?"))
	says(`String(document.querySelector('#help').open)`, "true")
	b.Run(t, key(kb.Escape))
	says(`String(document.querySelector('#help').open)`, "false")

	press(t, b, `[data-key="undo 12"]`, kb.Enter)
	says(`document.querySelector('#ask').innerText`, "Undo incident 12?")
	press(t, b, "#ask-yes", kb.Enter)
	says(`document.querySelector('[data-id="12"]').innerText`, "undone")

	says(`document.querySelector('#held').innerText`, "blocklist would change abusers: 223 more")
	press(t, b, `[data-key="entries blocklist"]`, kb.Enter)
	says(`document.querySelector('#held').innerText`, "99.0.0.0/8\nand 123 more\n− 192.0.2.1")
	press(t, b, `[data-key="accept blocklist"]`, kb.Enter)
	says(`document.querySelector('#ask').innerText`, "Accept the change of blocklist?")
	press(t, b, "#ask-yes", kb.Enter)
	waits(t, b, `document.querySelector('#held').hidden`)

	press(t, b, "#set-add", "203.0.113.250", kb.Enter)
	says(`document.querySelector('#sets').innerText`, "203.0.113.250")
	press(t, b, "#set-add", "nonsense", kb.Enter)
	says(`document.querySelector('#sets').innerText`, "no address or prefix")
	b.Wrong() // the refusal, which the console tells
	b.Run(t, key("\t"))
	press(t, b, `[data-key="remove 203.0.113.250"]`, kb.Enter)
	press(t, b, "#ask-yes", kb.Enter)
	waits(t, b, `!document.querySelector('#sets').innerText.includes('203.0.113.250')`)
}

// refuses opens the page while so many others have its events that the agent gives it none.
func refuses(t *testing.T, d *demo) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for status := http.StatusOK; status == http.StatusOK; {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"api/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+d.token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		status = answer.StatusCode
	}
	b := d.open(t, d.window(900, 700, "light"), "")
	const says = `document.querySelector('#events').innerText.includes('No event comes: ')`
	waits(t, b, says)
	cancel()
	waits(t, b, "!"+says)
}

// blind looks at the page while a detector does not work: it said "none going on".
func blind(t *testing.T, d *demo, b *webtest.Browser) {
	text := func(of string) string {
		return webtest.Eval[string](t, b, `document.querySelector('`+of+`').innerText`)
	}
	waits(t, b, `document.querySelectorAll('#health tbody tr').length === 6`)
	d.mu.Lock()
	d.blind = true
	d.mu.Unlock()
	waits(t, b, `document.querySelector('#alarms').innerText.includes('operation not permitted')`)
	waits(t, b, `document.querySelector('#incidents .unwatched') !== null`)
	waits(t, b, `document.querySelector('#health tr[data-state="fails"]') !== null`)
	waits(t, b, `document.querySelector('#tiles').innerText.includes('do not work')`)
	for _, of := range []string{"#tiles", "#incidents"} {
		waits(t, b, `!document.querySelector('`+of+`').innerText.includes('none going on')`)
	}
	if got := text("#incidents"); !strings.Contains(got, "detector floods on eth0 does not work") ||
		!strings.Contains(got, "allow it") {
		t.Errorf("incidents say %q", got)
	}
	shot(t, b, "blind", true)
	d.mu.Lock()
	d.blind = false
	d.mu.Unlock()
	waits(t, b, `!document.querySelector('#alarms').innerText.includes('not permitted')`)
	waits(t, b, `document.querySelector('#tiles').innerText.includes('going on')`)
}

func axes(t *testing.T, b *webtest.Browser) {
	axe := axeIn(t, b)
	for _, theme := range []string{"light", "dark"} {
		webtest.Eval[bool](t, b, `document.documentElement.dataset.theme = '`+theme+`'; true`)
		for _, dialog := range []string{"", "help", "ask", "login"} {
			if dialog != "" {
				webtest.Eval[bool](t, b, `document.getElementById('`+dialog+`').showModal(); true`)
			}
			// The page behind a dialog was looked at without one.
			axe(theme+" "+dialog, dialog)
			if dialog != "" {
				webtest.Eval[bool](t, b, `document.getElementById('`+dialog+`').close(); true`)
			}
		}
	}
}

// axeIn brings axe into a page. What it gives runs it on the whole, or within an element, and tells
// what it finds.
func axeIn(t *testing.T, b *webtest.Browser) (run func(what, within string)) {
	script, err := os.ReadFile("../../../web/axe/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	webtest.Eval[bool](t, b, string(script)+"; true")
	return func(what, within string) {
		t.Helper()
		place := "document"
		if within != "" {
			place = fmt.Sprintf("document.getElementById(%q)", within)
		}
		for _, v := range webtest.Eval[[]string](t, b, `axe.run(`+place+`, {resultTypes:
['violations']}).then((r) => r.violations.map((v) => v.id + ': ' + v.help + ': ' +
v.nodes.slice(0, 5).map((n) => n.target.join(' ') + ' ' + n.failureSummary).join('; ')))`) {
			t.Errorf("%s: %s", what, v)
		}
	}
}

// fits looks at names that would be markup, in the window of a phone.
func fits(t *testing.T, d *demo) {
	b := d.open(t, d.window(390, 844, "dark"), "?by=rule")
	waits(t, b, `document.querySelectorAll('#events li').length > 6`)
	press(t, b, "#plot", kb.ArrowLeft, kb.PageUp)
	const outside = `[...document.querySelectorAll('main *, .bar *')].filter(e =>
!e.closest('.scroll, .tip') && !e.closest('nav') && !e.closest('.hidden') && !e.closest('.list > *') &&
e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName + '.' + e.className)`
	if wide := webtest.Eval[int64](t, b, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("the page is %d pixels wide", wide)
	}
	if out := webtest.Eval[[]string](t, b, outside); len(out) > 0 {
		t.Errorf("beyond the window: %q", out)
	}
	// What a part saw, and what to do where one fails, was a column of a few pixels at the edge.
	const lost = `[...document.querySelectorAll('#health td.grow')].filter(e => {
const r = e.getBoundingClientRect(); return r.right > innerWidth || r.width < 120 }).length`
	if n := webtest.Eval[int](t, b, lost); n > 0 {
		t.Errorf("%d parts do not tell about themselves within the window", n)
	}
	n := webtest.Eval[int](t, b,
		`document.querySelectorAll('main img, main script, main [onerror]').length`)
	if n > 0 {
		t.Errorf("%d elements were made of names", n)
	}
	for _, where := range []string{"#legend", "#incidents", "#events", "#policy", "#rules",
		"#plot .tip", "#health", "#alarms"} {
		text := webtest.Eval[string](t, b, `document.querySelector('`+where+`').textContent`)
		if !strings.Contains(text, `<script>alert(2)</script>\u{202e}\u{a}`) {
			t.Errorf("%s does not show the text as it is: %.200q", where, text)
		}
	}
	shot(t, b, "hostile", true)
	fine(t, b)
}
