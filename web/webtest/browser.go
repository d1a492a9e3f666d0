// Package webtest drives a real Chromium over levee's pages. It is for tests only.
//
// In goes a page, out come what the browser shows of it and what went wrong in it: messages on the
// console, exceptions, requests for what is not the page's own. It asks no network for anything.
package webtest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Browser is a Chromium of its own with one tab.
type Browser struct {
	context.Context
	mu    sync.Mutex
	wrong []string
}

// hangs is the longest time that a browser may be there: longer than a busy machine takes for all
// that a test does with one.
const hangs = 10 * time.Minute

// Window says how the page is looked at.
type Window struct {
	Width, Height int64  // in CSS pixels
	Scheme        string // light or dark
	// Own tells which addresses the page may ask for.
	Own func(url string) bool
}

// Start starts a browser, or skips the test where there is none.
func Start(t testing.TB, w Window) *Browser {
	t.Helper()
	var bin string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			bin = path
			break
		}
	}
	if bin == "" {
		t.Skip("needs chromium (scripts/deps test installs it)")
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(bin), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.UserDataDir(filepath.Join(t.TempDir(), "profile")),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("force-color-profile", "srgb"),
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	tab, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(func() { closeTab(); stop(); cancel() })
	b := &Browser{Context: tab}
	// the first step starts the browser
	if err := chromedp.Do(tab, chromedp.EmulateViewport(w.Width, w.Height)); err != nil {
		t.Fatalf("starting %s: %v", bin, err)
	}
	if err := chromedp.Listen(tab, func(event any) { b.note(event, w.Own) }); err != nil {
		t.Fatal(err)
	}
	media := emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: w.Scheme},
			// Without: an animation has the browser draw the page again and again.
			{Name: "prefers-reduced-motion", Value: "reduce"}},
	}
	_, errMedia := chromedp.Call(tab, emulation.SetEmulatedMedia, media)
	_, errNetwork := chromedp.Call(tab, network.Enable, network.EnableParams{})
	_, errLog := chromedp.Call(tab, log.Enable, cdp.Empty{})
	if err := errors.Join(errMedia, errNetwork, errLog); err != nil {
		t.Fatal(err)
	}
	return b
}

// note keeps what a page without a mistake does not do.
func (b *Browser) note(event any, own func(string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		for _, a := range e.Args {
			b.wrong = append(b.wrong, fmt.Sprintf("console: %s %s", a.Value, a.Description))
		}
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, fmt.Sprintf("exception: %+v", *e.ExceptionDetails))
	case *log.EventEntryAdded:
		b.wrong = append(b.wrong, "log: "+e.Entry.Text)
	case *network.EventRequestWillBeSent:
		if !own(e.Request.URL) {
			b.wrong = append(b.wrong, "request: "+e.Request.URL)
		}
	}
}

// Wrong returns what the page should not have done, and forgets it.
func (b *Browser) Wrong() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.wrong
	b.wrong = nil
	return out
}

// Run takes steps.
func (b *Browser) Run(t testing.TB, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b, steps...); err != nil {
		t.Fatalf("%v; %q", err, b.Wrong())
	}
}

// Eval returns the value of an expression, of a promise when it is kept.
func Eval[T any](t testing.TB, b *Browser, js string) T {
	t.Helper()
	out, err := chromedp.Run(b, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%v: %s; %q", err, js, b.Wrong())
	}
	return out
}
