package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// shown lists the frames that are visible, with their widths in whole pixels.
const shown = `[...document.querySelectorAll("#frames .f")].filter(g => g.style.display !== "none").map(g =>
	g.querySelector("title").textContent.split(":")[0] + " " + Math.round(g.querySelector("rect").getAttribute("width"))).join(", ")`

const clickOn = `(() => { const g = [...document.querySelectorAll("#frames .f")].find(g => g.querySelector("title").textContent.startsWith("NAME:"));
	g.querySelector("rect").dispatchEvent(new MouseEvent("click", {bubbles: true})); return true; })()`

var classes = []FlameClass{{"driver", "#8fb8de"}, {"program", "#7cc47f"}, {"kernel", "#e9d38d"},
	{"idle", "#d7d7d7"}}

// TestFlameGraphZoomsOffline opens a graph from a file in Chromium and clicks.
func TestFlameGraphZoomsOffline(t *testing.T) {
	f := NewFlame(classes...)
	f.Add([]string{"thread", "veth_poll"}, "driver", "kernel", 30)
	f.Add([]string{"thread", "veth_poll", "bpf_prog_x"}, "program", "kernel", 30)
	f.Add([]string{"thread", "other"}, "kernel", "kernel", 15)
	f.Add([]string{"[idle]"}, "idle", "kernel", 25)
	text, _ := drawn(t, f)
	path := filepath.Join(t.TempDir(), "flame.svg")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	b := start(t, path, 1280, "light")
	b.Run(t, chromedp.Navigate("file://"+path))
	want := func(when, frames string) {
		t.Helper()
		if got := eval[string](t, b, shown); got != frames {
			t.Errorf("%s: %s, want %s", when, got, frames)
		}
	}
	click := func(name string) {
		t.Helper()
		eval[bool](t, b, strings.Replace(clickOn, "NAME", name, 1))
	}
	const all = "all 1180, [idle] 295, thread 885, other 177, veth_poll 708, bpf_prog_x 354"
	want("at first", all)
	click("veth_poll")
	want("zoomed", "all 1180, thread 1180, veth_poll 1180, bpf_prog_x 590")
	click("all")
	want("back", all)
}

// drawn is a graph as XML, with its titles.
func drawn(t *testing.T, f *Flame) (text string, titles []string) {
	t.Helper()
	text = string(f.SVG("a <b> & \"c\"", "by 'x'"))
	dec := xml.NewDecoder(strings.NewReader(text))
	inTitle := false
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return text, titles
		}
		if err != nil {
			t.Fatalf("no XML: %v\n%s", err, text)
		}
		switch x := token.(type) {
		case xml.StartElement:
			inTitle = x.Name.Local == "title"
			for _, a := range x.Attr {
				if strings.Contains(a.Name.Local, "href") || strings.HasPrefix(a.Name.Local, "on") {
					t.Errorf("attribute %s", a.Name.Local)
				}
			}
		case xml.EndElement:
			inTitle = false
		case xml.CharData:
			if inTitle {
				titles = append(titles, string(x))
			}
		}
	}
}

func TestFlameGraphIsOneSafeDocument(t *testing.T) {
	f := NewFlame(classes...)
	f.Add([]string{"thread", "veth_poll"}, "driver", "kernel", 30)
	f.Add([]string{"thread", "veth_poll", "</title><script>alert(1)</script>"}, "program", "kernel",
		60)
	f.Add([]string{"thread"}, "kernel", "kernel", 10)
	f.Add([]string{"narrow"}, "kernel", "kernel", 0)
	text, titles := drawn(t, f)
	want := []string{"a <b> & \"c\"", "all: 100.00 %, 100 samples", "thread: 100.00 %, 100 samples",
		"veth_poll: 90.00 %, 90 samples",
		"</title><script>alert(1)</script>: 60.00 %, 60 samples"}
	if !slices.Equal(titles, want) {
		t.Errorf("titles %q, want %q", titles, want)
	}
	if strings.Count(text, "<script>") != 1 || strings.Contains(text, "http") &&
		strings.Count(text, "http") != 1 {
		t.Errorf("more than one script, or an address:\n%s", text)
	}
	if _, titles := drawn(t, NewFlame(classes...)); len(titles) != 1 {
		t.Errorf("no samples: titles %q", titles)
	}
}

func TestATerminalIsWellFormed(t *testing.T) {
	d := xml.NewDecoder(bytes.NewReader(Terminal([]string{"$ make demo", "", `<a> & "b"`,
		"▁█ end"})))
	text := ""
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := tok.(xml.CharData); ok {
			text += string(c)
		}
	}
	if !strings.Contains(text, `<a> & "b"`) {
		t.Errorf("text %q", text)
	}
}
