package profile

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// shown lists the frames that are visible, with their widths in whole pixels.
const shown = `[...document.querySelectorAll("#frames .f")].filter(g => g.style.display !== "none").map(g =>
	g.querySelector("title").textContent.split(":")[0] + " " + Math.round(g.querySelector("rect").getAttribute("width"))).join(", ")`

const clickOn = `(() => { const g = [...document.querySelectorAll("#frames .f")].find(g => g.querySelector("title").textContent.startsWith("NAME:"));
	g.querySelector("rect").dispatchEvent(new MouseEvent("click", {bubbles: true})); return true; })()`

// TestFlameGraphZoomsOffline opens a graph from a file in Chromium and clicks.
func TestFlameGraphZoomsOffline(t *testing.T) {
	bin := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			bin = path
			break
		}
	}
	if bin == "" {
		t.Skip("needs chromium (scripts/deps test installs it)")
	}
	f := NewFlame()
	f.Add([]string{"thread", "veth_poll"}, Driver, 30)
	f.Add([]string{"thread", "veth_poll", "bpf_prog_x"}, Program, 30)
	f.Add([]string{"thread", "other"}, Kernel, 15)
	f.Add([]string{"[idle]"}, Idle, 25)
	text, _ := drawn(t, f)
	path := filepath.Join(t.TempDir(), "flame.svg")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ctx, stop := chromedp.NewExecAllocator(ctx, chromedp.ExecPath(bin), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.UserDataDir(filepath.Join(t.TempDir(), "profile")),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true))
	tab, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(func() { closeTab(); stop(); cancel() })
	if err := chromedp.Do(tab, chromedp.Navigate("file://"+path)); err != nil {
		t.Fatalf("opening the graph: %v", err)
	}
	want := func(when, frames string) {
		t.Helper()
		got, err := chromedp.Run(tab, chromedp.Evaluate[string](shown))
		if err != nil || got != frames {
			t.Errorf("%s: %s, %v, want %s", when, got, err, frames)
		}
	}
	click := func(name string) {
		t.Helper()
		if _, err := chromedp.Run(tab, chromedp.Evaluate[bool](strings.Replace(clickOn, "NAME", name, 1))); err != nil {
			t.Fatalf("clicking %s: %v", name, err)
		}
	}
	const all = "all 1180, [idle] 295, thread 885, other 177, veth_poll 708, bpf_prog_x 354"
	want("at first", all)
	click("veth_poll")
	want("zoomed", "all 1180, thread 1180, veth_poll 1180, bpf_prog_x 590")
	click("all")
	want("back", all)
}
